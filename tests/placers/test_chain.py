from __future__ import annotations

import itertools

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.evaluate import evaluate_many
from placewright.placers import get_placer
from placewright.problem import Problem
from placewright.testing import random_problem


def best_value(problem: Problem) -> float:
    rows = np.array(list(itertools.product(range(problem.n_devices), repeat=problem.n_ops)), dtype=np.int32)
    result = evaluate_many(problem, rows)
    return float(np.where(result.is_valid, result.value, np.inf).min())


@pytest.mark.parametrize("block", range(6))
def test_chain_agrees_with_enumeration(block: int) -> None:
    proven = 0
    for seed in range(40 * block, 40 * block + 40):
        problem = random_problem(
            seed, 7, 2 + seed % 2, 2, "sequential",
            classes=seed % 3 == 0, direct=seed % 4 == 0, limits=seed % 5 < 3, unsupported=seed % 7 == 0,
        )  # fmt: skip
        best = best_value(problem)
        placement = get_placer("chain").place(problem, Budget(10.0), 0)
        assert placement.bound <= best * (1 + 1e-9)
        if np.isinf(best):
            assert not placement.is_valid
        elif not problem.arrays.segment_overhead_s.any():
            assert placement.value == pytest.approx(best)
            assert placement.status == "optimal"
            proven += 1
    assert proven > 0


def test_dropped_states_take_the_proof_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placewright.placers.exact.chain.MOST_STATES", 2)
    problem = random_problem(5, 12, 3, 2, "sequential")
    placement = get_placer("chain").place(problem, Budget(10.0), 0)
    assert placement.is_valid
    assert "not proven" in placement.note or "nothing better" in placement.note
