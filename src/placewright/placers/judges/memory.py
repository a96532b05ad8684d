"""Memory of a placement: resident bytes everywhere, plus live activations where the model keeps time (``overlap``).

A tensor occupies its producer's device from the producer's start until its last consumer there, and its last copy out
of there, have ended; on another device from the start of its copy until its last consumer there has ended. A result
(no consumers) stays to the end of the run. Intervals are half-open: what is freed at a moment makes room at that
moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.placers.judges.overlap import Record
from placewright.problems import Arrays


@njit(cache=True, nogil=True)
def resident_bytes(memory_bytes: Any, device: Any, out: Any) -> None:
    """Sum the resident bytes per device into ``out``."""
    out[:] = 0.0
    for v in range(device.shape[0]):
        out[device[v]] += memory_bytes[v]


@njit(cache=True, nogil=True)
def memory_matters(a: Arrays) -> bool:
    """False if no placement at all could exceed a limit: everything together fits the smallest memory."""
    return bool(a.memory_bytes.sum() + a.live_bytes.sum() > a.memory_limit_bytes.min())


@njit(cache=True, nogil=True)
def may_exceed(a: Arrays, device: Any, resident: Any) -> bool:
    """False if no device could exceed its limit even if all its tensors were alive at once."""
    most = resident.copy()
    last = np.full(resident.shape[0], -1, dtype=np.int64)
    for t in range(a.tensor_producer.shape[0]):
        s = device[a.tensor_producer[t]]
        most[s] += a.live_bytes[t]
        last[s] = t
        for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
            d = device[a.consumer_op[e]]
            if last[d] != t:
                last[d] = t
                most[d] += a.live_bytes[t]
    for d in range(most.shape[0]):
        if most[d] > a.memory_limit_bytes[d]:
            return True
    return False


@njit(cache=True, nogil=True)
def live_intervals(a: Arrays, device: Any, record: Record, value_s: float, out: Any) -> int:
    """Write (device, start, end, bytes) rows into ``out``; return how many there are."""
    n = 0
    n_devices = a.device_kind.shape[0]
    until = np.empty(n_devices)
    for t in range(a.tensor_producer.shape[0]):
        if a.live_bytes[t] <= 0.0:
            continue
        u = a.tensor_producer[t]
        s = device[u]
        until[:] = -1.0
        until[s] = record.end_s[u]
        if a.consumer_ptr[t] == a.consumer_ptr[t + 1]:
            until[s] = value_s
        if not np.isnan(record.up_legs[t, 1]):
            until[s] = max(until[s], record.up_legs[t, 1])
        for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
            v = a.consumer_op[e]
            d = device[v]
            until[d] = max(until[d], record.end_s[v])
            if d != s and a.direct[s, d] >= 0:
                until[s] = max(until[s], record.copies[t, d, 1])
        for d in range(n_devices):
            if until[d] >= 0.0:
                out[n, 0] = d
                out[n, 1] = record.start_s[u] if d == s else record.copies[t, d, 0]
                out[n, 2] = until[d]
                out[n, 3] = a.live_bytes[t]
                n += 1
    return n


@njit(cache=True, nogil=True)
def peak_bytes(resident: Any, intervals: Any, n: int, out: Any) -> None:
    """Sweep the intervals; write the largest resident + live bytes of each device into ``out``."""
    time_s = np.empty(2 * n)
    for i in range(n):
        time_s[2 * i] = intervals[i, 1]
        time_s[2 * i + 1] = intervals[i, 2]
    order = np.argsort(time_s, kind="mergesort")
    now = resident.copy()
    out[:] = resident
    i = 0
    while i < 2 * n:
        j = i
        while j < 2 * n and time_s[order[j]] == time_s[order[i]]:
            row = order[j] >> 1
            sign = 1.0 if order[j] & 1 == 0 else -1.0
            now[int(intervals[row, 0])] += sign * intervals[row, 3]
            j += 1
        for d in range(out.shape[0]):
            out[d] = max(out[d], now[d])
        i = j
