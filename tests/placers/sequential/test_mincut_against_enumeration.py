from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cut_problems import small_problem

from placewright.api import load
from placewright.budget import Budget, Progress
from placewright.placers import get_placer
from placewright.placers.sequential import mincut
from placewright.placers.sequential.branch import branch_and_bound
from placewright.placers.sequential.labelling import energy_of, labelling_value
from placewright.placers.sequential.local_moves import fits
from placewright.problems import Problem
from placewright.testing import optimum

SEGMENTS = [None, None, 1, 2, 3]


def assert_optimal(problem: Problem) -> None:
    best = optimum(problem)
    placement = get_placer("mincut").place(problem, Budget(60), 0)
    if np.isinf(best):
        assert placement.status == "infeasible"
        assert placement.faults
    else:
        assert placement.value == pytest.approx(best, rel=1e-9)
        assert placement.status == "optimal"


@pytest.mark.parametrize("seed", range(60))
def test_everything_at_once(seed: int) -> None:
    problem = small_problem(seed, overhead=seed % 4 > 0, max_segments=SEGMENTS[seed % 5])
    if problem is not None:
        assert_optimal(problem)


@pytest.mark.parametrize("seed", range(40))
def test_cuts_and_programmes_without_branching(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("highspy")
    monkeypatch.setattr(mincut, "BRANCHING_BITS", 0)
    monkeypatch.setattr(mincut, "ANNEALING_MOVES", 1000)
    problem = small_problem(1000 + seed, overhead=False)
    if problem is not None:
        assert_optimal(problem)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_with_segments_and_without_branching(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mincut, "BRANCHING_BITS", 0)
    monkeypatch.setattr(mincut, "ANNEALING_MOVES", 1000)
    problem = small_problem(2000 + seed, overhead=True, max_segments=SEGMENTS[seed % 5])
    if problem is None:
        return
    best = optimum(problem)
    placement = get_placer("mincut").place(problem, Budget(60), 0)
    if np.isinf(best):
        assert placement.device_of_op is None
    else:
        assert placement.bound <= best * (1 + 1e-9)
        assert placement.value >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_branch_and_bound_alone(seed: int) -> None:
    problem = small_problem(3000 + seed, overhead=True, max_segments=SEGMENTS[seed % 5])
    if problem is not None:
        searched = branch_and_bound(problem, np.inf, lambda: False)
        assert searched.is_complete
        assert searched.value == pytest.approx(optimum(problem))


@pytest.mark.parametrize("seed", range(40))
def test_the_programme_alone(seed: int) -> None:
    pytest.importorskip("highspy")
    from placewright.placers.sequential.programme import solve_programme

    problem = small_problem(4000 + seed, overhead=False, limits=True)
    if problem is None:
        return
    energy, limit, best = energy_of(problem), problem.arrays.memory_limit_bytes, optimum(problem)
    solved = solve_programme(energy, limit, None, 60.0, lambda: False, lambda bound: None)
    if np.isinf(best):
        assert solved.status == "infeasible"
    else:
        assert solved.label is not None
        assert fits(energy, solved.label, limit)
        assert labelling_value(energy, solved.label) == pytest.approx(best, abs=1e-7)
        assert solved.bound == pytest.approx(best, abs=1e-7)


def test_memory_that_cannot_be_packed_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three equal ops, room for one and a half on each of two devices: enough in all, but not in pieces.
    from dataclasses import replace

    problem = load("zoo:chain?ops=3", cluster="p100x2", execution="sequential")
    devices = tuple(replace(d, memory_bytes=0.0 if d.kind == "cpu" else 3.0) for d in problem.cluster.devices)
    problem = problem.with_options(
        cluster=replace(problem.cluster, devices=devices), memory_bytes=np.full(problem.n_ops, 2.0)
    )
    for bits in (0, 60):
        monkeypatch.setattr(mincut, "BRANCHING_BITS", bits)
        placement = get_placer("mincut").place(problem, Budget(60), 0)
        assert placement.status == "infeasible"
        assert [f.code for f in placement.faults] == ["no-packing"]


def test_two_devices_are_solved_by_one_cut() -> None:
    problem = mixed_problem(2000, ("cpu", "gpu"))
    placement = get_placer("mincut").place(problem, Budget(60), 0)
    assert placement.status == "optimal"
    assert placement.evaluation is not None
    assert (placement.evaluation.ops > 100).all()


def test_progress_is_reported_and_bounds_never_fall() -> None:
    news: list[Progress] = []
    get_placer("mincut").place(mixed_problem(60, ("cpu", "gpu", "npu")), Budget(3, on_progress=news.append), 0)
    bounds = [n.bound for n in news]
    assert len(news) > 2
    assert bounds == sorted(bounds)


def mixed_problem(ops: int, kinds: tuple[str, ...], **options: Any) -> Problem:
    """A layered graph whose ops have random times on some of a laptop's devices, as large as the copies."""
    from dataclasses import replace

    from placewright.cluster_file import load_cluster

    laptop = load_cluster("laptop-npu")
    cluster = replace(
        laptop,
        kinds=tuple(replace(k, segment_overhead_s=0.0) for k in laptop.kinds if k.name in kinds),
        devices=tuple(d for d in laptop.devices if d.kind in kinds),
    )
    problem = load(f"zoo:layered?ops={ops}", cluster=cluster, execution="sequential", **options)
    times = np.random.default_rng(0).exponential(1e-4, problem.op_time_s.shape)
    return problem.with_options(op_time_s=times)
