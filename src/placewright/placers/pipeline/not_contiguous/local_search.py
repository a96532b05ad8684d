"""``local-search``: pipelines whose devices may work on several pieces of the graph, by annealing."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget, Incumbent
from placewright.evaluate import evaluate_many
from placewright.evaluate.batch import cpu_count
from placewright.placers.base import Found, Placer
from placewright.placers.pipeline.dp import DpPlacer
from placewright.placers.pipeline.not_contiguous.hypergraph import SECONDS_PER_UNIT
from placewright.placers.pipeline.not_contiguous.partition import PartitionPlacer
from placewright.placers.pipeline.not_contiguous.search import (
    CycleLengths,
    fitting_cycle,
    local_search,
    published_descent,
)
from placewright.placers.pipeline.not_contiguous.units import IntArray
from placewright.placers.pipeline.not_contiguous.view import assignment_view
from placewright.placers.registry import is_installed
from placewright.problems import Problem, once_per_problem

FIRST_SHARE = 0.2  # of the time, at most, for the contiguous start


class LocalSearchPlacer(Placer):
    """Annealing with incremental loads from the best contiguous pipeline or a partition, on all cores.

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
        small = assignment_view(problem).units
        local_search(small, problem.schedule, problem.communication, iterations=1, threads=1)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        view = assignment_view(problem)
        if self.method == "published":
            found = published_descent(view.units, problem.schedule, problem.communication, seed=seed)
            return _found(
                view.to_ops(found.device_of_unit) if found.device_of_unit is not None else None, found.iterations
            )
        seconds = budget.remaining_s()
        plan = _plan(problem, budget, seed)
        starts = _starts(problem, plan.constructed, budget)
        latest: Incumbent | None = None

        def improved(device_of_unit: IntArray, value: float) -> None:
            nonlocal latest
            latest = Incumbent(view.to_ops(device_of_unit), value)
            budget.report(value)

        budget.knows(lambda: latest)
        result = local_search(
            view.units,
            problem.schedule,
            problem.communication,
            starts=[view.to_units(start) for start in starts],
            seed=seed,
            seconds=min(budget.remaining_s(), seconds - plan.constructed_s),
            iterations=budget.evaluations,
            threads=cpu_count(),
            cycle=plan.cycle,
            lengths=plan.lengths,
            should_stop=budget.expired,
            on_improve=improved,
        )
        better = result.device_of_unit is not None
        device = view.to_ops(np.asarray(result.device_of_unit)) if better else starts[0] if starts else None
        return _found(device, result.iterations)


class _Plan(NamedTuple):
    """What a run finds out about the problem. Later ones for about as much time take the same way, as far as time lets
    them: starts that a clock cut short, and lengths from a speed that was measured, would differ.
    """

    constructed: list[NDArray[np.int32]]
    constructed_s: float  # that took; later runs are as long as if it took them as much
    cycle: int | None = None  # iterations of the first cooling
    lengths: CycleLengths | None = None  # of later ones


def _plan(problem: Problem, budget: Budget, seed: int) -> _Plan:
    if budget.evaluations:
        return _Plan(_constructed(problem, budget, seed), 0.0)
    known = _known_plans(problem)
    seconds = budget.remaining_s()
    key = (seed, round(math.log2(max(seconds, 1e-9))))
    if key in known:
        return known[key]
    rows = _constructed(problem, budget, seed)
    left_s, units = budget.remaining_s(), assignment_view(problem).units
    cycle = fitting_cycle(units, problem.schedule, problem.communication, left_s, cpu_count())
    plan = _Plan(rows, min(seconds - left_s, FIRST_SHARE * seconds), cycle, {})
    if not budget.expired():  # what an interrupt cut short is no example
        known[key] = plan
    return plan


@once_per_problem
def _known_plans(problem: Problem) -> dict[tuple[int, int], _Plan]:
    return {}


def _constructed(problem: Problem, budget: Budget, seed: int) -> list[NDArray[np.int32]]:
    """The best contiguous pipeline and a balanced partition."""
    placers: list[Placer] = [DpPlacer()]
    if is_installed(PartitionPlacer) and problem.n_ops * SECONDS_PER_UNIT < FIRST_SHARE * budget.seconds:
        placers.append(PartitionPlacer())
    part = budget.part(FIRST_SHARE * budget.seconds)
    return [found for p in placers if (found := p.search(problem, part, seed).device_of_op) is not None]


def _starts(problem: Problem, constructed: list[NDArray[np.int32]], budget: Budget) -> list[NDArray[np.int32]]:
    """What was constructed and what others have found, best first."""
    rows = constructed + ([] if budget.incumbent is None else [budget.incumbent.device_of_op])
    if not rows:
        return []
    result = evaluate_many(problem, np.array(rows))
    return [rows[i] for i in np.argsort(np.where(result.is_valid, result.value, np.inf), kind="stable")]


def _found(device: object, evaluations: int) -> Found:
    note = "" if device is not None else "no assignment within the limits was found"
    return Found(None if device is None else np.asarray(device, dtype=np.int32), evaluations=evaluations, note=note)
