"""Execution model ``overlap``: event-driven, compute and copies side by side. Kernels, one placement after another.

Rules, in full:

1. A device runs one op at a time. When it is free it takes, among the ops whose inputs have all arrived, the one with
   the least (priority, ready time, op number).
2. When an op ends, each of its tensors is sent to every other device that holds a consumer, once per device, in the
   order of the first consumer there. Copies are booked at that moment, first come first served: a direct copy starts
   when the busy ends' channels are free; through host memory, the tensor goes up once over the sender's channel and
   then comes down over each receiver's channel. A copy that takes no time does not queue.
3. Ops ending at the same moment are handled in the order of their numbers, all of them before any device is given
   new work. Channels: one for sending and one for receiving per device, or one for both (half duplex).
4. The value is the end of the last op.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import FloatArray, IntArray
from placewright.problems import Arrays

_ONE = np.uint32(1)


# Ops that wait for a device are kept in two sorted runs and a heap per device. Most ops become ready later than those
# before them (copies arrive in order, time goes on), so nearly all can be appended to a run, and taking the first of a
# run costs no comparisons and no mispredicted branches. What would break the order of both runs goes to the heap; with
# priorities everything does. A run is sorted by (ready time, op number).


@njit(cache=True, nogil=True, inline="always")
def _take(run: Any, head: Any, tail: Any, first_s: Any, d: int, ready_s: Any) -> int:
    """Remove and return the first op of a run of device ``d``."""
    begin = head[d]
    op = run[begin]
    begin += _ONE
    head[d] = begin
    first_s[d] = ready_s[run[begin]] if begin < tail[d] else np.inf
    return op


@njit(cache=True, nogil=True)
def _push(heap: Any, keys: Any, base: int, size: int, op: int, key: float, ready_s: Any) -> None:
    """Add ``op`` to the binary heap at ``base``; order: key, then ready time, then op number."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        other_key = keys[base + parent]
        if other_key < key:
            break
        if other_key == key and _ready_before(heap[base + parent], op, ready_s):
            break
        heap[base + i] = heap[base + parent]
        keys[base + i] = other_key
        i = parent
    heap[base + i] = op
    keys[base + i] = key


@njit(cache=True, nogil=True)
def _pop(heap: Any, keys: Any, base: int, size: int, ready_s: Any) -> int:
    """Remove and return the first op of a heap of ``size`` entries (afterwards ``size - 1``)."""
    top = heap[base]
    n = size - 1
    op, key = heap[base + n], keys[base + n]
    i, child = 0, 1
    while child < n:
        if child + 1 < n:
            left_key, right_key = keys[base + child], keys[base + child + 1]
            if right_key < left_key:
                child += 1
            elif right_key == left_key:
                child += _ready_before(heap[base + child + 1], heap[base + child], ready_s)
        child_key = keys[base + child]
        if key < child_key or (key == child_key and _ready_before(op, heap[base + child], ready_s)):
            break
        heap[base + i] = heap[base + child]
        keys[base + i] = child_key
        i, child = child, 2 * child + 1
    heap[base + i] = op
    keys[base + i] = key
    return top


@njit(cache=True, nogil=True, inline="always")
def _ready_before(a: int, b: int, ready_s: Any) -> bool:
    return ready_s[a] < ready_s[b] or (ready_s[a] == ready_s[b] and a < b)


@njit(cache=True, nogil=True)
def _first_ending(now: float, next_s: Any, running: Any) -> int:
    """The device whose op ends now, the least op number if there are several, -1 if there is none."""
    s = -1
    for d in range(next_s.shape[0]):
        if next_s[d] == now and running[d] >= 0 and (s < 0 or running[d] < running[s]):
            s = d
    return s


class Workspace(NamedTuple):
    """Scratch arrays of one simulation, reused from placement to placement."""

    ready_s: FloatArray  # [ops]: when the last input known so far arrives
    pending: IntArray  # [ops]: inputs whose producer has not ended
    runs: IntArray  # [2, ops]: two sorted runs of waiting ops per device, devices side by side
    run_head: IntArray  # [2, devices]: position of a run's first op
    run_tail: IntArray  # [2, devices]: position after its last
    run_first_s: FloatArray  # [2, devices]: ready time of its first op, infinite if it is empty
    heap: IntArray  # [ops]: a heap of waiting ops per device, side by side
    heap_key: FloatArray  # [ops]: priority where there are priorities, else ready time
    heap_base: IntArray  # [devices]
    heap_size: IntArray  # [devices]
    future: IntArray  # [ops]: heap of ops whose last input is still on its way (used with priorities only)
    future_key: FloatArray  # [ops]: ready time
    running: IntArray  # [devices]: op number or -1
    next_s: FloatArray  # [devices]: end of the running op, else when the next one is ready (infinite = none known)
    channel_free_s: FloatArray  # [2 * devices]
    arrival_s: FloatArray  # [devices]: arrival of the tensor now being sent
    arrival_of: IntArray  # [devices]: which tensor ``arrival_s`` speaks of


class Record(NamedTuple):
    """What happened when. Entries of ``copies`` and ``up_legs`` without a copy are NaN."""

    start_s: FloatArray  # [ops]
    end_s: FloatArray  # [ops]
    copies: FloatArray  # [tensors, devices, 2]: start and end at the receiving device
    up_legs: FloatArray  # [tensors, 2]: start and end of the way up to host memory


@njit(cache=True, nogil=True)
def workspace(n_ops: int, n_devices: int) -> Workspace:
    """Allocate scratch arrays."""
    return Workspace(
        ready_s=np.empty(n_ops),
        pending=np.empty(n_ops, dtype=np.int32),
        runs=np.empty((2, n_ops), dtype=np.int32),
        run_head=np.empty((2, n_devices), dtype=np.int32),
        run_tail=np.empty((2, n_devices), dtype=np.int32),
        run_first_s=np.empty((2, n_devices)),
        heap=np.empty(n_ops, dtype=np.int32),
        heap_key=np.empty(n_ops),
        heap_base=np.empty(n_devices, dtype=np.int32),
        heap_size=np.empty(n_devices, dtype=np.int32),
        future=np.empty(n_ops, dtype=np.int32),
        future_key=np.empty(n_ops),
        running=np.empty(n_devices, dtype=np.int32),
        next_s=np.empty(n_devices),
        channel_free_s=np.empty(2 * n_devices),
        arrival_s=np.empty(n_devices),
        arrival_of=np.empty(n_devices, dtype=np.int32),
    )


@njit(cache=True, nogil=True)
def empty_record(n_ops: int, n_tensors: int, n_devices: int) -> Record:
    """Allocate a record; with ``n_ops = 0`` nothing will be recorded."""
    return Record(
        start_s=np.empty(n_ops),
        end_s=np.empty(n_ops),
        copies=np.full((n_tensors, n_devices, 2), np.nan),
        up_legs=np.full((n_tensors, 2), np.nan),
    )


@njit(cache=True, nogil=True)
def simulate(a: Arrays, placement: Any, priority: Any, w: Workspace, record: Record) -> float:
    """Run one placement; return its value, infinite where an op cannot run on its device.

    ``priority`` has one number per op or none at all. The schedule is recorded if ``record`` has room for it.
    One long function on purpose: handing the array bundles to helpers costs more than the simulation itself. Indices
    are read as unsigned numbers, which saves the test for negative ones at every access.
    """
    tensor_ptr, consumer_ptr = a.tensor_ptr.view(np.uint32), a.consumer_ptr.view(np.uint32)
    input_ptr = a.input_ptr
    consumer_op, device = a.consumer_op.view(np.uint32), placement.view(np.uint32)
    op_time_s, copy_s, device_kind = a.op_time_s, a.copy_s, a.device_kind.view(np.uint32)
    direct, to_host, from_host, link_busy = a.direct, a.to_host, a.from_host, a.link_busy
    send_channel, receive_channel = a.send_channel, a.receive_channel
    ready_s, pending, running, next_s = w.ready_s, w.pending, w.running, w.next_s
    run0, head0, tail0, first0_s = (
        w.runs[0].view(np.uint32), w.run_head[0].view(np.uint32), w.run_tail[0].view(np.uint32), w.run_first_s[0],
    )  # fmt: skip
    run1, head1, tail1, first1_s = (
        w.runs[1].view(np.uint32), w.run_head[1].view(np.uint32), w.run_tail[1].view(np.uint32), w.run_first_s[1],
    )  # fmt: skip
    heap, heap_key, heap_base, heap_size = w.heap.view(np.uint32), w.heap_key, w.heap_base, w.heap_size
    future, future_key = w.future.view(np.uint32), w.future_key
    free_s, arrival_s, arrival_of = w.channel_free_s, w.arrival_s, w.arrival_of
    start_s, end_s, copies, up_legs = record.start_s, record.end_s, record.copies, record.up_legs
    keep = start_s.shape[0] > 0
    has_priority = priority.shape[0] > 0
    n_ops, n_devices = device.shape[0], device_kind.shape[0]

    for d in range(n_devices):
        heap_size[d] = 0
        running[d] = -1
        next_s[d] = np.inf
        arrival_of[d] = -1
        free_s[d] = 0.0
        free_s[d + n_devices] = 0.0
    for v in range(n_ops):
        heap_size[device[v]] += 1
        pending[v] = input_ptr[v + 1] - input_ptr[v]
        ready_s[v] = 0.0
        if op_time_s[v, device_kind[device[v]]] == np.inf:
            return np.inf
    offset = 0
    for d in range(n_devices):
        heap_base[d] = head0[d] = tail0[d] = head1[d] = tail1[d] = offset
        first0_s[d] = first1_s[d] = np.inf
        offset += heap_size[d]
        heap_size[d] = 0
    for v in range(n_ops):
        if pending[v] == 0:
            d = device[v]
            next_s[d] = 0.0
            if has_priority:
                _push(heap, heap_key, heap_base[d], heap_size[d], v, priority[v], ready_s)
                heap_size[d] += 1
            else:
                run0[tail0[d]] = v
                tail0[d] += _ONE
                first0_s[d] = 0.0

    n_future = 0
    left = n_ops
    now = 0.0
    here = 0  # the device that something happens on now
    several = True  # it may not be the only one
    while True:
        # Give work to devices that are free. A branch that nearly always goes the same way is a cheap one.
        for k in range(-1, n_devices if several else 0):
            d = here if k < 0 else k
            if (next_s[d] <= now) & (running[d] < 0):
                from_heap = heap_size[d] > 0
                if from_heap and not has_priority:
                    top, top_s, first_s = heap[heap_base[d]], heap_key[heap_base[d]], min(first0_s[d], first1_s[d])
                    from_heap = top_s <= first_s
                    if top_s == first_s:
                        ahead = (first0_s[d] == top_s and run0[head0[d]] < top) or (
                            first1_s[d] == top_s and run1[head1[d]] < top
                        )
                        from_heap = not ahead
                if from_heap:
                    v = _pop(heap, heap_key, heap_base[d], heap_size[d], ready_s)
                    heap_size[d] -= 1
                elif first0_s[d] < first1_s[d] or (first0_s[d] == first1_s[d] and run0[head0[d]] < run1[head1[d]]):
                    v = _take(run0, head0, tail0, first0_s, d, ready_s)
                else:
                    v = _take(run1, head1, tail1, first1_s, d, ready_s)
                running[d] = v
                next_s[d] = now + op_time_s[v, device_kind[d]]
                if keep:
                    start_s[v], end_s[v] = now, next_s[d]
        if left == 0:
            return now

        now = np.inf
        here = 0
        for d in range(n_devices):
            if next_s[d] < now:
                now = next_s[d]
                here = d
        if n_future > 0 and ready_s[future[0]] < now:
            now = ready_s[future[0]]
        if not now < np.inf:  # nothing will ever happen: what is left cannot run
            return np.inf
        n_now = 0
        for d in range(n_devices):
            n_now += next_s[d] == now
        several = n_now != 1
        s = here if running[here] >= 0 else -1
        if several:
            s = _first_ending(now, next_s, running)

        while s >= 0:
            u = running[s]
            running[s] = -1
            left -= 1
            next_s[s] = min(first0_s[s], first1_s[s])
            if heap_size[s] > 0:
                next_s[s] = min(next_s[s], ready_s[heap[heap_base[s]]])
            for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
                in_host_s = -1.0
                arrival_of[s], arrival_s[s] = t, now
                for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
                    v = consumer_op[e]
                    d = device[v]
                    if arrival_of[d] != t:
                        link = direct[s, d]
                        begin = now
                        if link >= 0:
                            took = copy_s[t, link]
                            if took > 0.0:
                                if link_busy[link] & 1:
                                    begin = max(begin, free_s[send_channel[s]])
                                if link_busy[link] & 2:
                                    begin = max(begin, free_s[receive_channel[d]])
                                    free_s[receive_channel[d]] = begin + took
                                if link_busy[link] & 1:
                                    free_s[send_channel[s]] = begin + took
                        else:
                            if in_host_s < 0.0:
                                link = to_host[s]
                                took = copy_s[t, link] if link >= 0 else 0.0
                                if took > 0.0 and link_busy[link] & 1:
                                    begin = max(begin, free_s[send_channel[s]])
                                    free_s[send_channel[s]] = begin + took
                                in_host_s = begin + took
                                if keep and link >= 0:
                                    up_legs[t, 0], up_legs[t, 1] = begin, in_host_s
                            link = from_host[d]
                            begin = in_host_s
                            took = copy_s[t, link] if link >= 0 else 0.0
                            if took > 0.0 and link_busy[link] & 2:
                                begin = max(begin, free_s[receive_channel[d]])
                                free_s[receive_channel[d]] = begin + took
                        arrival_of[d] = t
                        arrival_s[d] = begin + took
                        if keep:
                            copies[t, d, 0], copies[t, d, 1] = begin, begin + took
                    ready_s[v] = max(ready_s[v], arrival_s[d])
                    pending[v] -= 1
                    if pending[v] == 0:
                        if has_priority and ready_s[v] > now:
                            _push(future, future_key, 0, n_future, v, ready_s[v], ready_s)
                            n_future += 1
                            continue
                        if has_priority:
                            _push(heap, heap_key, heap_base[d], heap_size[d], v, priority[v], ready_s)
                            heap_size[d] += 1
                        else:  # written out twice: as a function it costs a quarter of the speed
                            mine_s, end0, end1 = ready_s[v], tail0[d], tail1[d]
                            if end0 == head0[d]:
                                run0[end0] = v
                                tail0[d] = end0 + _ONE
                                first0_s[d] = mine_s
                            elif _ready_before(run0[end0 - _ONE], v, ready_s):
                                run0[end0] = v
                                tail0[d] = end0 + _ONE
                            elif end1 == head1[d]:
                                run1[end1] = v
                                tail1[d] = end1 + _ONE
                                first1_s[d] = mine_s
                            elif _ready_before(run1[end1 - _ONE], v, ready_s):
                                run1[end1] = v
                                tail1[d] = end1 + _ONE
                            else:
                                _push(heap, heap_key, heap_base[d], heap_size[d], v, mine_s, ready_s)
                                heap_size[d] += 1
                        if running[d] < 0:
                            next_s[d] = min(next_s[d], ready_s[v])
                            several = several or (d != s and ready_s[v] <= now)
            s = _first_ending(now, next_s, running) if n_now > 1 else -1
        while n_future > 0 and ready_s[future[0]] <= now:
            v = _pop(future, future_key, 0, n_future, ready_s)
            n_future -= 1
            d = device[v]
            _push(heap, heap_key, heap_base[d], heap_size[d], v, priority[v], ready_s)
            heap_size[d] += 1
            if running[d] < 0:
                next_s[d] = now
                several = True
