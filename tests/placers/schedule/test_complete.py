from __future__ import annotations

import itertools

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.evaluate import check, evaluate, evaluate_many
from placewright.placers.schedule.complete import search_completely
from placewright.problem import Problem
from placewright.testing import random_problem


def tiny_problem(seed: int) -> Problem:
    """Two to five ops on one to three devices, with memory limits, classes, unsupported ops, host and direct links."""
    n_ops = 2 + seed % 4
    return random_problem(
        seed, n_ops, 1 + seed % 3, 1 + seed % 2, "overlap", classes=seed % 3 == 0, direct=seed % 2 == 0,
        limits=seed % 5 < 3, unsupported=seed % 4 == 0, max_segments=2 if seed % 11 == 0 else None,
    )  # fmt: skip


def brute_force(problem: Problem) -> float:
    """The best valid value over all placements and all orders; infinite if there is none."""
    n, n_devices = problem.n_ops, problem.n_devices
    placements = np.array(list(itertools.product(range(n_devices), repeat=n)), dtype=np.int32)
    orders = np.array(list(itertools.permutations(range(n))), dtype=np.float64)
    rows = np.repeat(placements, len(orders), axis=0)
    result = evaluate_many(problem, rows, np.tile(orders, (len(placements), 1)))
    return float(np.where(result.is_valid, result.value, np.inf).min())


@pytest.mark.parametrize("block", range(10))
def test_equals_brute_force_over_placements_and_orders(block: int) -> None:
    solved = 0
    for seed in range(block * 34, block * 34 + 34):
        problem = tiny_problem(seed)
        found = search_completely(problem, Budget(60))
        assert found.finished
        assert found.value == pytest.approx(brute_force(problem), rel=1e-12)
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
