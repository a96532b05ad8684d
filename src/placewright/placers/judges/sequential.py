"""Execution model ``sequential``: segments run one after another, nothing overlaps.

The value is the time of all ops, plus every copy (once per destination device; through host memory once up and once
down per destination), plus each segment's overhead. Segments are found greedily: run everything that can run on the
current device, then go on with the device that has most ops ready (least number among equals); of all devices to
start with, the one that gives the fewest segments is taken. With two devices no other order has fewer segments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.problems import Arrays


@njit(cache=True, nogil=True)
def copies_total(a: Arrays, device: Any, last: Any, per_receiver: Any) -> float:
    """Seconds of all copies; ``per_receiver`` [devices] gets each copy at its receiver, legs to host at the sender."""
    total = 0.0
    per_receiver[:] = 0.0
    last[:] = -1
    for t in range(a.tensor_producer.shape[0]):
        s = device[a.tensor_producer[t]]
        in_host = False
        last[s] = t
        for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
            d = device[a.consumer_op[e]]
            if last[d] == t:
                continue
            last[d] = t
            took = 0.0
            if a.direct[s, d] >= 0:
                took = a.copy_s[t, a.direct[s, d]]
            else:
                if not in_host and a.to_host[s] >= 0:
                    total += a.copy_s[t, a.to_host[s]]
                    per_receiver[s] += a.copy_s[t, a.to_host[s]]
                in_host = True
                if a.from_host[d] >= 0:
                    took = a.copy_s[t, a.from_host[d]]
            total += took
            per_receiver[d] += took
    return total


@njit(cache=True, nogil=True)
def _run_from(a: Arrays, device: Any, first: int, limit: int, segment: Any, pending: Any, stack: Any, work: Any) -> int:
    """Fill ``segment`` [ops] starting on device ``first``; return the number of segments, ``limit`` if not fewer."""
    head, ready = work[0], work[1]  # per device: top of a linked stack, and how many it holds
    head[:] = -1
    ready[:] = 0
    left = device.shape[0]
    for v in range(left):
        pending[v] = a.input_ptr[v + 1] - a.input_ptr[v]
        if pending[v] == 0:
            stack[v] = head[device[v]]
            head[device[v]] = v
            ready[device[v]] += 1
    current = first
    count = 0
    while left > 0 and count < limit:
        while head[current] >= 0:
            u = head[current]
            head[current] = stack[u]
            ready[current] -= 1
            segment[u] = count
            left -= 1
            for t in range(a.tensor_ptr[u], a.tensor_ptr[u + 1]):
                for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                    v = a.consumer_op[e]
                    pending[v] -= 1
                    if pending[v] == 0:
                        stack[v] = head[device[v]]
                        head[device[v]] = v
                        ready[device[v]] += 1
        count += 1
        current = int(np.argmax(ready))
    return count if left == 0 else limit


@njit(cache=True, nogil=True)
def find_segments(a: Arrays, device: Any, segment: Any) -> int:
    """Fill ``segment`` [ops] with segment numbers in running order; return how many there are."""
    n_ops, n_devices = device.shape[0], a.device_kind.shape[0]
    pending, stack = np.empty(n_ops, dtype=np.int32), np.empty(n_ops, dtype=np.int32)
    work = np.empty((2, n_devices), dtype=np.int32)
    trial = np.empty(n_ops, dtype=np.int32)
    has_source = np.zeros(n_devices, dtype=np.bool_)
    for v in range(n_ops):
        if a.input_ptr[v + 1] == a.input_ptr[v]:
            has_source[device[v]] = True
    best = n_ops + 1
    for first in range(n_devices):
        if has_source[first]:
            count = _run_from(a, device, first, best, trial, pending, stack, work)
            if count < best:
                best = count
                segment[:] = trial
    return best


@njit(cache=True, nogil=True)
def overhead_total(a: Arrays, device: Any, segment: Any, n_segments: int, per_device: Any) -> float:
    """Seconds of all segment overheads; ``per_device`` [devices] gets each device's share."""
    per_device[:] = 0.0
    seen = np.zeros(n_segments, dtype=np.bool_)
    for v in range(device.shape[0]):
        if not seen[segment[v]]:
            seen[segment[v]] = True
            per_device[device[v]] += a.segment_overhead_s[device[v]]
    return float(per_device.sum())
