"""``heft``: ops in the order of their upward rank, each into the gap where it ends first (Topcuoglu et al. 2002)."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.placers.base import Found, Placer
from placewright.placers.overlap.attempts import search_with
from placewright.placers.overlap.list_costs import list_costs
from placewright.placers.overlap.schedulers import rank_scheduler
from placewright.problems import Problem


class HeftPlacer(Placer):
    """Heterogeneous earliest finish time, with insertion into gaps and with queues on the links."""

    name = "heft"
    summary = "list scheduling by upward rank, earliest finish, insertion into gaps"
    executions = ("overlap",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        return search_with(problem, budget, rank_scheduler(problem, list_costs(problem).upward_s))
