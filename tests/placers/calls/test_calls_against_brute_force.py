from __future__ import annotations

import math

import numpy as np
import pytest
from calls_problems import chain_problem, short_of_memory, small_problem

from placewright.budget import Budget
from placewright.evaluate import check, prove_infeasible
from placewright.placers import get_placer
from placewright.placers.calls.anneal import anneal
from placewright.placers.calls.calls_exact import most_pieces
from placewright.placers.calls.enumeration import enumerate_placements
from placewright.placers.calls.groups import groups_of
from placewright.placers.calls.ladder import bounding_steps
from placewright.testing import optimum, random_problem

SEEDS = [s for s in range(66) if not prove_infeasible(small_problem(s))]


def never() -> bool:
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_never_exceed_the_optimum(seed: int) -> None:
    problem = small_problem(seed)
    best = optimum(problem)
    for known in (math.inf, best, 1.3 * best):
        for widths in ((1,), (2,), (3, 50)):
            for step in bounding_steps(problem, groups_of(problem), lambda known=known: known, never, seed, widths):
                assert step.bound <= best * (1 + 1e-9), step


@pytest.mark.parametrize("seed", range(12))
def test_bounds_with_few_labels_never_exceed_those_with_many(seed: int) -> None:
    """Where the accelerators' memory is short, ideals have more labels than a narrow search keeps."""
    problem = short_of_memory(seed)
    groups = groups_of(problem)

    def bound(width: int) -> float:
        return max(s.bound for s in bounding_steps(problem, groups, lambda: math.inf, never, seed, (width,)))

    exact = bound(100_000)
    assert exact > 0
    for width in (1, 2, 5, 20):
        assert bound(width) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimum_is_found_and_proven(seed: int) -> None:
    problem = small_problem(seed)
    best = optimum(problem)
    placement = get_placer("calls-exact").place(problem, Budget(60), seed)
    if math.isinf(best):
        assert placement.status == "infeasible"
        return
    assert placement.value == pytest.approx(best, rel=1e-9)
    assert placement.status == "optimal"


@pytest.mark.parametrize("seed", SEEDS)
def test_enumeration_finds_the_optimum_and_stops_at_its_limit(seed: int) -> None:
    problem = small_problem(seed)
    best = optimum(problem)
    found = enumerate_placements(problem, groups_of(problem), math.inf, 10**6, never)
    assert found.is_complete
    assert found.value == pytest.approx(best, rel=1e-9)
    if math.isfinite(best):
        nothing = enumerate_placements(problem, groups_of(problem), best, 10**6, never)
        assert (nothing.device_of_op, nothing.is_complete) == (None, True)
        assert not enumerate_placements(problem, groups_of(problem), math.inf, 0, never).is_complete


@pytest.mark.parametrize("seed", range(20))
def test_labels_alone_are_exact_for_chains_on_enough_equal_accelerators(seed: int) -> None:
    """Pieces of a chain are stretches, each on an accelerator of its own: the relaxation then loses nothing."""
    problem = chain_problem(seed)
    steps = bounding_steps(problem, groups_of(problem), lambda: math.inf, never, 0)
    bound = max(step.bound for step in steps)
    assert bound == pytest.approx(optimum(problem), rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_annealing_judges_like_the_evaluator(seed: int) -> None:
    problem = small_problem(seed)
    start = np.zeros(problem.n_ops, dtype=np.int32)
    if prove_infeasible(problem):
        return
    found = anneal(problem, groups_of(problem), start, 300, 0.1, seed, None, never)
    assert found.is_valid == (check(problem, found.device_of_op) == ())


@pytest.mark.parametrize("seed", range(30, 42))
def test_slots_limit_the_calls_but_not_the_bound(seed: int) -> None:
    problem = random_problem(seed, 8, 3, 2, "calls", limits=True)
    if prove_infeasible(problem):
        return
    one = get_placer("calls-exact", slots=1).place(problem, Budget(60, evaluations=20_000), 0)
    any_number = get_placer("calls-exact").place(problem, Budget(60), 0)
    if one.device_of_op is not None:
        assert most_pieces(problem, one.device_of_op) <= 1
        assert one.bound <= any_number.value * (1 + 1e-9)
        assert one.value >= any_number.value * (1 - 1e-9)
