"""What a search knows can be asked for while it goes on: for commands that are stopped while nobody hears them."""

from __future__ import annotations

from typing import Any

import pytest

from placewright.budget import Budget
from placewright.evaluate import check, evaluate
from placewright.placers import get_placer
from placewright.testing import random_problem

SEARCHES = [
    ("anneal", "overlap", {}),
    ("anneal", "calls", {}),
    ("mincut", "sequential", {}),
    ("local-search", "pipeline", {"contiguous": False}),
]


@pytest.mark.parametrize(("name", "execution", "options"), SEARCHES)
def test_the_best_placement_is_left_for_whoever_asks(name: str, execution: Any, options: dict[str, Any]) -> None:
    problem = random_problem(4, 12, 3, 2, execution, direct=False, **options)
    budget = Budget(20.0, evaluations=300)
    placement = get_placer(name).place(problem, budget)
    best = min(budget.known(), key=lambda known: known.value)
    assert check(problem, best.device_of_op, best.priority) == ()
    found = evaluate(problem, best.device_of_op, best.priority).value
    assert found == pytest.approx(best.value)
    assert found <= placement.value * (1 + 1e-9)
