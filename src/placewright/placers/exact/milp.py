"""``milp``: pipelines with and without contiguity, by search above and proofs below until they meet."""

from __future__ import annotations

import math

import numpy as np

from placewright.budget import Budget
from placewright.evaluate.checking import Fault
from placewright.placers.assignment.view import assignment_view
from placewright.placers.base import Found, Placer
from placewright.placers.exact.dp import DpPlacer
from placewright.placers.local_search import LocalSearchPlacer
from placewright.problem import Problem

GOAL_GAP = 0.01  # what bounding works towards first; it goes on to zero


class MilpPlacer(Placer):
    """Annealing and the best contiguous pipeline from above; combinatorial, linear and column-generation bounds and an
    exact programme from below. Anytime: the budget ends with the best placement and its proven gap.
    """

    name = "milp"
    summary = "exact programmes for pipelines, contiguous or not, with bound and gap at any time"
    executions = ("pipeline",)
    requires = ("highspy", "ortools")
    extra = "exact"

    def warm_up(self, problem: Problem) -> None:
        LocalSearchPlacer().warm_up(problem)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        from placewright.placers.assignment.anytime import solve

        chain = DpPlacer().search(problem, budget.part(budget.seconds / 2), seed)
        if problem.contiguous and (chain.bound is not None or chain.infeasible):
            return chain  # proven: nothing is left to do
        view = assignment_view(problem)
        result = solve(
            view.units,
            problem.schedule,
            problem.communication,
            contiguity="chain" if problem.contiguous else "none",
            seconds=budget.remaining_s(),
            goal_gap=GOAL_GAP,
            starts=[] if chain.device_of_op is None else [view.to_units(chain.device_of_op)],
            seed=seed,
            should_stop=budget.expired,
            report=lambda value, bound: budget.report(value, bound),
        )
        if result.device_of_unit is None:
            if result.status == "infeasible":
                text = "no packing exists: no assignment fits the devices' memories (proven by search)"
                return Found(None, infeasible=(Fault("no-packing", text),))
            return Found(None, note="no assignment within the limits was found in the time")
        bound = result.bound if math.isfinite(result.bound) else None
        note = f"{len(result.trace)} improvements of value or bound"
        return Found(np.asarray(view.to_ops(result.device_of_unit)), bound=bound, note=note)
