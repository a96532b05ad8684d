"""Everything against enumeration on random small problems."""

from __future__ import annotations

import numpy as np
import pytest
from assignment_problems import brute_force, op_level_value, random_ops, random_units

from placewright.placers.pipeline.not_contiguous.anytime import is_contiguous, solve
from placewright.placers.pipeline.not_contiguous.bounds import column_bound, combinatorial_bound, unit_bound, work_bound
from placewright.placers.pipeline.not_contiguous.frontier import best_set, build_frontiers
from placewright.placers.pipeline.not_contiguous.hypergraph import partition
from placewright.placers.pipeline.not_contiguous.likeness import like_units
from placewright.placers.pipeline.not_contiguous.pricing import SetProgramme, set_load, set_problem
from placewright.placers.pipeline.not_contiguous.search import (
    LONGEST_CYCLE,
    SHORTEST_CYCLE,
    CycleLengths,
    _Walk,
    fitting_cycle,
    local_search,
    published_descent,
)
from placewright.placers.pipeline.not_contiguous.search_kernels import problem_of
from placewright.placers.pipeline.not_contiguous.units import evaluate, fold_directions, merge_units, units_from_ops

MODES = [("1f1b", "added"), ("1f1b", "overlapped"), ("gpipe", "added"), ("gpipe", "overlapped")]


@pytest.mark.parametrize("seed", range(60))
def test_contraction_keeps_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ops = random_ops(rng)
    units, unit_of_op = units_from_ops(ops)
    device_of_unit = rng.integers(units.device_count, size=units.unit_count).astype(np.int32)
    free = units._replace(kind_memory=np.full(len(units.kind_memory), np.inf))
    expected = op_level_value(ops, device_of_unit[unit_of_op])
    assert evaluate(free, device_of_unit) == pytest.approx(expected)
    assert evaluate(fold_directions(free), device_of_unit) == pytest.approx(expected)
    groups = rng.integers(3, size=units.unit_count)
    _, groups = np.unique(groups, return_inverse=True)
    device_of_group = rng.integers(units.device_count, size=groups.max() + 1).astype(np.int32)
    for mode in MODES:
        merged = evaluate(merge_units(free, groups.astype(np.int32)), device_of_group, *mode)
        assert merged == pytest.approx(evaluate(free, device_of_group[groups], *mode))


@pytest.mark.parametrize("seed", range(80))
def test_bounds_and_search(seed: int) -> None:
    units = random_units(seed)
    objective, communication = MODES[seed % 4]
    optimum = brute_force(units, objective, communication)
    found = local_search(units, objective, communication, iterations=200_000, seed=seed, threads=1)
    if found.device_of_unit is None:
        assert not np.isfinite(optimum)
        return
    exact = evaluate(units, found.device_of_unit, objective, communication)
    assert found.value == exact == pytest.approx(found.trace[-1][1])
    assert optimum * (1 - 1e-9) <= found.value <= optimum * 1.02 + 1e-9
    slack = optimum * (1 + 1e-7)
    assert work_bound(fold_directions(units)) <= slack
    assert unit_bound(fold_directions(units), found.value, communication) <= slack
    lower = combinatorial_bound(units, found.value, communication)
    assert lower <= slack
    raised = column_bound(
        units, lambda: found.value, lower, communication, seconds=3.0, assignments=[found.device_of_unit]
    )
    assert lower <= raised <= slack


@pytest.mark.parametrize("seed", range(16))
def test_exact(seed: int) -> None:
    units = random_units(1000 + seed)
    objective, communication = MODES[seed % 4]
    optimum = brute_force(units, objective, communication)
    result = solve(units, objective, communication, seconds=20.0, seed=seed)
    if not np.isfinite(optimum):
        assert result.device_of_unit is None
        assert result.status == "infeasible"
        return
    assert result.value == pytest.approx(optimum, rel=1e-6)
    assert result.bound <= optimum * (1 + 1e-7)
    assert result.bound >= optimum * (1 - 1e-5)
    assert evaluate(units, result.device_of_unit, objective, communication) == result.value


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("contiguity", ["convex", "chain"])
def test_exact_contiguous(seed: int, contiguity: str) -> None:
    units = random_units(2000 + seed)
    optimum = brute_force(units, "1f1b", "added", lambda device: is_contiguous(units, device, contiguity))
    result = solve(units, contiguity=contiguity, seconds=20.0)
    if np.isfinite(optimum):
        assert result.value == pytest.approx(optimum, rel=1e-6)
        assert is_contiguous(units, result.device_of_unit, contiguity)
    else:
        assert result.device_of_unit is None


@pytest.mark.parametrize("seed", range(60))
def test_pricing_agrees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = fold_directions(random_units(3000 + seed))
    problem = set_problem(units._replace(kind_memory=np.full(len(units.kind_memory), np.inf)), 0, False)
    price = rng.normal(1.0, 2.0, units.unit_count)
    limit = float(np.nanmax(np.where(np.isfinite(problem.time), problem.time, np.nan), initial=1.0)) * 2
    best = 0.0
    for bits in range(1 << units.unit_count):
        member = (bits >> np.arange(units.unit_count)) & 1 == 1
        if np.isfinite(problem.time[member]).all() and set_load(problem, member) <= limit:
            best = max(best, float(price[member].sum()))
    usable = np.where(np.isfinite(problem.time), price, 0.0)
    frontiers = build_frontiers(problem)
    assert frontiers is not None
    assert best_set(frontiers, problem, usable, limit, -1e-6).bound == pytest.approx(best, abs=1e-5)
    for tolerance in (0.01 * np.abs(usable).sum(), 0.2 * np.abs(usable).sum()):
        rough = best_set(frontiers, problem, usable, limit, -1e-6, tolerance)
        assert best - 1e-5 <= rough.bound
        if rough.member is not None:
            assert rough.bound <= usable[rough.member].sum() + tolerance + 1e-5
            assert set_load(problem, rough.member) <= limit * (1 + 1e-6)
    stopped = best_set(frontiers, problem, usable, limit, -1e-6, should_stop=lambda: True)
    assert stopped.bound >= best - 1e-5
    nothing = np.zeros((0, 2), dtype=np.int32)
    programme = SetProgramme(problem, nothing, np.ones(units.unit_count, dtype=bool))
    answer = programme.solve(usable, limit, 10.0, lambda primal, dual: False)
    assert answer.bound == pytest.approx(best, abs=1e-4)


def test_repeated_layers_look_alike() -> None:
    layers, kinds = 6, 1
    count = 2 * layers  # a heavy unit, then a light one, and so on
    time = np.tile([[3.0], [1.0]], (layers, kinds))
    chain = np.arange(count - 1)
    units = random_units(1)._replace(
        forward_time=time,
        backward_time=np.zeros_like(time),
        memory_bytes=np.ones(count),
        tensor_ptr=np.arange(0, 2 * count - 1, 2, dtype=np.int32),
        tensor_unit=np.stack([chain, chain + 1], axis=1).ravel().astype(np.int32),
        tensor_in=np.ones((count - 1, kinds)),
        tensor_out=np.ones((count - 1, kinds)),
    )
    assert len(np.unique(like_units(units, 0))) == 2
    near = like_units(units, 2)
    assert near[4] == near[6]
    assert near[5] == near[7]
    assert near[0] != near[4]  # it has no input
    assert len(np.unique(like_units(units, count))) == count  # in the end all differ by their distance to the ends


def test_search_is_reproducible() -> None:
    units = random_units(5)
    first = local_search(units, iterations=30_000, seed=3)
    again = local_search(units, iterations=30_000, seed=3)
    assert first.device_of_unit is not None
    assert np.array_equal(first.device_of_unit, again.device_of_unit)


def test_a_cooling_is_as_long_as_the_time_and_the_problem_ask_for() -> None:
    units = random_units(5)
    local_search(units, iterations=1)  # compiled now, not measured
    assert fitting_cycle(units, "1f1b", "added", 0.0, 2) == SHORTEST_CYCLE
    assert SHORTEST_CYCLE <= fitting_cycle(units, "1f1b", "added", 1e9, 2) <= min(LONGEST_CYCLE, 1600 * 100)


def test_the_last_cooling_ends_with_the_time_and_is_remembered() -> None:
    units = random_units(5)
    problem = problem_of(fold_directions(units), False, False)
    first = local_search(units, iterations=1).device_of_unit
    assert first is not None
    lengths: CycleLengths = {}
    for possible, expected in ((1.0, SHORTEST_CYCLE), (np.inf, SHORTEST_CYCLE)):
        walk = _Walk(units, problem, first, 0, 10 * SHORTEST_CYCLE, 3, lengths)
        walk.step(10 * SHORTEST_CYCLE)
        walk.step(1, possible)
        assert walk.cycle_iterations == expected
    assert lengths == {(3, 1): SHORTEST_CYCLE}


def test_a_cooling_that_is_too_long_for_the_time_cools_faster() -> None:
    units = random_units(5)
    start = local_search(units, iterations=1).device_of_unit
    assert start is not None
    walk = _Walk(units, problem_of(fold_directions(units), False, False), start, 0, 1_000_000)
    walk.step(1000)
    assert walk.progress == pytest.approx(0.001)
    for possible in (4000, 3000, 2000, 1000):
        walk.step(1000, possible)
    assert walk.progress == 1.0
    assert walk.done == 5000


@pytest.mark.parametrize("seed", range(10))
def test_baselines(seed: int) -> None:
    units = random_units(4000 + seed)
    free = units._replace(
        forward_time=np.where(np.isfinite(units.forward_time), units.forward_time, 5.0),
        backward_time=np.where(np.isfinite(units.backward_time), units.backward_time, 5.0),
        kind_memory=np.full(len(units.kind_memory), np.inf),
    )
    descent = published_descent(free, seed=seed)
    assert descent.value == pytest.approx(evaluate(free, descent.device_of_unit))
    parts = partition(free, seed=seed)
    assert parts.value == pytest.approx(evaluate(free, parts.device_of_unit))


@pytest.mark.parametrize("seed", range(20))
def test_overlapped_bounds_are_not_priced_on_summed_loads(seed: int) -> None:
    # Compute and copies of like size: a set within the limit when they overlap is far beyond it when they are added.
    units = random_units(5000 + seed)
    scale = np.nanmean(np.where(np.isfinite(units.forward_time), units.forward_time, np.nan)) + 1e-3
    units = units._replace(tensor_in=units.tensor_in + scale, tensor_out=units.tensor_out + scale)
    optimum = brute_force(units, "1f1b", "overlapped")
    if np.isfinite(optimum):
        raised = column_bound(units, lambda: 3 * optimum, 0.0, "overlapped", seconds=3.0, assignments=[])
        assert raised <= optimum * (1 + 1e-7)
