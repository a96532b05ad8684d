"""Good placements to start from, by all list schedulers: for annealing, for ``auto``, for learned placers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate import evaluate
from placewright.graph import FloatArray
from placewright.placers.registry import get_placer, get_placer_class, is_installed
from placewright.problems import Problem

LIST_SCHEDULERS = ("etf", "heft", "peft", "cpop", "sct")  # cheapest first
MOST_OPS_FOR_SCT = 100_000


class Start(NamedTuple):
    """A valid placement with the order it was judged with (``None``: first come, first served)."""

    device_of_op: NDArray[np.int32]
    priority: FloatArray | None
    value: float
    placer: str


def constructive_starts(problem: Problem, budget: Budget, seed: int) -> list[Start]:
    """Run the list schedulers, cheapest first; return their valid placements, best first (possibly none).

    At least one is run; the others while the budget lasts. Only ``overlap`` is scheduled: other models get none.
    """
    starts: list[Start] = []
    if problem.execution != "overlap":
        return starts
    for i, name in enumerate(_usable(problem)):
        if i > 0 and budget.expired():
            break
        found = get_placer(name).search(problem, budget, seed)
        if found.device_of_op is not None:
            value = evaluate(problem, found.device_of_op, found.priority).value
            starts.append(Start(found.device_of_op, found.priority, value, name))
    return sorted(starts, key=lambda start: start.value)


def _usable(problem: Problem) -> list[str]:
    names = [n for n in LIST_SCHEDULERS if n != "sct" or problem.n_ops <= MOST_OPS_FOR_SCT]
    return [n for n in names if is_installed(get_placer_class(n))]
