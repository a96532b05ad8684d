"""Many placements at once: values, memory excess and validity, on all cores."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate.judging import judge_of
from placewright.forked import after_fork
from placewright.graph import BoolArray, FloatArray
from placewright.problems import Problem


class BatchResult(NamedTuple):
    """One entry per placement. ``value`` may be infinite (an op that cannot run, calls waiting for each other);
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
    judge_of(p).judge_many(devices, priorities, *span, out.value, out.excess_bytes, out.is_valid)
