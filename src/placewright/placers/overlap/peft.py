"""``peft``: HEFT that looks ahead by a table of optimistic costs (Arabnejad and Barbosa 2014)."""

from __future__ import annotations

import numpy as np

from placewright.budget import Budget
from placewright.placers.base import Found, Placer
from placewright.placers.overlap.attempts import search_with
from placewright.placers.overlap.list_costs import list_costs, optimistic_costs
from placewright.placers.overlap.schedulers import rank_scheduler
from placewright.problems import Problem


class PeftPlacer(Placer):
    """Ready ops by their mean optimistic cost, each on the device with the least finish + optimistic cost."""

    name = "peft"
    summary = "list scheduling that looks ahead by optimistic costs"
    executions = ("overlap",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        table = optimistic_costs(problem)
        rank = np.where(np.isfinite(list_costs(problem).time_s), table, np.nan)
        return search_with(problem, budget, rank_scheduler(problem, np.nanmean(rank, axis=1), table))
