"""``dp`` on problems, through the whole of the package: against brute force over assignments and the evaluator."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from placewright.api import load, place
from placewright.evaluate import check, evaluate, evaluate_many
from placewright.problems import Problem
from placewright.testing import random_problem


def best_value(problem: Problem) -> float:
    rows = np.array(list(product(range(problem.n_devices), repeat=problem.n_ops)), dtype=np.int32)
    result = evaluate_many(problem, rows)
    return float(np.where(result.is_valid, result.value, np.inf).min())


@pytest.mark.parametrize("seed", range(60))
def test_dp_equals_brute_force(seed: int) -> None:
    options: dict[str, Any] = {"classes": seed % 2 == 0, "backward": seed % 3 == 0, "limits": seed % 4 < 2}
    problem = random_problem(seed, 6, 3, 1 + seed % 3, "pipeline", unsupported=seed % 5 == 0, **options)
    problem = problem.with_options(communication="overlapped" if seed % 7 == 0 else "added")
    placement, best = place(problem, "dp", 30), best_value(problem)
    if np.isinf(best):
        assert placement.status == "infeasible"
    else:
        assert placement.status == "optimal"
        assert placement.value == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_with_direct_links_the_bound_still_holds(seed: int) -> None:
    problem = random_problem(seed, 6, 3, 2, "pipeline", direct=True, schedule="gpipe" if seed % 2 else "1f1b")
    placement = place(problem, "dp", 30)
    assert placement.is_valid
    assert placement.bound <= best_value(problem) * (1 + 1e-9) <= placement.value * (1 + 2e-9)


def test_without_contiguity_dp_proves_nothing_beyond_the_cheap_bound() -> None:
    for seed in range(20):
        problem = random_problem(seed, 6, 3, 2, "pipeline", contiguous=False)
        assert place(problem, "dp", 30).bound <= best_value(problem) * (1 + 1e-9)


def test_replication_shares_the_work() -> None:
    problem = load("zoo:chain?ops=6", cluster="p100x4", objective="throughput")
    alone = place(problem, "dp", 30)
    shared = place(problem.with_options(max_replicas=4), "dp", 30)
    assert shared.value < alone.value
    assert shared.replicas is not None
    assert shared.device_of_op is not None
    assert check(shared.problem, shared.device_of_op, replicas=shared.replicas) == ()
    assert evaluate(shared.problem, shared.device_of_op, replicas=shared.replicas).value == shared.value
    costly = problem.with_options(max_replicas=4, sync_s=np.full(problem.op_time_s.shape, 1.0))
    assert place(costly, "dp", 30).value == pytest.approx(alone.value)


def test_no_packing_is_proven_by_search(small_workload: dict[str, Any], write_json: Any) -> None:
    # Two devices of 100 bytes; groups of 60, 55 and 50 bytes: each fits, the sum fits, no packing does.
    small_workload["maxCPUs"] = 0
    for node, size in zip(small_workload["nodes"], (0, 60, 55, 50, 0), strict=True):
        node["size"] = size
    problem = load(write_json(small_workload), objective="throughput")
    placement = place(problem, "dp", 30)
    assert placement.status == "infeasible"
    assert placement.faults[0].code == "no-packing"
    assert "no packing exists" in str(placement.faults[0])


def test_a_large_pipeline_gets_an_answer() -> None:
    problem = load("zoo:layered?ops=5000", cluster="p100x8", objective="throughput")
    placement = place(problem, "dpl", 20)
    assert placement.is_valid
    assert placement.value < min(place(problem, "single").value, place(problem, "topo").value)
