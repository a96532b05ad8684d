"""``milp`` through the whole of the package: against brute force over assignments and the evaluator."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from placewright.api import load, place
from placewright.evaluate import evaluate_many
from placewright.placers.pipeline.not_contiguous import anytime
from placewright.problems import Problem
from placewright.testing import random_problem


def best_value(problem: Problem) -> float:
    rows = np.array(list(product(range(problem.n_devices), repeat=problem.n_ops)), dtype=np.int32)
    result = evaluate_many(problem, rows)
    return float(np.where(result.is_valid, result.value, np.inf).min())


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_gpipe_equals_brute_force(seed: int, contiguous: bool) -> None:
    problem = random_problem(
        seed, 6, 3, 2, "pipeline", classes=True, backward=True, schedule="gpipe", contiguous=contiguous
    )
    placement = place(problem, "milp", 30)
    assert placement.status == "optimal"
    assert placement.value == pytest.approx(best_value(problem), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_highs_equals_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anytime, "SMALL_CELLS", 0)
    problem = random_problem(seed, 6, 3, 2, "pipeline", backward=True, limits=True, contiguous=False)
    placement, best = place(problem, "milp", 30), best_value(problem)
    if np.isinf(best):
        assert placement.status == "infeasible"
    else:
        assert placement.value == pytest.approx(best, rel=1e-9)
        assert best * (1 - 1e-6) <= placement.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_with_direct_links_it_is_never_worse_than_the_chain(seed: int) -> None:
    problem = random_problem(seed, 6, 3, 2, "pipeline", direct=True, contiguous=False)
    placement = place(problem, "milp", 5)
    assert placement.value <= place(problem, "dp", 5).value * (1 + 1e-9)
    assert placement.bound <= best_value(problem) * (1 + 1e-9)


def test_replicas_are_left_to_dp() -> None:
    problem = load("zoo:chain?ops=6", cluster="p100x4", objective="throughput", contiguous=False)
    problem = problem.with_options(max_replicas=4)
    placement = place(problem, "milp", 10)
    assert placement.value == pytest.approx(place(problem, "dp", 10).value)
