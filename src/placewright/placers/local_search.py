"""``local-search``: pipelines whose devices may work on several pieces of the graph, by annealing."""

from __future__ import annotations

from typing import Literal

import numpy as np

from placewright.budget import Budget
from placewright.evaluate.batch import cpu_count
from placewright.placers.assignment.search import local_search, published_descent
from placewright.placers.assignment.view import assignment_view
from placewright.placers.base import Found, Placer
from placewright.placers.exact.dp import DpPlacer
from placewright.problem import Problem

FIRST_SHARE = 0.2  # of the time, at most, for the contiguous start


class LocalSearchPlacer(Placer):
    """Annealing with incremental loads from the best contiguous pipeline, on all cores.

    ``method="published"`` is the baseline of the literature instead: steepest descent over accelerators from ten
    random starts, memory ignored. Ignores contiguity: ask for ``contiguous=False``. With ``budget.evaluations`` the
    result depends on the seed alone.
    """

    name = "local-search"
    summary = "non-contiguous pipelines by annealing with incremental loads"
    executions = ("pipeline",)

    def __init__(self, method: Literal["ours", "published"] = "ours") -> None:
        self.method = method

    def warm_up(self, problem: Problem) -> None:
        DpPlacer().warm_up(problem)
        small = assignment_view(problem).units
        local_search(small, problem.schedule, problem.communication, iterations=1, threads=1)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        view = assignment_view(problem)
        if self.method == "published":
            found = published_descent(view.units, problem.schedule, problem.communication, seed=seed)
            return _found(
                view.to_ops(found.device_of_unit) if found.device_of_unit is not None else None, found.iterations
            )
        start = DpPlacer().search(problem, budget.part(FIRST_SHARE * budget.seconds), seed).device_of_op
        result = local_search(
            view.units,
            problem.schedule,
            problem.communication,
            starts=None if start is None else [view.to_units(start)],
            seed=seed,
            seconds=budget.remaining_s(),
            iterations=budget.evaluations,
            threads=cpu_count(),
            should_stop=budget.expired,
            on_improve=lambda _, value: budget.report(value),
        )
        better = result.device_of_unit is not None
        device = view.to_ops(np.asarray(result.device_of_unit)) if better else start
        return _found(device, result.iterations)


def _found(device: object, evaluations: int) -> Found:
    note = "" if device is not None else "no assignment within the limits was found"
    return Found(None if device is None else np.asarray(device, dtype=np.int32), evaluations=evaluations, note=note)
