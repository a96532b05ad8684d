"""``auto``: what people get when they name no placer. Runs several, keeps the best, stops when it is proven optimal."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.placement import Placement
from placewright.placers.base import Found, Placer
from placewright.placers.random import RandomPlacer
from placewright.placers.single import SinglePlacer
from placewright.placers.topo import TopoPlacer
from placewright.problem import Problem

MEMBERS: tuple[type[Placer], ...] = (SinglePlacer, TopoPlacer, RandomPlacer)


class AutoPlacer(Placer):
    """A portfolio, cheapest members first, sharing one incumbent and one bound."""

    name = "auto"
    summary = "a portfolio of placers within the budget (the default)"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        best: Placement | None = None
        bound, evaluations, ran = 0.0, 0, []
        for member in MEMBERS:
            if best is not None and budget.expired():
                break
            placement = member().place(problem, budget.part(budget.seconds), seed)
            ran.append(member.name)
            evaluations += placement.evaluations
            if placement.device_of_op is not None:
                bound = max(bound, placement.bound)
                if best is None or placement.value < best.value:
                    best = placement
                budget.report(best.value, bound, evaluations, note=member.name)
            if best is not None and best.status == "optimal":
                break
        note = f"ran {', '.join(ran)}"
        if best is None:
            return Found(None, evaluations=evaluations, note=f"{note}; none found a valid placement")
        stop = (
            "proven optimal"
            if best.status == "optimal"
            else "all members ran"
            if len(ran) == len(MEMBERS)
            else "budget"
        )
        note = f"{note}; best by {best.placer}; stopped: {stop}"
        return Found(best.device_of_op, bound, best.priority, best.replicas, evaluations, note=note)
