"""Many placements at once: values, memory excess and validity, on all cores."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.evaluate.calls import find_pieces, run_groups
from placewright.evaluate.memory import live_intervals, may_exceed, memory_matters, peak_bytes, resident_bytes
from placewright.evaluate.overlap import empty_record, simulate, workspace
from placewright.evaluate.pipeline import loads, max_load, stages_form_chain
from placewright.evaluate.sequential import copies_total, find_segments, overhead_total
from placewright.forked import after_fork
from placewright.graph import BoolArray, FloatArray
from placewright.problems import Problem


class BatchResult(NamedTuple):
    """One entry per placement. ``value`` may be infinite (an op that cannot run, calls waiting in a circle);
    ``excess_bytes`` is the memory beyond the limits, summed over devices; ``is_valid`` is what ``check`` would find
    no fault with.
    """

    value: FloatArray
    excess_bytes: FloatArray
    is_valid: BoolArray


def evaluate_many(
    problem: Problem, device_of_op: NDArray[Any], priority: NDArray[Any] | None = None, threads: int | None = None
) -> BatchResult:
    """Evaluate a batch of placements [batch, ops] of device numbers in parallel.

    ``priority`` [batch, ops] or [ops] orders ready ops under ``overlap`` (least first); other models ignore it.
    """
    devices = np.ascontiguousarray(np.atleast_2d(device_of_op), dtype=np.int32)
    n = len(devices)
    if devices.shape[1] != problem.n_ops:
        raise ValueError(f"placements have {devices.shape[1]} ops, the problem has {problem.n_ops}")
    if devices.size and (devices.min() < 0 or devices.max() >= problem.n_devices):
        raise ValueError(f"device numbers must be 0 to {problem.n_devices - 1}")
    result = BatchResult(np.empty(n), np.zeros(n), np.empty(n, dtype=np.bool_))
    if priority is None or problem.execution != "overlap":
        priorities = np.zeros((1, 0))
    else:
        priorities = np.ascontiguousarray(np.atleast_2d(priority), dtype=np.float64)
    workers = max(1, min(threads or cpu_count(), n))
    # Slices are interleaved finely enough that an unlucky one does not leave the other cores idle.
    edges = np.linspace(0, n, min(n, 4 * workers) + 1 if workers > 1 else 2).astype(int)
    spans = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    if len(spans) == 1:
        _run_span(problem, devices, priorities, result, spans[0])
    else:
        list(_pool(workers).map(lambda span: _run_span(problem, devices, priorities, result, span), spans))
    return result


@lru_cache(maxsize=4)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="placewright-evaluate")


after_fork(_pool.cache_clear)  # a forked process has the pool without its threads


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_span(
    p: Problem, devices: NDArray[Any], priorities: NDArray[Any], out: BatchResult, span: tuple[int, int]
) -> None:
    max_segments = p.max_segments or 0
    if p.execution == "overlap":
        _overlap(p.arrays, devices, priorities, max_segments, *span, *out)
    elif p.execution == "sequential":
        _sequential(p.arrays, devices, max_segments, *span, *out)
    elif p.execution == "calls":
        _calls(p.arrays, devices, max_segments, *span, *out)
    else:
        overlapped, split = p.communication == "overlapped", p.schedule == "gpipe"
        _pipeline(p.arrays, devices, max_segments, p.contiguous, overlapped, split, *span, *out)


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
def _pipeline(
    a: Any, devices: Any, max_segments: int, contiguous: bool, overlapped: bool, split: bool, lo: int, hi: int,
    value: Any, excess: Any, valid: Any,
) -> None:  # fmt: skip
    n_ops, n_devices = devices.shape[1], a.device_kind.shape[0]
    compute_s, copies_s = np.empty((n_devices, 2)), np.empty((n_devices, 2))
    last, used = np.empty(n_devices, dtype=np.int64), np.empty(n_devices)
    segment = np.empty(n_ops, dtype=np.int32)
    for b in range(lo, hi):
        device = devices[b]
        loads(a, device, compute_s, copies_s, last)
        value[b] = max_load(compute_s, copies_s, overlapped, split)
        resident_bytes(a.memory_bytes, device, used)
        excess[b] = _excess(used, a.memory_limit_bytes)
        valid[b] = excess[b] == 0.0 and _is_allowed(a.allowed, a.colocation_first, device)
        if valid[b] and contiguous:
            valid[b] = stages_form_chain(a.order_source, a.order_target, device, n_devices)
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
