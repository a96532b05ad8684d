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
from placewright.problem import Arrays


@njit(cache=True, nogil=True)
def _push(heap: Any, keys: Any, base: int, size: int, op: int, key: float, ready_s: Any) -> None:
    """Add ``op`` to the binary heap at ``base``; order: key, then ready time, then op number."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        other_key = keys[base + parent]
        if other_key < key:
            break
        if other_key == key:
            other = heap[base + parent]
            if ready_s[other] < ready_s[op] or (ready_s[other] == ready_s[op] and other < op):
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
        child_key = keys[base + child]
        if child + 1 < n:
            right_key = keys[base + child + 1]
            if right_key < child_key:
                child, child_key = child + 1, right_key
            elif right_key == child_key:
                left, right = heap[base + child], heap[base + child + 1]
                if ready_s[right] < ready_s[left] or (ready_s[right] == ready_s[left] and right < left):
                    child += 1
        if key < child_key:
            break
        if key == child_key:
            other = heap[base + child]
            if ready_s[op] < ready_s[other] or (ready_s[op] == ready_s[other] and op < other):
                break
        heap[base + i] = heap[base + child]
        keys[base + i] = child_key
        i, child = child, 2 * child + 1
    heap[base + i] = op
    keys[base + i] = key
    return int(top)


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
    queue: IntArray  # [ops]: one heap of ready ops per device, side by side
    queue_key: FloatArray  # [ops]: priority where there are priorities, else ready time
    queue_base: IntArray  # [devices]
    queue_size: IntArray  # [devices]
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
        queue=np.empty(n_ops, dtype=np.int32),
        queue_key=np.empty(n_ops),
        queue_base=np.empty(n_devices, dtype=np.int32),
        queue_size=np.empty(n_devices, dtype=np.int32),
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
    """Allocate a record; with ``n_tensors = 0`` copies are not recorded."""
    return Record(
        start_s=np.empty(n_ops),
        end_s=np.empty(n_ops),
        copies=np.full((n_tensors, n_devices, 2), np.nan),
        up_legs=np.full((n_tensors, 2), np.nan),
    )


@njit(cache=True, nogil=True)
def simulate(a: Arrays, device: Any, priority: Any, w: Workspace, record: Record) -> float:
    """Run one placement; return its value, infinite where an op cannot run on its device.

    ``priority`` has one number per op or none at all. Copies are recorded if ``record`` has room for them.
    One long function on purpose: handing the array bundles to helpers costs more than the simulation itself.
    """
    tensor_ptr, consumer_ptr, consumer_op, input_ptr = a.tensor_ptr, a.consumer_ptr, a.consumer_op, a.input_ptr
    op_time_s, copy_s, device_kind = a.op_time_s, a.copy_s, a.device_kind
    direct, to_host, from_host, link_busy = a.direct, a.to_host, a.from_host, a.link_busy
    send_channel, receive_channel = a.send_channel, a.receive_channel
    ready_s, pending = w.ready_s, w.pending
    queue, queue_key, future, future_key = w.queue, w.queue_key, w.future, w.future_key
    queue_base, queue_size, running, next_s = w.queue_base, w.queue_size, w.running, w.next_s
    free_s, arrival_s, arrival_of = w.channel_free_s, w.arrival_s, w.arrival_of
    start_s, end_s, copies, up_legs = record.start_s, record.end_s, record.copies, record.up_legs
    keep = copies.shape[0] > 0
    has_priority = priority.shape[0] > 0
    n_ops, n_devices = device.shape[0], device_kind.shape[0]

    for d in range(n_devices):
        queue_size[d] = 0
        running[d] = -1
        next_s[d] = np.inf
        arrival_of[d] = -1
        free_s[d] = 0.0
        free_s[d + n_devices] = 0.0
    for v in range(n_ops):
        queue_size[device[v]] += 1
        pending[v] = input_ptr[v + 1] - input_ptr[v]
        ready_s[v] = 0.0
        if op_time_s[v, device_kind[device[v]]] == np.inf:
            return np.inf
    offset = 0
    for d in range(n_devices):
        queue_base[d] = offset
        offset += queue_size[d]
        queue_size[d] = 0
    for v in range(n_ops):
        if pending[v] == 0:
            d = device[v]
            _push(
                queue, queue_key, queue_base[d], queue_size[d], v, priority[v] if has_priority else ready_s[v], ready_s
            )
            queue_size[d] += 1
            next_s[d] = 0.0

    n_future = 0
    left = n_ops
    now = 0.0
    freed = 0
    while True:
        # The device whose op has just ended comes first: it nearly always is the only one to get new work, and
        # a branch that always goes the same way is a cheap one.
        for k in range(-1, n_devices):
            d = freed if k < 0 else k
            if (next_s[d] <= now) & (running[d] < 0):
                v = _pop(queue, queue_key, queue_base[d], queue_size[d], ready_s)
                queue_size[d] -= 1
                running[d] = v
                start_s[v] = now
                end_s[v] = next_s[d] = now + op_time_s[v, device_kind[d]]
        if left == 0:
            return now
        now = np.inf
        s = 0
        for d in range(n_devices):
            if next_s[d] < now:
                now = next_s[d]
                s = d
        if n_future > 0 and ready_s[future[0]] < now:
            now = ready_s[future[0]]
        n_now = 0
        for d in range(n_devices):
            n_now += next_s[d] == now
        if n_now != 1:
            s = _first_ending(now, next_s, running)
        elif running[s] < 0:
            s = -1
        while s >= 0:
            u = running[s]
            running[s] = -1
            freed = s
            next_s[s] = ready_s[queue[queue_base[s]]] if queue_size[s] > 0 else np.inf
            left -= 1
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
                        # Without priorities the queue is sorted by ready time, so it can hold ops not yet ready.
                        if not has_priority or ready_s[v] <= now:
                            _push(
                                queue,
                                queue_key,
                                queue_base[d],
                                queue_size[d],
                                v,
                                priority[v] if has_priority else ready_s[v],
                                ready_s,
                            )
                            queue_size[d] += 1
                            if running[d] < 0:
                                next_s[d] = min(next_s[d], ready_s[v])
                        else:
                            _push(future, future_key, 0, n_future, v, ready_s[v], ready_s)
                            n_future += 1
            s = _first_ending(now, next_s, running) if n_now > 1 else -1
        while n_future > 0 and ready_s[future[0]] <= now:
            v = _pop(future, future_key, 0, n_future, ready_s)
            n_future -= 1
            d = device[v]
            _push(
                queue, queue_key, queue_base[d], queue_size[d], v, priority[v] if has_priority else ready_s[v], ready_s
            )
            queue_size[d] += 1
            if running[d] < 0:
                next_s[d] = now
