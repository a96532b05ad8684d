"""Always take the op and the device that can start first (ETF), with favourite children if there are any (SCT).

The key of an op on a device is its start there plus what its group takes longer there than on its best device; on equal
devices that is the start. Channels are queues as in the evaluator, but a copy is booked when its reader is placed, not
when its producer ends: where channels queue, the evaluator's order of copies, and so its times, can differ.

Each device has two heaps of ready ops: *waiting* by key, for ops whose inputs come after the device is free, and
*startable* by (slowness, rank), for the others; so nothing has to be moved when the device's clock goes on. Channels
make keys grow: an entry is brought up to date when it comes to the top, at most ``MOST_REFRESHED`` per device and
decision; then the best of those is taken.

An op that has no room on a device just now is parked until a tensor is freed there.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numba import njit

from placewright.placers.overlap.memory_ledger import (
    NOWHERE,
    bytes_missing,
    free_inputs,
    may_be_on,
    new_room,
    take_room,
)
from placewright.problems import Arrays

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
def _inputs_there(u: int, d: int, keep: bool, made: Any, links: Any, state: Any) -> float:
    """When all inputs of ``u`` are on ``d``; ``keep`` books the copies, otherwise the channels are put back."""
    input_ptr, input_tensor, tensor_producer, device, finish_s = made
    copy_s, direct, to_host, from_host, link_busy, send_channel, receive_channel = links
    arrival_s, in_host_s, free_s, undo_channel, undo_s = state
    latest = 0.0
    n_undo = 0
    for i in range(input_ptr[u], input_ptr[u + 1]):
        t = input_tensor[i]
        p = tensor_producer[t]
        s = device[p]
        if s == d:
            there_s = finish_s[p]
        elif arrival_s[t, d] != NOWHERE:
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
                if in_host_s[t] != NOWHERE:
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
def _child_waited_for(
    child: int, rival: int, d: int, slower_s: Any, free_s: Any, room: Any, made: Any, links: Any, state: Any
) -> float:
    """Start of a favourite for which device ``d`` is kept free, or infinity if ``rival`` may go first.

    The device is awake if the child can start nowhere earlier. A rival is urgent if it could start at once on every
    device.
    """
    here_s, elsewhere_s = np.inf, np.inf
    for other in range(free_s.shape[0]):
        if may_be_on(room, child, other):
            there_s = max(_inputs_there(child, other, False, made, links, state), free_s[other])
            there_s += slower_s[child, other]
            if other == d:
                here_s = there_s
            else:
                elsewhere_s = min(elsewhere_s, there_s)
    if here_s == np.inf or here_s > elsewhere_s or bytes_missing(room, child, d, made[3], state[0])[1] > 0.0:
        return np.inf
    for other in range(free_s.shape[0]):
        if may_be_on(room, rival, other) and _inputs_there(rival, other, False, made, links, state) > free_s[d]:
            return here_s
    return np.inf


@njit(cache=True, nogil=True)
def schedule_by_start(
    a: Arrays, time_s: Any, group_time_s: Any, group_bytes: Any, rank: Any, favourite: Any, device_of_group: Any,
    limit_bytes: Any, device: Any, start_s: Any, finish_s: Any, misfit: Any,
) -> None:  # fmt: skip
    """Write device, start and finish of every op.

    Equal keys go by greatest ``rank``. ``favourite`` [ops] is the consumer that should follow an op on its device (-1:
    none). A device whose last op has a favourite that is ready and can start nowhere earlier is *awake*: it takes
    nothing but that favourite, unless its own first choice could start at once on every device. ``device_of_group``,
    ``limit_bytes`` and ``misfit`` as in ``schedule_by_rank``.
    """
    n_ops, n_devices = time_s.shape
    n_tensors = a.tensor_producer.shape[0]
    free_s = np.zeros(n_devices)
    pending = a.input_ptr[1:] - a.input_ptr[:-1]
    arrival_s = np.full((n_tensors, n_devices), NOWHERE)
    made = a.input_ptr, a.input_tensor, a.tensor_producer, device, finish_s
    links = a.copy_s, a.direct, a.to_host, a.from_host, a.link_busy, a.send_channel, a.receive_channel
    state = (
        arrival_s, np.full(n_tensors, NOWHERE), np.zeros(2 * n_devices),
        np.empty(3 * pending.max(), dtype=np.int64), np.empty(3 * pending.max()),
    )  # fmt: skip
    room = new_room(a, group_time_s, group_bytes, device_of_group, limit_bytes)
    op_at = np.argsort(-rank, kind="mergesort")
    position = np.empty(n_ops, dtype=np.int64)
    position[op_at] = np.arange(n_ops)
    # What a group loses on a device, as long as it is open; members are chained to forget it when it is decided.
    slower_s = np.zeros((n_ops, n_devices))
    next_member, last_member = np.full(n_ops, -1, dtype=np.int32), np.arange(n_ops)
    for v in range(n_ops):
        g = a.colocation_first[v]
        if device_of_group[g] < 0:
            slower_s[v] = group_time_s[g] - min(group_time_s[g])
        if g != v:
            next_member[last_member[g]] = v
            last_member[g] = v

    # Heaps hold positions by rank, so that equal keys are settled by rank.
    waiting, waiting_key = np.empty((n_devices, n_ops), dtype=np.int32), np.empty((n_devices, n_ops))
    startable, startable_key = np.empty((n_devices, n_ops), dtype=np.int32), np.empty((n_devices, n_ops))
    parked = np.empty((n_devices, n_ops), dtype=np.int32)
    n_waiting, n_startable = np.zeros(n_devices, dtype=np.int64), np.zeros(n_devices, dtype=np.int64)
    n_parked = np.zeros(n_devices, dtype=np.int64)
    awaited = np.full(n_devices, -1, dtype=np.int64)
    is_placed = np.zeros(n_ops, dtype=np.bool_)
    fresh = [v for v in range(n_ops) if pending[v] == 0]
    ready = [position[v] for v in fresh]  # all that are ready, for the case that memory lets none start
    heapq.heapify(ready)

    for _ in range(n_ops):
        for u in fresh:
            for d in range(n_devices):
                if may_be_on(room, u, d):
                    key = _inputs_there(u, d, False, made, links, state) + slower_s[u, d]
                    _push(waiting, waiting_key, d, n_waiting[d], position[u], key)
                    n_waiting[d] += 1
        fresh.clear()

        chosen, chosen_device, chosen_key = -1, -1, np.inf
        for d in range(n_devices):
            if room.freed[d]:
                room.freed[d] = False
                for i in range(n_parked[d]):
                    _push(waiting, waiting_key, d, n_waiting[d], parked[d, i], 0.0)
                    n_waiting[d] += 1
                n_parked[d] = 0
            # The device's best op: bring tops up to date until the better one of both heaps is.
            best, best_key, seen, seen_key, refreshed = -1, np.inf, -1, np.inf, 0
            while n_waiting[d] + n_startable[d] > 0:
                wait_key = waiting_key[d, 0] if n_waiting[d] > 0 else np.inf
                start_key = free_s[d] + startable_key[d, 0] if n_startable[d] > 0 else np.inf
                from_startable = start_key < wait_key or (start_key == wait_key and startable[d, 0] < waiting[d, 0])
                u = op_at[startable[d, 0] if from_startable else waiting[d, 0]]
                gone, parks = is_placed[u] or not may_be_on(room, u, d), False
                if not gone:
                    forever, now = bytes_missing(room, u, d, device, arrival_s)
                    gone, parks = forever > 0.0, now > 0.0
                there_s = 0.0 if gone or parks else _inputs_there(u, d, False, made, links, state)
                key = max(there_s, free_s[d]) + slower_s[u, d]
                starts_at_once = there_s <= free_s[d]
                if not (gone or parks) and (
                    starts_at_once if from_startable else not starts_at_once and key <= wait_key
                ):
                    best, best_key = u, key
                    break
                if from_startable:
                    _drop_top(startable, startable_key, d, n_startable[d])
                    n_startable[d] -= 1
                else:
                    _drop_top(waiting, waiting_key, d, n_waiting[d])
                    n_waiting[d] -= 1
                if gone:
                    continue
                if parks:
                    parked[d, n_parked[d]] = position[u]
                    n_parked[d] += 1
                    continue
                if starts_at_once:
                    _push(startable, startable_key, d, n_startable[d], position[u], slower_s[u, d])
                    n_startable[d] += 1
                    continue
                _push(waiting, waiting_key, d, n_waiting[d], position[u], key)
                n_waiting[d] += 1
                if key < seen_key:
                    seen, seen_key = u, key
                refreshed += 1
                if refreshed == MOST_REFRESHED:
                    best, best_key = seen, seen_key
                    break
            child = awaited[d]
            if child >= 0 and best >= 0 and best != child and pending[child] == 0 and not is_placed[child]:
                key = _child_waited_for(child, best, d, slower_s, free_s, room, made, links, state)
                if key < np.inf:
                    best, best_key = child, key
            if best >= 0 and (best_key < chosen_key or (best_key == chosen_key and position[best] < position[chosen])):
                chosen, chosen_device, chosen_key = best, d, best_key

        u, d = chosen, chosen_device
        if u < 0:  # nothing has room anywhere: the first in rank goes where least is missing
            while is_placed[op_at[ready[0]]]:
                heapq.heappop(ready)
            u = op_at[ready[0]]
            misfit[a.colocation_first[u]] = True
            least_missing = np.inf
            for other in range(n_devices):
                if may_be_on(room, u, other):
                    missing = bytes_missing(room, u, other, device, arrival_s)[1]
                    if missing < least_missing:
                        d, least_missing = other, missing
        member = a.colocation_first[u] if device_of_group[a.colocation_first[u]] < 0 else -1
        while member >= 0:
            slower_s[member] = 0.0
            member = next_member[member]
        take_room(room, u, d, device, arrival_s)
        start_s[u] = max(_inputs_there(u, d, True, made, links, state), free_s[d])
        device[u], finish_s[u], is_placed[u] = d, start_s[u] + time_s[u, d], True
        free_s[d] = finish_s[u]
        awaited[d] = favourite[u]
        free_inputs(room, u, device, arrival_s)
        for t in range(a.tensor_ptr[u], a.tensor_ptr[u + 1]):
            for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                v = a.consumer_op[e]
                pending[v] -= 1
                if pending[v] == 0:
                    fresh.append(v)
                    heapq.heappush(ready, position[v])
