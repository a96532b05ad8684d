from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.evaluate import evaluate_many
from placewright.placers import get_placer
from placewright.problems import Problem
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
    monkeypatch.setattr("placewright.placers.sequential.chain.MOST_STATES", 2)
    problem = random_problem(5, 12, 3, 2, "sequential")
    placement = get_placer("chain").place(problem, Budget(10.0), 0)
    assert placement.is_valid
    assert "not proven" in placement.note or "nothing better" in placement.note


def tight_problem(seed: int) -> Problem:
    """Every device holds a bit more than its share, so that all memories count."""
    problem = random_problem(seed, 7, 3, 2, "sequential")
    share = problem.memory_bytes.sum() / problem.n_devices
    devices = tuple(replace(d, memory_bytes=share * (1.05 + 0.2 * (seed % 4))) for d in problem.cluster.devices)
    return replace(problem, cluster=replace(problem.cluster, devices=devices))


def test_several_memories_that_all_count() -> None:
    answers = {"optimal": 0, "infeasible": 0}
    for seed in range(60):
        problem = tight_problem(seed)
        if problem.arrays.segment_overhead_s.any():
            continue
        best = best_value(problem)
        placement = get_placer("chain").place(problem, Budget(10.0), 0)
        answers[placement.status] += 1
        assert (placement.status == "infeasible") == np.isinf(best)
        if placement.status == "optimal":
            assert placement.value == pytest.approx(best)
    assert min(answers.values()) > 0, answers


def test_dropped_labels_leave_a_true_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placewright.placers.sequential.chain.MOST_LABELS", (1,))
    monkeypatch.setattr("placewright.placers.sequential.chain.PRICINGS", 1)
    unproven = 0
    for seed in range(60):
        problem = tight_problem(seed)
        best = best_value(problem)
        placement = get_placer("chain").place(problem, Budget(10.0), 0)
        assert placement.bound <= best * (1 + 1e-9)
        assert placement.value >= best * (1 - 1e-9)
        assert placement.status != "infeasible" or np.isinf(best)
        unproven += placement.status not in ("optimal", "infeasible")
    assert unproven > 0
