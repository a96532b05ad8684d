"""Stopping early, impossible problems and degenerate ones."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest
from pipeline_problems import random_ops

from placewright.placers.pipeline.ideals import solve_ideals
from placewright.placers.pipeline.linear_orders import MAX_CUTS, solve_linear
from placewright.placers.pipeline.stage_loads import build_model, pipeline_value
from placewright.placers.pipeline.units import Ops, build_units


def _sparse(seed: int, op_count: int, **options: float) -> Ops:
    return random_ops(seed, op_count=op_count, edge_share=2.5 / op_count, **options)  # type: ignore[arg-type]


def test_ideal_limit_keeps_the_incumbent() -> None:
    units, _ = build_units(_sparse(1, 60), merge_trivial=False)
    result = solve_ideals(units, max_ideals=1000)
    assert result.status == "too_many_ideals"
    assert result.ideals <= 1000
    assert pipeline_value(build_model(units), result.stages) == pytest.approx(result.value)


def test_deadline_in_the_past_returns_at_once() -> None:
    units, _ = build_units(_sparse(2, 40))
    result = solve_ideals(units, deadline=time.monotonic() - 1)
    assert result.status == "timeout"
    assert not result.stages


def test_callback_stops_the_search() -> None:
    units, _ = build_units(_sparse(3, 24), merge_trivial=False)
    expected = solve_ideals(units)
    assert expected.status == "optimal"
    for limit in (0, 5, 20):
        countdown = iter([False] * limit)
        result = solve_ideals(units, should_stop=partial(next, countdown, True))
        assert result.status == "timeout"
        assert result.value >= expected.value


def test_nothing_fits() -> None:
    ops = random_ops(5, kinds=1, memory_share=0.01)
    result = solve_ideals(build_units(ops)[0])
    assert (result.status, result.value, len(result.stages)) == ("infeasible", np.inf, 0)


def test_no_devices() -> None:
    ops = random_ops(5)._replace(kind_count=np.zeros(2, np.int64))
    assert solve_ideals(build_units(ops)[0]).status == "infeasible"


def test_too_many_device_mixes() -> None:
    ops = random_ops(6, kinds=8)._replace(kind_count=np.full(8, 8))
    units, _ = build_units(ops, merge_trivial=False)
    result = solve_ideals(units)
    assert result.status == "too_many_states"
    assert pipeline_value(build_model(units), result.stages) == pytest.approx(result.value)


def test_same_seed_same_answer() -> None:
    units, _ = build_units(_sparse(7, 80))
    first, second = solve_linear(units, seed=3), solve_linear(units, seed=3)
    assert first.value == second.value


def test_long_orders_are_searched_coarsely() -> None:
    units, _ = build_units(_sparse(8, 2 * MAX_CUTS, transfer_scale=0.1), merge_trivial=False)
    result = solve_linear(units, restarts=0)
    assert result.status == "feasible"
    assert pipeline_value(build_model(units), result.stages) == pytest.approx(result.value)
    placed = np.sort(np.concatenate([stage.units for stage in result.stages]))
    assert np.array_equal(placed, np.arange(units.memory_bytes.size))
