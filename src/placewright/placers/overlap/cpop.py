"""``cpop``: the critical path on one device, the rest by earliest finish (Topcuoglu et al. 2002)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.graph import FloatArray
from placewright.placers.base import Found, Placer
from placewright.placers.overlap.attempts import search_with
from placewright.placers.overlap.list_costs import downward_ranks, list_costs
from placewright.placers.overlap.schedulers import rank_scheduler
from placewright.problems import Problem


class CpopPlacer(Placer):
    """Ops by upward + downward rank; those of the critical path on the device where they take least time together."""

    name = "cpop"
    summary = "list scheduling with the critical path on one device"
    executions = ("overlap",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        costs = list_costs(problem)
        preferred = np.full(problem.n_ops, -1, dtype=np.int32)
        path = critical_path_ops(problem)
        preferred[path] = path_device(costs.time_s[path])
        return search_with(
            problem, budget, rank_scheduler(problem, costs.upward_s + downward_ranks(problem), preferred=preferred)
        )


def critical_path_ops(problem: Problem) -> NDArray[np.int64]:
    """The ops along the longest path through the graph, by mean times and copies."""
    costs, a = list_costs(problem), problem.arrays
    upward = costs.upward_s
    op = int(upward.argmax())
    path = [op]
    while True:
        tensors = range(a.tensor_ptr[op], a.tensor_ptr[op + 1])
        after = [
            (costs.mean_copy_s[t] + upward[v], -int(v))
            for t in tensors
            for v in a.consumer_op[a.consumer_ptr[t] : a.consumer_ptr[t + 1]]
        ]
        if not after:
            return np.array(path)
        op = -max(after)[1]
        path.append(op)


def path_device(time_s: FloatArray) -> int:
    """The device that supports most of the ops, among those the one where they take least time."""
    usable = np.isfinite(time_s)
    total = np.where(usable, time_s, 0.0).sum(axis=0)
    return int(np.lexsort((total, -usable.sum(axis=0)))[0])
