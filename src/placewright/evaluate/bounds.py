"""Lower bounds that hold for every placement of a problem, cheap enough to come with every answer.

* critical path: no schedule is shorter than the longest path with every op on its fastest allowed device (latency);
* largest group: ops that must share a device take at least their joint time on the best one;
* shared work: for any weights ``w_d >= 0`` that add up to 1 and any prices ``m_d >= 0`` of memory, the largest load
  is at least ``sum over groups of min_d (w_d time + m_d bytes) - sum_d m_d limit_d``. Weights and prices are improved
  by a short subgradient ascent; every step gives a valid bound, so stopping early is harmless. It covers work over
  devices, devices of unlike speed, and work that memory limits force onto slow devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import FloatArray, sums_by_index
from placewright.problems import Problem, once_per_problem


@once_per_problem
def lower_bound(problem: Problem) -> float:
    """Return the best of the bounds for the problem's execution model; infinite if some group has no device at all."""
    # A hair of slack: sums in another order than the evaluator's may differ in the last digits.
    return _best_bound(problem) * (1 - 1e-12)


def _best_bound(problem: Problem) -> float:
    groups = _groups(problem, np.ones(problem.n_ops, dtype=np.bool_))
    fastest = groups.time.min(axis=1)
    if np.isinf(fastest).any():
        return np.inf
    if problem.execution == "calls":
        return critical_path(problem)
    if problem.execution == "sequential":
        overhead = min(problem.cluster.kind_of(d).segment_overhead_s for d in problem.cluster.devices)
        return dual_bound(groups, shared=False) + overhead
    best = max(dual_bound(groups, shared=True), float(fastest.max()) / problem.max_replicas)
    if problem.execution == "overlap":
        return max(best, critical_path(problem))
    if problem.schedule == "gpipe":
        backward = problem.graph.is_backward
        best = max(best, sum(dual_bound(_groups(problem, part), shared=True) for part in (~backward, backward)))
    return best


def critical_path(problem: Problem) -> float:
    """Longest path with every op at its least time; copies are free on it."""
    g = problem.graph
    best = problem.op_device_time_s.min(axis=1).tolist()
    producers, ptr = g.tensor_producer[g.input_tensor].tolist(), g.input_ptr.tolist()
    finish: list[float] = []
    for v, took in enumerate(best):
        finish.append(took + max((finish[u] for u in producers[ptr[v] : ptr[v + 1]]), default=0.0))
    return max(finish)


class _Groups(NamedTuple):
    """Groups of ops that share a device, against sorts of devices that are alike in time and memory limit."""

    time: FloatArray  # [groups, sorts]
    size: FloatArray  # [groups] bytes
    devices: FloatArray  # [sorts] how many
    limit: FloatArray  # [sorts] bytes per device


def dual_bound(groups: _Groups, *, shared: bool) -> float:
    """Bound on the largest load of any device (``shared``), or on the sum of all times; memory limits are priced in.

    Equal devices get equal weights: the dual is concave, so averaging over them never makes it worse.
    """
    time, size, count = groups.time, groups.size, groups.devices
    finite = np.isfinite(groups.limit)
    room = np.where(finite, groups.limit * count, 0.0)
    rows, n_sorts = np.arange(len(time)), len(count)
    weights = count / count.sum() if shared else count
    prices = np.zeros(n_sorts)
    price_scale = float(time.min(axis=1).sum()) / max(float(size.sum()), 1.0)
    best = 0.0
    for step in range(1, _steps(time.size) + 1):
        with np.errstate(invalid="ignore"):  # infinite time at weight zero is still forbidden
            cost = np.where(np.isinf(time), np.inf, time * (weights / count)) + size[:, None] * prices
        choice = cost.argmin(axis=1)
        best = max(best, float(cost[rows, choice].sum() - prices @ room))
        rate = 0.5 / step**0.5
        spread = np.bincount(choice, time[rows, choice], n_sorts) / count
        spread -= spread @ count / count.sum()
        over = np.where(finite, np.bincount(choice, size, n_sorts) - room, 0.0)
        if shared and np.abs(spread).max() > 0:
            weights = _on_simplex(weights + rate / n_sorts * spread / np.abs(spread).max())
        if np.abs(over).max() > 0:
            prices = np.maximum(0.0, prices + rate * price_scale * over / np.abs(over).max())
    return best


def _steps(size: int) -> int:
    return int(np.clip(4_000_000 // max(size, 1), 30, 200))


def _groups(problem: Problem, part: NDArray[np.bool_]) -> _Groups:
    """The problem's groups, with the times of the ops within ``part`` only."""
    groups, index = np.unique(problem.group_of_op, return_inverse=True)
    sorts, sort_of_device = _device_sorts(problem)
    op_time = problem.op_device_time_s[:, sorts]
    time = np.zeros((len(groups), len(sorts)))
    np.add.at(time, index, np.where(part[:, None] | np.isinf(op_time), op_time, 0.0))
    limits = np.array([problem.cluster.devices[d].memory_bytes for d in sorts])
    count = np.bincount(sort_of_device).astype(np.float64)
    return _Groups(time, sums_by_index(index, problem.memory_bytes, len(groups)), count, limits)


def _device_sorts(problem: Problem) -> tuple[list[int], list[int]]:
    """One device of each sort, and the sort of each device; the order of sorts does not depend on that of devices."""
    keys = [(d.kind, d.memory_bytes, problem.allowed[:, i].tobytes()) for i, d in enumerate(problem.cluster.devices)]
    sorts = sorted(set(keys))
    return [keys.index(s) for s in sorts], [sorts.index(k) for k in keys]


def _on_simplex(weights: FloatArray) -> FloatArray:
    """Nearest point with entries >= 0 that add up to 1."""
    ordered = np.sort(weights)[::-1]
    slack = (np.cumsum(ordered) - 1) / np.arange(1, len(weights) + 1)
    keep = np.flatnonzero(ordered > slack)[-1]
    projected = np.maximum(weights - slack[keep], 0.0)
    return projected / projected.sum()
