"""``topo``.

Fill one device after another in topological order, so that memory (or work, if nothing has a size) is balanced.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.graph import FloatArray
from placewright.placers.base import Found, Placer, best_of
from placewright.placers.units import Units, movable_units
from placewright.problems import Problem


class TopoPlacer(Placer):
    """Memory-balanced topological fill over 1, 2, … all devices, fastest first; the best valid one is taken."""

    name = "topo"
    summary = "fill devices in topological order, memory balanced"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        units = movable_units(problem)
        order = _fastest_first(problem, units)
        weight = units.memory_bytes if units.memory_bytes.sum() > 0 else _least_time(units)
        tries = [fill(problem, units, order[:count], weight) for count in range(1, problem.n_devices + 1)]
        candidates = np.array([t[units.unit_of_op] for t in tries if t is not None], dtype=np.int32)
        if not len(candidates):
            return Found(None, note="the operators do not fit in topological order")
        return best_of(problem, candidates, "no topological fill is valid")


def fill(problem: Problem, units: Units, devices: list[int], weight: FloatArray) -> NDArray[np.int32] | None:
    """Device of each unit when ``devices`` are filled in turn up to an equal share of ``weight``; ``None`` if stuck.

    The share is the average plus the largest unit, never more than the device's memory.
    """
    limits = [problem.cluster.devices[d].memory_bytes for d in devices]
    share = weight.sum() / len(devices) + weight.max()
    placed = np.full(len(weight), -1, dtype=np.int32)
    used, filled, at = [0.0] * len(devices), [0.0] * len(devices), 0
    for u in range(len(weight)):
        while at + 1 < len(devices) and filled[at] > 0 and filled[at] + weight[u] > share:
            at += 1
        slots = [*range(at, len(devices)), *range(at)]
        fitting = (s for s in slots if units.allowed[u, devices[s]] and used[s] + units.memory_bytes[u] <= limits[s])
        slot = next(fitting, None)
        if slot is None:
            return None
        at = max(at, slot) if problem.needs_contiguous_stages else at
        placed[u] = devices[slot]
        used[slot] += units.memory_bytes[u]
        filled[slot] += weight[u]
    return placed


def _fastest_first(problem: Problem, units: Units) -> list[int]:
    total = np.where(units.allowed, units.time_s, 0.0).sum(axis=0)
    supported = units.allowed.sum(axis=0)
    return sorted(range(problem.n_devices), key=lambda d: (-supported[d], total[d], d))


def _least_time(units: Units) -> FloatArray:
    least = units.time_s.min(axis=1)
    return least if least.sum() > 0 else np.ones(len(least))
