"""``single``: everything on the one device that does best."""

from __future__ import annotations

import numpy as np

from placewright.budget import Budget
from placewright.placers.base import Found, Placer, best_single_device
from placewright.problems import Problem


class SinglePlacer(Placer):
    """The floor: what no other placer may fall below."""

    name = "single"
    summary = "everything on the best single device"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        best = best_single_device(problem)
        if best is None:
            return Found(None, evaluations=problem.n_devices, note="no single device may hold everything")
        return Found(np.full(problem.n_ops, best[0], dtype=np.int32), evaluations=problem.n_devices)
