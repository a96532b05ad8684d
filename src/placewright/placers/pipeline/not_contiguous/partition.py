"""``partition``: balanced hypergraph partitioning over the accelerators, the role that Scotch has in the literature."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.placers.base import Found, Placer, best_of
from placewright.placers.pipeline.not_contiguous.hypergraph import partition
from placewright.placers.pipeline.not_contiguous.view import assignment_view
from placewright.problems import Problem


class PartitionPlacer(Placer):
    """Balances time over the accelerators and cuts little communication; order and memory are not looked at.

    A baseline for ``contiguous=False``; its parts rarely form a chain.
    """

    name = "partition"
    summary = "hypergraph partition by mt-KaHyPar (baseline, order and memory ignored)"
    executions = ("pipeline",)
    requires = ("mtkahypar",)
    extra = "partition"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        view = assignment_view(problem)
        result = partition(view.units, problem.schedule, problem.communication, seed=seed)
        if result.device_of_unit is None:
            return Found(None, note=result.reason)
        device = view.to_ops(result.device_of_unit)
        return best_of(problem, device[None, :], "the partition breaks a limit, which the partitioner does not look at")
