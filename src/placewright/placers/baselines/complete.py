"""``complete``: tiny problems to the end, by looking at every placement (and under ``overlap`` at every order)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate import evaluate_many
from placewright.evaluate.checking import Fault
from placewright.placers.base import Found, Placer, best_single_device
from placewright.placers.overlap.complete_search import alike_before, search_completely
from placewright.placers.units import movable_units
from placewright.problems import Problem

MOST_UNITS = 14  # under ``overlap``; beyond, orders are too many
MOST_PLACEMENTS = 10_000_000  # under other models
_CELLS_AT_ONCE = 200_000  # ops x placements between two looks at the clock


class CompletePlacer(Placer):
    """Looks at all placements, equal devices counted once, until all are seen or the budget ends.

    What it finds is optimal when it comes to the end, and if it finds nothing then, nothing exists. Problems that are
    too large for that are refused at once: no placement but the best single device. With ``budget.evaluations`` it
    ends after so many placements.
    """

    name = "complete"
    summary = "every placement of tiny problems: optimal, or proven infeasible"

    def warm_up(self, problem: Problem) -> None:
        if problem.execution == "overlap" and is_tiny(problem):
            search_completely(problem, Budget(0.0))

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        if not is_tiny(problem):
            return _single(problem, "too many placements to look at each")
        seen = _with_orders(problem, budget) if problem.execution == "overlap" else _placements(problem, budget)
        # Replicas change the value of a placement, so looking at those without them proves nothing.
        is_proof = seen.finished and problem.max_replicas == 1
        if seen.device_of_op is None:
            if is_proof:
                text = "no placement keeps within the limits (proven by looking at all)"
                return Found(None, evaluations=seen.looked_at, infeasible=(Fault("no-packing", text),))
            return Found(None, evaluations=seen.looked_at, note=f"none of {seen.looked_at:,} placements was valid")
        bound = seen.value if is_proof else None
        return Found(seen.device_of_op, bound=bound, priority=seen.priority, evaluations=seen.looked_at)


class _Seen(NamedTuple):
    device_of_op: NDArray[np.int32] | None
    priority: NDArray[np.float64] | None
    value: float
    finished: bool
    looked_at: int


def is_tiny(problem: Problem) -> bool:
    """Whether looking at everything may come to an end."""
    if problem.execution == "overlap":
        return len(movable_units(problem).allowed) <= MOST_UNITS
    return _number_of_placements(problem) <= MOST_PLACEMENTS


def _number_of_placements(problem: Problem) -> int:
    return math.prod(movable_units(problem).allowed.sum(axis=1).tolist())


def _with_orders(problem: Problem, budget: Budget) -> _Seen:
    incumbent = budget.incumbent
    upper = math.inf if incumbent is None else incumbent.value
    found = search_completely(problem, budget, upper, budget.evaluations or math.inf)
    if found.device_of_op is None and incumbent is not None:
        return _Seen(incumbent.device_of_op, incumbent.priority, incumbent.value, found.finished, found.steps)
    return _Seen(found.device_of_op, found.priority, found.value, found.finished, found.steps)


def _placements(problem: Problem, budget: Budget) -> _Seen:
    best, value, count = None, math.inf, 0
    most = budget.evaluations or MOST_PLACEMENTS
    for rows in _batches(problem, most):
        if count >= most or (count and budget.expired()):
            return _Seen(best, None, value, False, count)
        count += len(rows)
        result = evaluate_many(problem, rows)
        values = np.where(result.is_valid, result.value, np.inf)
        first = int(values.argmin()) if len(values) else 0
        if len(values) and values[first] < value:
            best, value = rows[first], float(values[first])
            budget.report(value, evaluations=count)
    return _Seen(best, None, value, True, count)


def _batches(problem: Problem, most: int) -> Iterator[NDArray[np.int32]]:
    """All placements that keep to allowed devices, of equal devices the one that is used first; some rows at a time."""
    units = movable_units(problem)
    choices = [np.flatnonzero(row).astype(np.int32) for row in units.allowed]
    before = alike_before(problem)
    size = max(1, min(most, _CELLS_AT_ONCE // problem.n_ops))
    total = _number_of_placements(problem)
    for low in range(0, total, size):
        number = np.arange(low, min(low + size, total))
        rows = np.empty((len(number), len(choices)), dtype=np.int32)
        for unit in range(len(choices) - 1, -1, -1):
            number, choice = np.divmod(number, len(choices[unit]))
            rows[:, unit] = choices[unit][choice]
        yield rows[_is_first_of_its_kind(rows, before)][:, units.unit_of_op]


def _is_first_of_its_kind(rows: NDArray[np.int32], before: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which rows use no device earlier than the one before it that is the same in everything."""
    kept = np.ones(len(rows), dtype=np.bool_)
    for later, earlier in enumerate(before.tolist()):
        if earlier >= 0:
            is_later, is_earlier = rows == later, rows == earlier
            never = rows.shape[1]
            first_later = np.where(is_later.any(axis=1), is_later.argmax(axis=1), never)
            first_earlier = np.where(is_earlier.any(axis=1), is_earlier.argmax(axis=1), never)
            kept &= first_earlier <= first_later
    return kept


def _single(problem: Problem, note: str) -> Found:
    best = best_single_device(problem)
    if best is None:
        return Found(None, note=note)
    return Found(np.full(problem.n_ops, best[0], dtype=np.int32), note=note)
