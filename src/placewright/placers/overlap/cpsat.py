"""``cpsat``: placement and order under ``overlap``, exact for small problems, with an honest gap for larger ones."""

from __future__ import annotations

import math

from placewright.budget import Budget
from placewright.budget import Incumbent as Known
from placewright.evaluate import lower_bound
from placewright.evaluate.checking import Fault
from placewright.placers.base import Found, Placer
from placewright.placers.overlap.complete_search import search_completely
from placewright.placers.overlap.schedule_search import Incumbent, improve_parts, solve_whole
from placewright.placers.search.anneal import AnnealPlacer, starting_points
from placewright.placers.search.chains import Point, anneal_from
from placewright.placers.units import movable_units
from placewright.problems import Problem

MOST_UNITS_COMPLETE = 14  # beyond, complete search does not come to an end
MOST_OPS_WHOLE = 250  # beyond, only parts are solved
MOST_OPS_PARTS = 3000  # beyond, problems are annealed
ANNEAL_SHARE, COMPLETE_SHARE, WHOLE_SHARE = 0.2, 0.5, 0.6  # of the time
ANNEAL_EVALUATIONS = 20_000
COMPLETE_STEPS = 4_000_000


class CpsatPlacer(Placer):
    """Annealing first; then complete search of tiny problems (the best of all placements and all priorities).

    Otherwise a constraint model of the whole problem, whose bound holds for every placement and order, and large
    neighbourhoods around the incumbent; problems too large for that are annealed only. ``optimal`` is said only when
    the evaluator's value meets a bound.
    """

    name = "cpsat"
    summary = "placement and order together: complete search, constraint model, large neighbourhoods"
    executions = ("overlap",)
    requires = ("ortools",)
    extra = "exact"

    def warm_up(self, problem: Problem) -> None:
        AnnealPlacer().warm_up(problem)
        if len(movable_units(problem).allowed) <= MOST_UNITS_COMPLETE:
            search_completely(problem, Budget(0.0))

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        if problem.n_ops > MOST_OPS_PARTS:
            return AnnealPlacer().search(problem, budget, seed)
        starts = starting_points(problem, budget.part(ANNEAL_SHARE / 2 * budget.seconds), seed)
        most = budget.evaluations or ANNEAL_EVALUATIONS
        first = budget.apart(min(budget.remaining_s(), ANNEAL_SHARE * budget.seconds), most)
        annealed = anneal_from(problem, [point for point, _ in starts], first, seed)
        point, value = starts[0]
        if annealed.best is not None and annealed.value < value:
            point, value = annealed.best, annealed.value
        best = Known(point.device_of_op, value, point.priority)
        budget.knows(lambda: best)
        incumbent = Incumbent(point, value, lower_bound(problem))
        budget.report(value, incumbent.bound, annealed.evaluations)

        if len(movable_units(problem).allowed) <= MOST_UNITS_COMPLETE:
            found = search_completely(
                problem, budget.part(COMPLETE_SHARE * budget.remaining_s()), value, COMPLETE_STEPS
            )
            if found.device_of_op is not None:
                incumbent = Incumbent(Point(found.device_of_op, found.priority), found.value, incumbent.bound)
            if found.finished:
                if math.isinf(incumbent.value):
                    text = "no placement and no order keeps within the limits (proven by complete search)"
                    return Found(None, infeasible=(Fault("no-packing", text),))
                return _answer(incumbent._replace(bound=incumbent.value), annealed.evaluations + found.steps)
        if incumbent.value <= incumbent.bound * (1 + 1e-9):
            return _answer(incumbent, annealed.evaluations)
        if problem.n_ops <= MOST_OPS_WHOLE and not budget.expired():
            whole = budget if problem.n_ops <= MOST_OPS_WHOLE // 4 else budget.part(WHOLE_SHARE * budget.remaining_s())
            incumbent = solve_whole(problem, incumbent, whole, seed)
            if math.isinf(incumbent.bound):
                text = "no placement and no order keeps within the limits (proven by constraint solving)"
                return Found(None, infeasible=(Fault("no-packing", text),))
        if math.isinf(incumbent.value):
            return Found(None, evaluations=annealed.evaluations, note="no valid placement was met")
        if incumbent.value > incumbent.bound * (1 + 1e-9):
            incumbent = improve_parts(problem, incumbent, budget, seed)
        return _answer(incumbent, annealed.evaluations)


def _answer(incumbent: Incumbent, evaluations: int) -> Found:
    point = incumbent.point
    bound = min(incumbent.bound, incumbent.value)  # rounding of the last digit only
    return Found(point.device_of_op, bound=bound, priority=point.priority, evaluations=evaluations)
