"""``peft``: HEFT that looks ahead by a table of optimistic costs (Arabnejad and Barbosa 2014)."""

from __future__ import annotations

import numpy as np

from placewright.budget import Budget
from placewright.graph import FloatArray
from placewright.placers.base import Found, Placer
from placewright.placers.overlap.attempts import search_with
from placewright.placers.overlap.list_costs import list_costs, optimistic_costs
from placewright.placers.overlap.schedulers import rank_scheduler, warm_up_with
from placewright.problems import Problem


class PeftPlacer(Placer):
    """Ready ops by their mean optimistic cost, each on the device with the least finish + optimistic cost."""

    name = "peft"
    summary = "list scheduling that looks ahead by optimistic costs"
    executions = ("overlap",)

    def warm_up(self, problem: Problem) -> None:
        warm_up_with(self)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        table = optimistic_table(problem)
        rank = np.where(np.isfinite(list_costs(problem).time_s), table, np.nan)
        return search_with(problem, budget, rank_scheduler(problem, np.nanmean(rank, axis=1), table))


def optimistic_table(problem: Problem) -> FloatArray:
    """[ops, devices]: time left after an op ends on a device, were every later op on its best device at once."""
    costs = list_costs(problem)
    a = costs.arrays
    table = np.empty(costs.time_s.shape)
    optimistic_costs(a.tensor_ptr, a.consumer_ptr, a.consumer_op, costs.time_s, costs.mean_copy_s, table)
    return table
