"""``auto``: what people get when they name no placer. Runs several, keeps the best, stops when it is proven optimal."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.placement import OPTIMAL_GAP, Placement
from placewright.placers.base import Found, Placer
from placewright.placers.registry import get_placer, get_placer_class, is_installed
from placewright.problem import Problem

MEMBERS = ("single", "topo", "dpl", "dp", "random")  # cheapest first, those that cannot judge the problem left out


class AutoPlacer(Placer):
    """A portfolio, cheapest members first, sharing one incumbent and one bound."""

    name = "auto"
    summary = "a portfolio of placers within the budget (the default)"

    def warm_up(self, problem: Problem) -> None:
        for member in _members(problem):
            member.warm_up(problem)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        best: Placement | None = None
        bound, evaluations, ran, stop = 0.0, 0, [], "all members ran"
        for member in _members(problem):
            if best is not None and budget.expired():
                stop = "budget"
                break
            placement = member.place(problem, budget.part(budget.seconds), seed)
            ran.append(member.name)
            evaluations += placement.evaluations
            if placement.device_of_op is None and placement.status == "infeasible":
                return Found(None, evaluations=evaluations, infeasible=placement.faults, note=placement.note)
            bound = max(bound, placement.bound)
            if placement.is_valid and (best is None or placement.value < best.value):
                best = placement
            if best is not None:
                budget.report(best.value, bound, evaluations, note=member.name)
                if bound >= best.value * (1 - OPTIMAL_GAP):
                    stop = "proven optimal"
                    break
        note = f"ran {', '.join(ran)}"
        if best is None:
            return Found(None, evaluations=evaluations, note=f"{note}; none found a valid placement")
        note = f"{note}; best by {best.placer}; stopped: {stop}"
        return Found(best.device_of_op, bound, best.priority, best.replicas, evaluations, note=note)


def _members(problem: Problem) -> list[Placer]:
    exact = () if problem.contiguous else ("milp",)
    names = [n for n in (*MEMBERS, *exact) if is_installed(get_placer_class(n))]
    return [p for p in map(get_placer, names) if problem.execution in p.executions]
