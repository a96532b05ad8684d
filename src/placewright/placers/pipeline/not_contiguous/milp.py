"""``milp``: pipelines with and without contiguity, by search above and proofs below until they meet."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placewright.budget import OPTIMAL_GAP, Budget
from placewright.evaluate import evaluate
from placewright.evaluate.checking import Fault
from placewright.placers.base import Found, Placer
from placewright.placers.pipeline.dp import DpPlacer
from placewright.placers.pipeline.dpl import DplPlacer
from placewright.placers.pipeline.not_contiguous.local_search import LocalSearchPlacer
from placewright.placers.pipeline.not_contiguous.view import assignment_view
from placewright.problems import Problem

GOAL_GAP = 0.01  # what bounding works towards first; it goes on to zero


class MilpPlacer(Placer):
    """Annealing and the best contiguous pipeline from above; combinatorial, linear and column-generation bounds and an
    exact programme from below. Anytime: the budget ends with the best placement and its proven gap.
    """

    name = "milp"
    summary = "exact programmes for pipelines, contiguous or not, with bound and gap at any time"
    executions = ("pipeline",)

    def warm_up(self, problem: Problem) -> None:
        LocalSearchPlacer().warm_up(problem)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        from placewright.placers.pipeline.not_contiguous.anytime import solve

        chain = DpPlacer().search(problem, budget.part(budget.seconds / 2), seed)
        view = assignment_view(problem)
        if problem.max_replicas > 1 or (problem.contiguous and _is_final(problem, chain, view.is_exact)):
            return chain
        starts = [chain.device_of_op, _incumbent(budget)]
        if problem.contiguous:
            starts.append(DplPlacer().search(problem, budget.part(budget.remaining_s() / 4), seed).device_of_op)
        known = [device for device in starts if device is not None]
        known = [d for i, d in enumerate(known) if not any(np.array_equal(d, other) for other in known[:i])]
        known.sort(key=lambda device: evaluate(problem, device).value)
        result = solve(
            view.units,
            problem.schedule,
            problem.communication,
            contiguity="chain" if problem.contiguous else "none",
            seconds=budget.remaining_s(),
            goal_gap=GOAL_GAP,
            starts=[view.to_units(found) for found in known],
            lower=chain.bound or 0.0,
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
        device = np.asarray(view.to_ops(result.device_of_unit))
        if not view.is_exact and chain.device_of_op is not None:
            device = min(device, chain.device_of_op, key=lambda found: evaluate(problem, found).value)
        return Found(device, bound=bound, note=note)


def has_programme(problem: Problem) -> bool:
    """Whether a problem is small enough for an exact programme beside the search."""
    from placewright.placers.pipeline.not_contiguous.anytime import solver_for
    from placewright.placers.pipeline.not_contiguous.exact_process import Contiguity

    contiguity: Contiguity = "chain" if problem.contiguous else "none"
    return solver_for(assignment_view(problem).units, contiguity) is not None


def _incumbent(budget: Budget) -> NDArray[np.int32] | None:
    return None if budget.incumbent is None else budget.incumbent.device_of_op


def _is_final(problem: Problem, chain: Found, is_exact: bool) -> bool:
    """Whether the contiguous search leaves nothing to do: its bound is met, or what it leaves open is in the links."""
    if chain.device_of_op is None or chain.bound is None:
        return bool(chain.infeasible)
    return not is_exact or chain.bound >= evaluate(problem, chain.device_of_op).value * (1 - OPTIMAL_GAP)
