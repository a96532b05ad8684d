"""Place ops one by one in the order of a rank, each where it would end first (HEFT, PEFT, CPOP).

Ops go into gaps of the devices' lines, and copies into gaps that the sender's and the receiver's channel have in common;
through host memory a tensor goes up once and comes down once per destination. The evaluator books copies when their
producer ends and never lets a device wait for an op while another one is ready, so its times can differ from the
planned ones: they are equal where no channel is ever asked for twice at a time and no device idles beside a ready op.

Memory: a tensor counts on every device that holds it from the decision for its producer (or copy) until the decisions
for all its consumers; that is the order of time only roughly, so the caller checks the result with the evaluator.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numba import njit

from placewright.placers.lists.gaps import first_common_gap, first_gap, new_lines, occupy
from placewright.problem import Arrays


@njit(cache=True, nogil=True)
def _leg(
    took_s: float, ready_s: float, one: int, other: int, keep: bool, lines: Any, own_end_s: Any, own_of: Any, stamp: int
) -> float:
    """Start of one leg of a copy on up to two channels (line number or -1); books it if ``keep``.

    Copies tried for the same op queue behind each other: ``own_end_s`` of the channels marked with ``stamp``.
    """
    begin_s, end_s, before, after, last, used = lines
    if took_s <= 0.0 or (one < 0 and other < 0):
        return ready_s
    if one < 0:
        one, other = other, one
    if own_of[one] == stamp:
        ready_s = max(ready_s, own_end_s[one])
    if other < 0:
        start = first_gap(begin_s, end_s, before, after, last, one, ready_s, took_s)
    else:
        if own_of[other] == stamp:
            ready_s = max(ready_s, own_end_s[other])
        start = first_common_gap(begin_s, end_s, before, after, last, one, other, ready_s, took_s)
        own_end_s[other], own_of[other] = start + took_s, stamp
        if keep:
            occupy(begin_s, end_s, before, after, last, used, other, start, start + took_s)
    own_end_s[one], own_of[one] = start + took_s, stamp
    if keep:
        occupy(begin_s, end_s, before, after, last, used, one, start, start + took_s)
    return start


@njit(cache=True, nogil=True)
def schedule_by_rank(
    a: Arrays, time_s: Any, group_time_s: Any, group_bytes: Any, rank: Any, extra_s: Any, preferred: Any,
    device_of_group: Any, limit_bytes: Any, device: Any, start_s: Any, finish_s: Any, misfit: Any,
) -> None:  # fmt: skip
    """Write device, start and finish of every op.

    Ready ops are taken by greatest ``rank`` (then least number). The device has the least finish + ``extra_s`` [ops,
    devices] (+ the time of a new group's other ops there), or is ``preferred`` (-1: none) where that has room.
    ``device_of_group`` holds decisions made before (-1: none). Where no device has room, the op goes where least is
    missing, and its group is marked in ``misfit``.
    """
    tensor_ptr, tensor_producer, live_bytes = a.tensor_ptr, a.tensor_producer, a.live_bytes
    consumer_ptr, consumer_op, input_ptr, input_tensor = a.consumer_ptr, a.consumer_op, a.input_ptr, a.input_tensor
    copy_s, direct, to_host, from_host, link_busy = a.copy_s, a.direct, a.to_host, a.from_host, a.link_busy
    send_channel, receive_channel, group_of = a.send_channel, a.receive_channel, a.colocation_first
    n_ops, n_devices = time_s.shape
    n_tensors = tensor_producer.shape[0]

    lines = new_lines(3 * n_devices, n_ops + 3 * consumer_op.shape[0])
    own_end_s, own_of = np.zeros(3 * n_devices), np.full(3 * n_devices, -1, dtype=np.int64)
    arrival_s = np.full((n_tensors, n_devices), np.nan)
    in_host_s = np.full(n_tensors, np.nan)
    unread = consumer_ptr[1:] - consumer_ptr[:-1]
    resident, live, peak = np.zeros(n_devices), np.zeros(n_devices), np.zeros(n_devices)
    for v in range(n_ops):
        if group_of[v] == v and device_of_group[v] >= 0:
            resident[device_of_group[v]] += group_bytes[v]
    group_left_s = group_time_s.copy()
    pending = input_ptr[1:] - input_ptr[:-1]
    by_rank = np.argsort(-rank, kind="mergesort")
    position = np.empty(n_ops, dtype=np.int64)
    position[by_rank] = np.arange(n_ops)
    ready = [position[v] for v in range(n_ops) if pending[v] == 0]
    heapq.heapify(ready)
    inputs = np.empty(pending.max(), dtype=np.int64)
    stamp = 0

    while len(ready) > 0:
        u = by_rank[heapq.heappop(ready)]
        g = group_of[u]
        n_inputs = 0
        for i in range(input_ptr[u], input_ptr[u + 1]):  # by the time they are there, as the evaluator sends them
            t = input_tensor[i]
            k = n_inputs
            while k > 0 and finish_s[tensor_producer[inputs[k - 1]]] > finish_s[tensor_producer[t]]:
                inputs[k] = inputs[k - 1]
                k -= 1
            inputs[k] = t
            n_inputs += 1
        made = 0.0
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            made += live_bytes[t]

        chosen, chosen_score, fallback, least_missing = -1, np.inf, -1, np.inf
        for d in range(n_devices):
            if group_time_s[g, d] == np.inf or (device_of_group[g] >= 0 and device_of_group[g] != d):
                continue
            needed = made
            for i in range(n_inputs):
                t = inputs[i]
                if device[tensor_producer[t]] != d and np.isnan(arrival_s[t, d]):
                    needed += live_bytes[t]
            missing = resident[d] + max(peak[d], live[d] + needed) - limit_bytes[d]
            missing += group_bytes[g] if device_of_group[g] < 0 else 0.0
            if missing > 0.0:
                if missing < least_missing or fallback < 0:
                    fallback, least_missing = d, missing
                continue
            stamp += 1
            ready_s = _inputs_there(
                inputs, n_inputs, d, False, tensor_producer, device, finish_s, copy_s, direct, to_host, from_host,
                link_busy, send_channel, receive_channel, n_devices, arrival_s, in_host_s, lines, own_end_s, own_of,
                stamp,
            )  # fmt: skip
            begin = first_gap(lines[0], lines[1], lines[2], lines[3], lines[4], d, ready_s, time_s[u, d])
            score = begin + time_s[u, d] + extra_s[u, d]
            if device_of_group[g] < 0:
                score += group_left_s[g, d] - time_s[u, d]
            if d == preferred[u]:
                score = -np.inf
            if score < chosen_score:
                chosen, chosen_score = d, score
        d = chosen
        if d < 0:
            d = fallback
            misfit[g] = True
        stamp += 1
        copied = 0.0
        for i in range(n_inputs):
            t = inputs[i]
            if device[tensor_producer[t]] != d and np.isnan(arrival_s[t, d]):
                copied += live_bytes[t]
        ready_s = _inputs_there(
            inputs, n_inputs, d, True, tensor_producer, device, finish_s, copy_s, direct, to_host, from_host,
            link_busy, send_channel, receive_channel, n_devices, arrival_s, in_host_s, lines, own_end_s, own_of, stamp,
        )  # fmt: skip
        begin = first_gap(lines[0], lines[1], lines[2], lines[3], lines[4], d, ready_s, time_s[u, d])
        occupy(lines[0], lines[1], lines[2], lines[3], lines[4], lines[5], d, begin, begin + time_s[u, d])
        device[u], start_s[u], finish_s[u] = d, begin, begin + time_s[u, d]
        if device_of_group[g] < 0:
            device_of_group[g] = d
            resident[d] += group_bytes[g]
        for other in range(n_devices):
            if group_time_s[g, other] < np.inf:
                group_left_s[g, other] -= time_s[u, other]
        live[d] += made + copied
        peak[d] = max(peak[d], live[d])
        for i in range(n_inputs):
            t = inputs[i]
            unread[t] -= 1
            if unread[t] == 0:
                home = device[tensor_producer[t]]
                live[home] -= live_bytes[t]
                for other in range(n_devices):
                    if other != home and not np.isnan(arrival_s[t, other]):
                        live[other] -= live_bytes[t]
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
                v = consumer_op[e]
                pending[v] -= 1
                if pending[v] == 0:
                    heapq.heappush(ready, position[v])


@njit(cache=True, nogil=True)
def _inputs_there(
    inputs: Any, n_inputs: int, d: int, keep: bool, tensor_producer: Any, device: Any, finish_s: Any, copy_s: Any,
    direct: Any, to_host: Any, from_host: Any, link_busy: Any, send_channel: Any, receive_channel: Any, n_devices: int,
    arrival_s: Any, in_host_s: Any, lines: Any, own_end_s: Any, own_of: Any, stamp: int,
) -> float:  # fmt: skip
    """When all inputs of an op are on device ``d``; ``keep`` books the copies that this needs."""
    latest = 0.0
    for i in range(n_inputs):
        t = inputs[i]
        s = device[tensor_producer[t]]
        made_s = finish_s[tensor_producer[t]]
        if s == d:
            there_s = made_s
        elif not np.isnan(arrival_s[t, d]):
            there_s = arrival_s[t, d]
        else:
            link = direct[s, d]
            if link >= 0:
                one = n_devices + send_channel[s] if link_busy[link] & 1 else -1
                other = n_devices + receive_channel[d] if link_busy[link] & 2 else -1
                took = copy_s[t, link]
                there_s = _leg(took, made_s, one, other, keep, lines, own_end_s, own_of, stamp) + took
            else:
                up_s = in_host_s[t]
                if np.isnan(up_s):
                    link = to_host[s]
                    took = copy_s[t, link] if link >= 0 else 0.0
                    one = n_devices + send_channel[s] if link >= 0 and link_busy[link] & 1 else -1
                    up_s = _leg(took, made_s, one, -1, keep, lines, own_end_s, own_of, stamp) + took
                    if keep:
                        in_host_s[t] = up_s
                link = from_host[d]
                took = copy_s[t, link] if link >= 0 else 0.0
                other = n_devices + receive_channel[d] if link >= 0 and link_busy[link] & 2 else -1
                there_s = _leg(took, up_s, -1, other, keep, lines, own_end_s, own_of, stamp) + took
            if keep:
                arrival_s[t, d] = there_s
        latest = max(latest, there_s)
    return latest
