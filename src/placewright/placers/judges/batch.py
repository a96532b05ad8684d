"""Many placements, one after another, for searches that are kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.placers.judges.calls import find_pieces, run_groups
from placewright.placers.judges.memory import live_intervals, may_exceed, memory_matters, peak_bytes, resident_bytes
from placewright.placers.judges.overlap import empty_record, simulate, workspace
from placewright.placers.judges.sequential import copies_total, find_segments, overhead_total


@njit(cache=True, nogil=True)
def _is_allowed(allowed: Any, colocation_first: Any, device: Any) -> bool:
    for v in range(device.shape[0]):
        if not allowed[v, device[v]] or device[v] != device[colocation_first[v]]:
            return False
    return True


@njit(cache=True, nogil=True)
def _rules_matter(allowed: Any, colocation_first: Any) -> bool:
    for v in range(colocation_first.shape[0]):
        if colocation_first[v] != v:
            return True
        for d in range(allowed.shape[1]):
            if not allowed[v, d]:
                return True
    return False


@njit(cache=True, nogil=True)
def _excess(used: Any, limit: Any) -> float:
    total = 0.0
    for d in range(used.shape[0]):
        if used[d] > limit[d]:
            total += used[d] - limit[d]
    return total


@njit(cache=True, nogil=True)
def _overlap(
    a: Any, devices: Any, priorities: Any, max_segments: int, lo: int, hi: int, value: Any, excess: Any, valid: Any
) -> None:
    n_ops, n_devices, n_tensors = devices.shape[1], a.device_kind.shape[0], a.tensor_producer.shape[0]
    w = workspace(n_ops, n_devices)
    nothing, full = empty_record(0, 0, n_devices), empty_record(0, 0, n_devices)
    intervals = np.empty((0, 4))
    used, segment = np.empty(n_devices), np.empty(n_ops, dtype=np.int32)
    # What holds for every placement is not asked of each one.
    rules_matter = _rules_matter(a.allowed, a.colocation_first)
    asks_memory = memory_matters(a)
    for b in range(lo, hi):
        device = devices[b]
        priority = priorities[b if priorities.shape[0] > 1 else 0]
        if asks_memory:
            resident_bytes(a.memory_bytes, device, used)
        if asks_memory and may_exceed(a, device, used):
            if intervals.shape[0] == 0:
                full = empty_record(n_ops, n_tensors, n_devices)
                intervals = np.empty((a.consumer_op.shape[0] + n_tensors, 4))
            full.copies[:] = np.nan
            full.up_legs[:] = np.nan
            value[b] = simulate(a, device, priority, w, full)
            if value[b] < np.inf:
                n = live_intervals(a, device, full, value[b], intervals)
                peak_bytes(used.copy(), intervals, n, used)
        else:
            value[b] = simulate(a, device, priority, w, nothing)
        excess[b] = _excess(used, a.memory_limit_bytes) if asks_memory else 0.0
        valid[b] = excess[b] == 0.0 and (not rules_matter or _is_allowed(a.allowed, a.colocation_first, device))
        if valid[b] and max_segments > 0:
            valid[b] = find_segments(a, device, segment) <= max_segments


@njit(cache=True, nogil=True)
def _sequential(a: Any, devices: Any, max_segments: int, lo: int, hi: int, value: Any, excess: Any, valid: Any) -> None:
    n_ops, n_devices = devices.shape[1], a.device_kind.shape[0]
    last, used, per_device = np.empty(n_devices, dtype=np.int64), np.empty(n_devices), np.empty(n_devices)
    segment = np.empty(n_ops, dtype=np.int32)
    with_overhead = a.segment_overhead_s.max() > 0.0
    for b in range(lo, hi):
        device = devices[b]
        total = copies_total(a, device, last, per_device)
        for v in range(n_ops):
            total += a.op_time_s[v, a.device_kind[device[v]]]
        count = 1
        if with_overhead or max_segments > 0:
            count = find_segments(a, device, segment)
            total += overhead_total(a, device, segment, count, per_device)
        value[b] = total
        resident_bytes(a.memory_bytes, device, used)
        excess[b] = _excess(used, a.memory_limit_bytes)
        valid[b] = excess[b] == 0.0 and _is_allowed(a.allowed, a.colocation_first, device)
        if max_segments > 0 and count > max_segments:
            valid[b] = False


@njit(cache=True, nogil=True)
def _calls(a: Any, devices: Any, max_segments: int, lo: int, hi: int, value: Any, excess: Any, valid: Any) -> None:
    n_ops, n_devices = devices.shape[1], a.device_kind.shape[0]
    group, used = np.empty(n_ops, dtype=np.int32), np.empty(n_devices)
    segment = np.empty(n_ops, dtype=np.int32)
    for b in range(lo, hi):
        device = devices[b]
        n = find_pieces(a, device, group)
        value[b] = run_groups(a, device, group, n, np.empty(n), np.empty(n), np.empty(n), np.empty(n))
        resident_bytes(a.memory_bytes, device, used)
        excess[b] = _excess(used, a.memory_limit_bytes)
        valid[b] = excess[b] == 0.0 and value[b] < np.inf and _is_allowed(a.allowed, a.colocation_first, device)
        if valid[b] and max_segments > 0:
            valid[b] = find_segments(a, device, segment) <= max_segments


@njit(cache=True, nogil=True)
def judge_latency(model: int, a: Any, devices: Any, priorities: Any, value: Any, excess: Any) -> None:
    """Value and memory excess of each placement, for kernels: ``model`` 0 is overlap, 1 sequential, 2 calls."""
    valid = np.empty(devices.shape[0], dtype=np.bool_)
    if model == 0:
        _overlap(a, devices, priorities, 0, 0, devices.shape[0], value, excess, valid)
    elif model == 1:
        _sequential(a, devices, 0, 0, devices.shape[0], value, excess, valid)
    else:
        _calls(a, devices, 0, 0, devices.shape[0], value, excess, valid)
