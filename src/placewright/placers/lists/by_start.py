"""Always take the op and the device that can start first (ETF), with favourite children if there are any (SCT).

The key of an op on a device is its start there plus what the device is slower than the op's best one; on equal devices
that is the start. Channels are queues as in the evaluator, but a copy is booked when its reader is placed, not when its
producer ends: where channels queue, the evaluator's order of copies, and so its times, can differ.

Each device has two heaps of ready ops: *waiting* by key, for ops whose inputs come after the device is free, and
*startable* by (slowness, rank), for the others; so nothing has to be moved when the device's clock goes on. Channels
make keys grow: an entry is brought up to date when it comes to the top, at most ``MOST_REFRESHED`` per device and
decision; then the best of those is taken.

Memory is counted as in :mod:`placewright.placers.lists.by_rank`. An op that has no room on a device just now is parked
until a tensor is freed there.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numba import njit

from placewright.problem import Arrays

MOST_REFRESHED = 64


@njit(cache=True, nogil=True)
def _push(heap: Any, keys: Any, d: int, size: int, item: int, key: float) -> None:
    """Add to heap ``d`` of ``size`` entries; order: key, then item."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if keys[d, parent] < key or (keys[d, parent] == key and heap[d, parent] < item):
            break
        heap[d, i], keys[d, i] = heap[d, parent], keys[d, parent]
        i = parent
    heap[d, i], keys[d, i] = item, key


@njit(cache=True, nogil=True)
def _settle_top(heap: Any, keys: Any, d: int, size: int, item: int, key: float) -> None:
    """Replace the top of heap ``d`` of ``size`` entries by another item."""
    i, child = 0, 1
    while child < size:
        if child + 1 < size and (
            keys[d, child + 1] < keys[d, child]
            or (keys[d, child + 1] == keys[d, child] and heap[d, child + 1] < heap[d, child])
        ):
            child += 1
        if key < keys[d, child] or (key == keys[d, child] and item < heap[d, child]):
            break
        heap[d, i], keys[d, i] = heap[d, child], keys[d, child]
        i, child = child, 2 * child + 1
    heap[d, i], keys[d, i] = item, key


@njit(cache=True, nogil=True)
def _drop_top(heap: Any, keys: Any, d: int, size: int) -> None:
    """Remove the top of heap ``d`` of ``size`` entries (afterwards ``size - 1``)."""
    if size > 1:
        _settle_top(heap, keys, d, size - 1, heap[d, size - 1], keys[d, size - 1])


@njit(cache=True, nogil=True)
def _inputs_there(
    u: int, d: int, keep: bool, input_ptr: Any, input_tensor: Any, tensor_producer: Any, device: Any, finish_s: Any,
    copy_s: Any, direct: Any, to_host: Any, from_host: Any, link_busy: Any, send_channel: Any, receive_channel: Any,
    arrival_s: Any, in_host_s: Any, free_s: Any, undo_channel: Any, undo_s: Any,
) -> float:  # fmt: skip
    """When all inputs of ``u`` are on ``d``; ``keep`` books the copies, otherwise the channels are put back."""
    latest = 0.0
    n_undo = 0
    for i in range(input_ptr[u], input_ptr[u + 1]):
        t = input_tensor[i]
        p = tensor_producer[t]
        s = device[p]
        if s == d:
            there_s = finish_s[p]
        elif arrival_s[t, d] >= 0.0:
            there_s = arrival_s[t, d]
        else:
            link = direct[s, d]
            there_s = finish_s[p]
            sender = receiver = -1
            if link >= 0:
                took = copy_s[t, link]
                if link_busy[link] & 1:
                    sender = send_channel[s]
                if link_busy[link] & 2:
                    receiver = receive_channel[d]
            else:
                if in_host_s[t] >= 0.0:
                    there_s = in_host_s[t]
                else:
                    link = to_host[s]
                    took = copy_s[t, link] if link >= 0 else 0.0
                    if took > 0.0 and link_busy[link] & 1:
                        c = send_channel[s]
                        there_s = max(there_s, free_s[c])
                        undo_channel[n_undo], undo_s[n_undo] = c, free_s[c]
                        n_undo += 1
                        free_s[c] = there_s + took
                    there_s += took
                    if keep:
                        in_host_s[t] = there_s
                link = from_host[d]
                took = copy_s[t, link] if link >= 0 else 0.0
                if link >= 0 and link_busy[link] & 2:
                    receiver = receive_channel[d]
            if took > 0.0:
                if sender >= 0:
                    there_s = max(there_s, free_s[sender])
                if receiver >= 0:
                    there_s = max(there_s, free_s[receiver])
                there_s += took
                if sender >= 0:
                    undo_channel[n_undo], undo_s[n_undo] = sender, free_s[sender]
                    n_undo += 1
                    free_s[sender] = there_s
                if receiver >= 0:
                    undo_channel[n_undo], undo_s[n_undo] = receiver, free_s[receiver]
                    n_undo += 1
                    free_s[receiver] = there_s
            if keep:
                arrival_s[t, d] = there_s
        latest = max(latest, there_s)
    if not keep:
        for i in range(n_undo - 1, -1, -1):
            free_s[undo_channel[i]] = undo_s[i]
    return latest


@njit(cache=True, nogil=True)
def schedule_by_start(
    a: Arrays, time_s: Any, group_time_s: Any, group_bytes: Any, rank: Any, favourite: Any, device_of_group: Any,
    limit_bytes: Any, device: Any, start_s: Any, finish_s: Any, misfit: Any,
) -> None:  # fmt: skip
    """Write device, start and finish of every op.

    Equal keys go by greatest ``rank``. ``favourite`` [ops] is the consumer that should follow an op on its device (-1:
    none). A device whose last op has a favourite that is ready and can start nowhere earlier is *awake*: it takes
    nothing but that favourite, except an op that could start at once on every device. ``device_of_group``,
    ``limit_bytes`` and ``misfit`` as in ``schedule_by_rank``.
    """
    tensor_ptr, tensor_producer, live_bytes = a.tensor_ptr, a.tensor_producer, a.live_bytes
    consumer_ptr, consumer_op, input_ptr, input_tensor = a.consumer_ptr, a.consumer_op, a.input_ptr, a.input_tensor
    copy_s, direct, to_host, from_host, link_busy = a.copy_s, a.direct, a.to_host, a.from_host, a.link_busy
    send_channel, receive_channel, group_of = a.send_channel, a.receive_channel, a.colocation_first
    n_ops, n_devices = time_s.shape
    n_tensors = tensor_producer.shape[0]

    free_s, device_free_s = np.zeros(2 * n_devices), np.zeros(n_devices)
    arrival_s, in_host_s = np.full((n_tensors, n_devices), -1.0), np.full(n_tensors, -1.0)
    unread = consumer_ptr[1:] - consumer_ptr[:-1]
    pending = input_ptr[1:] - input_ptr[:-1]
    undo_channel, undo_s = np.empty(3 * pending.max() + 1, dtype=np.int64), np.empty(3 * pending.max() + 1)
    resident, live, peak = np.zeros(n_devices), np.zeros(n_devices), np.zeros(n_devices)
    for v in range(n_ops):
        if group_of[v] == v and device_of_group[v] >= 0:
            resident[device_of_group[v]] += group_bytes[v]
    op_at = np.argsort(-rank, kind="mergesort")
    position = np.empty(n_ops, dtype=np.int64)
    position[op_at] = np.arange(n_ops)
    slower_s = np.empty((n_ops, n_devices))
    for v in range(n_ops):
        best = time_s[v].min()
        for d in range(n_devices):
            slower_s[v, d] = time_s[v, d] - best

    # Heaps hold positions by rank, so that equal keys are settled by rank.
    waiting, waiting_key = np.empty((n_devices, n_ops), dtype=np.int32), np.empty((n_devices, n_ops))
    startable, startable_key = np.empty((n_devices, n_ops), dtype=np.int32), np.empty((n_devices, n_ops))
    parked = np.empty((n_devices, n_ops), dtype=np.int32)
    n_waiting, n_startable = np.zeros(n_devices, dtype=np.int64), np.zeros(n_devices, dtype=np.int64)
    n_parked, has_freed = np.zeros(n_devices, dtype=np.int64), np.zeros(n_devices, dtype=np.bool_)
    awaited = np.full(n_devices, -1, dtype=np.int64)
    fresh = [v for v in range(n_ops) if pending[v] == 0]
    ready = [position[v] for v in fresh]  # all that are ready, for the case that memory lets none start
    heapq.heapify(ready)
    finish_s[:] = -1.0
    left = n_ops

    while left > 0:
        for u in fresh:
            g = group_of[u]
            for d in range(n_devices):
                if group_time_s[g, d] < np.inf and (device_of_group[g] < 0 or device_of_group[g] == d):
                    there_s = _inputs_there(
                        u, d, False, input_ptr, input_tensor, tensor_producer, device, finish_s, copy_s, direct,
                        to_host, from_host, link_busy, send_channel, receive_channel, arrival_s, in_host_s, free_s,
                        undo_channel, undo_s,
                    )  # fmt: skip
                    _push(waiting, waiting_key, d, n_waiting[d], position[u], there_s + slower_s[u, d])
                    n_waiting[d] += 1
        fresh.clear()

        chosen, chosen_device, chosen_key, chosen_start_s = -1, -1, np.inf, 0.0
        for d in range(n_devices):
            if has_freed[d]:
                has_freed[d] = False
                for i in range(n_parked[d]):
                    _push(waiting, waiting_key, d, n_waiting[d], parked[d, i], 0.0)
                    n_waiting[d] += 1
                n_parked[d] = 0
            # The device's best op: bring tops up to date until the better one of both heaps is.
            best, best_key, best_there_s, refreshed = -1, np.inf, 0.0, 0
            seen, seen_key, seen_there_s = -1, np.inf, 0.0
            while n_waiting[d] + n_startable[d] > 0:
                wait_key = waiting_key[d, 0] if n_waiting[d] > 0 else np.inf
                start_key = device_free_s[d] + startable_key[d, 0] if n_startable[d] > 0 else np.inf
                from_startable = start_key < wait_key or (start_key == wait_key and startable[d, 0] < waiting[d, 0])
                u = op_at[startable[d, 0] if from_startable else waiting[d, 0]]
                g = group_of[u]
                gone = finish_s[u] >= 0.0 or (device_of_group[g] >= 0 and device_of_group[g] != d)
                parks = False
                if not gone:
                    needed = 0.0
                    for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
                        needed += live_bytes[t]
                    for i in range(input_ptr[u], input_ptr[u + 1]):
                        t = input_tensor[i]
                        if device[tensor_producer[t]] != d and arrival_s[t, d] < 0.0:
                            needed += live_bytes[t]
                    room = limit_bytes[d] - resident[d] - (group_bytes[g] if device_of_group[g] < 0 else 0.0)
                    gone = room < peak[d]
                    parks = not gone and room < live[d] + needed
                if gone or parks:
                    if from_startable:
                        _drop_top(startable, startable_key, d, n_startable[d])
                        n_startable[d] -= 1
                    else:
                        _drop_top(waiting, waiting_key, d, n_waiting[d])
                        n_waiting[d] -= 1
                    if parks:
                        parked[d, n_parked[d]] = position[u]
                        n_parked[d] += 1
                    continue
                there_s = _inputs_there(
                    u, d, False, input_ptr, input_tensor, tensor_producer, device, finish_s, copy_s, direct,
                    to_host, from_host, link_busy, send_channel, receive_channel, arrival_s, in_host_s, free_s,
                    undo_channel, undo_s,
                )  # fmt: skip
                key = max(there_s, device_free_s[d]) + slower_s[u, d]
                if from_startable:
                    if there_s <= device_free_s[d]:
                        best, best_key, best_there_s = u, key, there_s
                        break
                    _drop_top(startable, startable_key, d, n_startable[d])
                    n_startable[d] -= 1
                    _push(waiting, waiting_key, d, n_waiting[d], position[u], key)
                    n_waiting[d] += 1
                elif there_s <= device_free_s[d]:
                    _drop_top(waiting, waiting_key, d, n_waiting[d])
                    n_waiting[d] -= 1
                    _push(startable, startable_key, d, n_startable[d], position[u], slower_s[u, d])
                    n_startable[d] += 1
                    continue
                elif key <= wait_key:
                    best, best_key, best_there_s = u, key, there_s
                    break
                else:
                    _settle_top(waiting, waiting_key, d, n_waiting[d], position[u], key)
                if key < seen_key:
                    seen, seen_key, seen_there_s = u, key, there_s
                refreshed += 1
                if refreshed == MOST_REFRESHED:
                    best, best_key, best_there_s = seen, seen_key, seen_there_s
                    break

            child = awaited[d]
            if child >= 0 and best >= 0 and best != child and pending[child] == 0 and finish_s[child] < 0.0:
                g = group_of[child]
                child_there_s, elsewhere_s, latest_s = np.inf, np.inf, 0.0
                for other in range(n_devices):
                    if group_time_s[g, other] < np.inf and (device_of_group[g] < 0 or device_of_group[g] == other):
                        there_s = _inputs_there(
                            child, other, False, input_ptr, input_tensor, tensor_producer, device, finish_s, copy_s,
                            direct, to_host, from_host, link_busy, send_channel, receive_channel, arrival_s, in_host_s,
                            free_s, undo_channel, undo_s,
                        )  # fmt: skip
                        key = max(there_s, device_free_s[other]) + slower_s[child, other]
                        if other == d:
                            child_there_s, child_key = there_s, key
                        else:
                            elsewhere_s = min(elsewhere_s, key)
                room = limit_bytes[d] - resident[d] - (group_bytes[g] if device_of_group[g] < 0 else 0.0)
                if child_there_s < np.inf and child_key <= elsewhere_s and room >= peak[d]:
                    for other in range(n_devices):
                        if time_s[best, other] < np.inf:
                            latest_s = max(latest_s, _inputs_there(
                                best, other, False, input_ptr, input_tensor, tensor_producer, device, finish_s, copy_s,
                                direct, to_host, from_host, link_busy, send_channel, receive_channel, arrival_s,
                                in_host_s, free_s, undo_channel, undo_s,
                            ))  # fmt: skip
                    if latest_s > device_free_s[d]:  # not urgent
                        best, best_key, best_there_s = child, child_key, child_there_s
            if best >= 0 and (best_key < chosen_key or (best_key == chosen_key and position[best] < position[chosen])):
                chosen, chosen_device, chosen_key = best, d, best_key
                chosen_start_s = max(best_there_s, device_free_s[d])

        u, d = chosen, chosen_device
        if u < 0:  # nothing has room anywhere: the first in rank goes where least is missing
            while finish_s[op_at[ready[0]]] >= 0.0:
                heapq.heappop(ready)
            u = op_at[heapq.heappop(ready)]
            misfit[group_of[u]] = True
            least_missing = np.inf
            for other in range(n_devices):
                g = group_of[u]
                if group_time_s[g, other] < np.inf and (device_of_group[g] < 0 or device_of_group[g] == other):
                    missing = resident[other] + max(peak[other], live[other]) - limit_bytes[other]
                    if missing < least_missing or d < 0:
                        d, least_missing = other, missing
        g = group_of[u]
        made = 0.0
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            made += live_bytes[t]
        for i in range(input_ptr[u], input_ptr[u + 1]):
            t = input_tensor[i]
            if device[tensor_producer[t]] != d and arrival_s[t, d] < 0.0:
                made += live_bytes[t]
        there_s = _inputs_there(
            u, d, True, input_ptr, input_tensor, tensor_producer, device, finish_s, copy_s, direct, to_host, from_host,
            link_busy, send_channel, receive_channel, arrival_s, in_host_s, free_s, undo_channel, undo_s,
        )  # fmt: skip
        device[u], start_s[u] = d, max(there_s, device_free_s[d])
        finish_s[u] = start_s[u] + time_s[u, d]
        device_free_s[d] = finish_s[u]
        awaited[d] = favourite[u]
        left -= 1
        if device_of_group[g] < 0:
            device_of_group[g] = d
            resident[d] += group_bytes[g]
        live[d] += made
        peak[d] = max(peak[d], live[d])
        for i in range(input_ptr[u], input_ptr[u + 1]):
            t = input_tensor[i]
            unread[t] -= 1
            if unread[t] == 0 and live_bytes[t] > 0.0:
                for other in range(n_devices):
                    if other == device[tensor_producer[t]] or arrival_s[t, other] >= 0.0:
                        live[other] -= live_bytes[t]
                        has_freed[other] = True
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
                v = consumer_op[e]
                pending[v] -= 1
                if pending[v] == 0:
                    fresh.append(v)
                    heapq.heappush(ready, position[v])
