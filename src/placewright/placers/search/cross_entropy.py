"""``cross-entropy``: every group has a distribution over devices; the best samples teach it."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.placers.base import Found, Placer
from placewright.placers.search.anneal import START_SHARE, AnnealPlacer, starting_points
from placewright.placers.search.sampling import sample_and_anneal
from placewright.problems import Problem


class CrossEntropyPlacer(Placer):
    """Sample placements, keep the best tenth, move the distributions towards them; then anneal the best.

    Starts from constructive placements, which are also part of the first samples. Under ``overlap`` and ``calls`` it is
    the same search as ``anneal``. With ``budget.evaluations`` the result depends on the seed alone.
    """

    name = "cross-entropy"
    summary = "distributions over devices, taught by the best of their samples"
    executions = ("overlap", "sequential", "calls")

    def warm_up(self, problem: Problem) -> None:
        AnnealPlacer().warm_up(problem)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        if problem.execution != "sequential":
            return AnnealPlacer().search(problem, budget, seed)  # which samples where that helps
        starts = starting_points(problem, budget.part(START_SHARE * budget.remaining_s()), seed)
        return sample_and_anneal(problem, starts, budget, seed)
