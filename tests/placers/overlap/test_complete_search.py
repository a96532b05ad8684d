from __future__ import annotations

import pytest

from placewright.budget import Budget
from placewright.evaluate import check, evaluate
from placewright.placers.overlap.complete_search import search_completely
from placewright.problems import Problem
from placewright.testing import optimum, random_problem


def tiny_problem(seed: int) -> Problem:
    """Two to five ops on one to three devices, with memory limits, classes, unsupported ops, host and direct links."""
    n_ops = 2 + seed % 4
    return random_problem(
        seed, n_ops, 1 + seed % 3, 1 + seed % 2, "overlap", classes=seed % 3 == 0, direct=seed % 2 == 0,
        limits=seed % 5 < 3, unsupported=seed % 4 == 0, max_segments=2 if seed % 11 == 0 else None,
    )  # fmt: skip


@pytest.mark.parametrize("block", range(10))
def test_equals_brute_force_over_placements_and_orders(block: int) -> None:
    solved = 0
    for seed in range(block * 34, block * 34 + 34):
        problem = tiny_problem(seed)
        found = search_completely(problem, Budget(60))
        assert found.finished
        assert found.value == pytest.approx(optimum(problem), rel=1e-12)
        if found.device_of_op is not None:
            solved += 1
            assert check(problem, found.device_of_op, found.priority) == ()
            assert evaluate(problem, found.device_of_op, found.priority).value == found.value
    assert solved > 20


def test_nothing_is_found_above_the_value_asked_for() -> None:
    problem = tiny_problem(7)
    best = search_completely(problem, Budget(60))
    again = search_completely(problem, Budget(60), upper=best.value)
    assert again.finished
    assert again.device_of_op is None
