"""``runtime-choice``: what a runtime with a list of devices does by itself, such as OpenVINO's HETERO."""

from __future__ import annotations

import numpy as np

from placewright.budget import Budget
from placewright.errors import InputError
from placewright.placers.base import Found, Placer, best_of
from placewright.placers.units import movable_units
from placewright.problems import Problem
from placewright.text import shown


class RuntimeChoicePlacer(Placer):
    """Every group on the first device of ``first`` that supports it; other devices follow in their own order.

    ``first`` names devices or kinds, comma separated, most wanted first (the list after ``HETERO:``). Without
    it, devices that are not the host come first. A full device is passed over.
    """

    name = "runtime-choice"
    summary = "each op on the first device of a list that supports it, as OpenVINO HETERO does"

    def __init__(self, first: str = "") -> None:
        self.first = [name for name in first.split(",") if name]

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        units = movable_units(problem)
        room = np.array([d.memory_bytes for d in problem.cluster.devices])
        order = self._order(problem)
        row = np.empty(len(units.memory_bytes), dtype=np.int32)
        for u, size in enumerate(units.memory_bytes):
            able = [d for d in order if units.allowed[u, d]]
            row[u] = next((d for d in able if room[d] >= size), able[0])
            room[row[u]] -= size
        return best_of(problem, row[None, units.unit_of_op], "the first devices of the list do not hold everything")

    def _order(self, problem: Problem) -> list[int]:
        devices = problem.cluster.devices
        for name in self.first:
            if not any(name in (d.name, d.kind) for d in devices):
                raise InputError(f"the cluster has no device or kind '{shown(name)}'")
        is_host = problem.cluster.is_host
        wanted = [d for name in self.first for d, device in enumerate(devices) if name in (device.name, device.kind)]
        others = sorted(range(len(devices)), key=lambda d: (bool(is_host[d]), d))
        return list(dict.fromkeys([*wanted, *others]))
