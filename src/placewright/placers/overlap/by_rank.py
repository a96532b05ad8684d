"""Place ops one by one in the order of a rank, each where it would end first (HEFT, PEFT, CPOP).

Ops go into gaps of the devices' lines, and copies into gaps that the sender's and the receiver's channel have in
common; through host memory a tensor goes up once and comes down once per destination. The evaluator books copies when
their producer ends and never lets a device wait for an op while another one is ready, so its times can differ from the
planned ones: they are equal where no copies queue and no device idles beside a ready op.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numba import njit

from placewright.placers.overlap.gaps import first_common_gap, first_gap, new_lines, occupy
from placewright.placers.overlap.memory_ledger import (
    NOWHERE,
    bytes_missing,
    free_inputs,
    may_be_on,
    new_room,
    take_room,
)
from placewright.problems import Arrays


@njit(cache=True, nogil=True)
def _leg(took_s: float, ready_s: float, one: int, other: int, keep: bool, lines: Any, own: Any, stamp: int) -> float:
    """Start of one leg of a copy on up to two channels (line number or -1); books it if ``keep``.

    Copies tried for the same op queue behind each other: ``own`` holds their ends on channels marked with ``stamp``.
    """
    own_end_s, own_of = own
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
    n_ops, n_devices = time_s.shape
    lines = new_lines(3 * n_devices, n_ops + 3 * a.consumer_op.shape[0])
    begin_s, end_s, before, after, last, used = lines
    own = np.zeros(3 * n_devices), np.full(3 * n_devices, -1, dtype=np.int64)
    arrival_s = np.full((a.tensor_producer.shape[0], n_devices), NOWHERE)
    in_host_s = np.full(a.tensor_producer.shape[0], NOWHERE)
    links = a.copy_s, a.direct, a.to_host, a.from_host, a.link_busy, a.send_channel, a.receive_channel
    made = a.tensor_producer, device, finish_s
    room = new_room(a, group_time_s, group_bytes, device_of_group, limit_bytes)
    pending = a.input_ptr[1:] - a.input_ptr[:-1]
    inputs = np.empty(pending.max(), dtype=np.int64)
    by_rank = np.argsort(-rank, kind="mergesort")
    position = np.empty(n_ops, dtype=np.int64)
    position[by_rank] = np.arange(n_ops)
    ready = [position[v] for v in range(n_ops) if pending[v] == 0]
    heapq.heapify(ready)
    stamp = 0

    while len(ready) > 0:
        u = by_rank[heapq.heappop(ready)]
        g = a.colocation_first[u]
        n_inputs = 0
        for i in range(a.input_ptr[u], a.input_ptr[u + 1]):  # by the time they are made, as the evaluator sends them
            t = a.input_tensor[i]
            k = n_inputs
            while k > 0 and finish_s[a.tensor_producer[inputs[k - 1]]] > finish_s[a.tensor_producer[t]]:
                inputs[k] = inputs[k - 1]
                k -= 1
            inputs[k] = t
            n_inputs += 1

        chosen, chosen_score, fallback, least_missing = -1, np.inf, -1, np.inf
        for d in range(n_devices):
            if not may_be_on(room, u, d):
                continue
            missing = bytes_missing(room, u, d, device, arrival_s)[1]
            if missing > 0.0:
                if missing < least_missing or fallback < 0:
                    fallback, least_missing = d, missing
                continue
            stamp += 1
            there_s = _inputs_there(inputs[:n_inputs], d, False, made, links, arrival_s, in_host_s, lines, own, stamp)
            score = first_gap(begin_s, end_s, before, after, last, d, there_s, time_s[u, d]) + time_s[u, d]
            score += extra_s[u, d]
            if device_of_group[g] < 0:
                score += group_time_s[g, d] - time_s[u, d]
            if d == preferred[u]:
                score = -np.inf
            if score < chosen_score:
                chosen, chosen_score = d, score
        d = chosen
        if d < 0:
            d = fallback
            misfit[g] = True

        take_room(room, u, d, device, arrival_s)
        stamp += 1
        there_s = _inputs_there(inputs[:n_inputs], d, True, made, links, arrival_s, in_host_s, lines, own, stamp)
        start_s[u] = first_gap(begin_s, end_s, before, after, last, d, there_s, time_s[u, d])
        device[u], finish_s[u] = d, start_s[u] + time_s[u, d]
        occupy(begin_s, end_s, before, after, last, used, d, start_s[u], finish_s[u])
        free_inputs(room, u, device, arrival_s)
        for t in range(a.tensor_ptr[u], a.tensor_ptr[u + 1]):
            for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                v = a.consumer_op[e]
                pending[v] -= 1
                if pending[v] == 0:
                    heapq.heappush(ready, position[v])


@njit(cache=True, nogil=True)
def _inputs_there(
    inputs: Any, d: int, keep: bool, made: Any, links: Any, arrival_s: Any, in_host_s: Any, lines: Any, own: Any,
    stamp: int,
) -> float:  # fmt: skip
    """When all inputs of an op are on device ``d``; ``keep`` books the copies that this needs."""
    tensor_producer, device, finish_s = made
    copy_s, direct, to_host, from_host, link_busy, send_channel, receive_channel = links
    n_devices = direct.shape[0]
    latest = 0.0
    for t in inputs:
        s = device[tensor_producer[t]]
        made_s = finish_s[tensor_producer[t]]
        if s == d:
            there_s = made_s
        elif arrival_s[t, d] != NOWHERE:
            there_s = arrival_s[t, d]
        else:
            link = direct[s, d]
            if link >= 0:
                one = n_devices + send_channel[s] if link_busy[link] & 1 else -1
                other = n_devices + receive_channel[d] if link_busy[link] & 2 else -1
                took = copy_s[t, link]
                there_s = _leg(took, made_s, one, other, keep, lines, own, stamp) + took
            else:
                up_s = in_host_s[t]
                if up_s == NOWHERE:
                    link = to_host[s]
                    took = copy_s[t, link] if link >= 0 else 0.0
                    one = n_devices + send_channel[s] if link >= 0 and link_busy[link] & 1 else -1
                    up_s = _leg(took, made_s, one, -1, keep, lines, own, stamp) + took
                    if keep:
                        in_host_s[t] = up_s
                link = from_host[d]
                took = copy_s[t, link] if link >= 0 else 0.0
                other = n_devices + receive_channel[d] if link >= 0 and link_busy[link] & 2 else -1
                there_s = _leg(took, up_s, -1, other, keep, lines, own, stamp) + took
            if keep:
                arrival_s[t, d] = there_s
        latest = max(latest, there_s)
    return latest
