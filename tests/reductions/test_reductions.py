from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.errors import CycleError
from placewright.evaluate import evaluate_many
from placewright.graph import build_graph
from placewright.problems import Problem
from placewright.reductions import (
    REDUCTIONS,
    Reduction,
    contract,
    contract_sccs,
    fold_constants,
    group_colocated,
    merge_chains,
    merge_free,
    reduce_all,
)
from placewright.testing import random_cluster, random_problem


@st.composite
def small_problems(draw: Any) -> Problem:
    execution = draw(st.sampled_from(["pipeline", "pipeline", "sequential", "overlap", "calls"]))
    options = {f: draw(st.booleans()) for f in ("classes", "backward", "direct", "limits")}
    problem = random_problem(draw(st.integers(0, 10**9)), draw(st.integers(1, 7)), 2, 2, execution, **options)
    free = np.random.default_rng(draw(st.integers(0, 10**9))).random(problem.n_ops) < 0.6
    contiguous = draw(st.booleans())
    return problem.with_options(op_time_s=np.where(free[:, None], 0.0, problem.op_time_s), contiguous=contiguous)


def best_value(problem: Problem) -> float:
    rows = np.array(list(product(range(problem.n_devices), repeat=problem.n_ops)), dtype=np.int32)
    result = evaluate_many(problem, rows)
    return float(np.where(result.is_valid, result.value, np.inf).min())


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda r: r.name)
def test_exact_reductions_keep_value_and_optimum(reduction: Reduction) -> None:
    exact_cases = 0

    @settings(max_examples=300, deadline=None)
    @given(small_problems(), st.integers(0, 10**9))
    def law(problem: Problem, seed: int) -> None:
        nonlocal exact_cases
        reduced = reduction.apply(problem)
        assert reduced.problem.n_ops <= problem.n_ops
        small_row = np.random.default_rng(seed).integers(0, 2, reduced.problem.n_ops).astype(np.int32)
        small, large = evaluate_many(reduced.problem, small_row), evaluate_many(problem, reduced.expand(small_row))
        if problem.execution == "pipeline":  # loads add up whatever is merged
            assert small.value[0] == pytest.approx(large.value[0], rel=1e-9)
            assert small.excess_bytes[0] == large.excess_bytes[0]
            assert small.is_valid[0] == large.is_valid[0]
        if reduction.is_exact(problem):
            exact_cases += reduced.problem.n_ops < problem.n_ops
            assert small.value[0] == pytest.approx(large.value[0], rel=1e-9)
            assert best_value(reduced.problem) == pytest.approx(best_value(problem), rel=1e-9)

    law()
    assert exact_cases > 0 or reduction is merge_chains


def test_reductions_compose_and_lead_back() -> None:
    for seed in range(30):
        problem = random_problem(seed, 14, 3, 2, "pipeline", classes=True, backward=True)
        reduced = reduce_all(problem, REDUCTIONS)
        row = np.random.default_rng(seed).integers(0, 3, reduced.problem.n_ops).astype(np.int32)
        small, large = evaluate_many(reduced.problem, row), evaluate_many(problem, reduced.expand(row))
        assert small.value[0] == pytest.approx(large.value[0], rel=1e-9)
        assert small.is_valid[0] == large.is_valid[0]


def line(times: list[float], **options: Any) -> Problem:
    n = len(times)
    graph, _ = build_graph("line", [f"op{i}" for i in range(n)], [(i, 1.0, [i + 1]) for i in range(n - 1)], **options)
    cluster = random_cluster(np.random.default_rng(0), 2, 1, direct=False, limits=False)
    links = len(cluster.link_table().links)
    return Problem(
        graph, cluster, np.array(times)[:, None], graph.weight_bytes, np.ones((n - 1, links)),
        objective="throughput", execution="pipeline",
    )  # fmt: skip


def test_what_each_reduction_merges() -> None:
    assert merge_chains.apply(line([1, 1, 1])).problem.n_ops == 1
    assert fold_constants.apply(line([0, 1, 1])).problem.n_ops == 2
    assert fold_constants.apply(line([1, 0, 1])).problem.n_ops == 3
    assert merge_free.apply(line([1, 1, 0])).problem.n_ops == 2
    assert merge_free.apply(line([0, 0, 0, 1])).problem.n_ops == 1
    assert group_colocated.apply(line([1, 1, 1], colocation=[0, 0, -1])).problem.n_ops == 2
    # op0 and op2 must share a device and op1 lies between them: all three are one stage.
    circle = line([1, 1, 1], colocation=[0, -1, 0])
    assert group_colocated.apply(circle).problem.n_ops == 3
    assert contract_sccs.apply(circle).problem.n_ops == 1


def test_a_merge_that_closes_a_cycle_is_refused() -> None:
    with pytest.raises(CycleError):
        contract(line([1, 1, 1]), np.array([0, 1, 0]))


def test_merging_forward_with_backward_is_refused() -> None:
    with pytest.raises(ValueError, match="forward and backward"):
        contract(line([1, 1], is_backward=[False, True]), np.array([0, 0]))
