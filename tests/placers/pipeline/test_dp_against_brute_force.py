"""The exact search equals brute force over placements of the original operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pipeline_brute_force import best_value
from pipeline_problems import random_ops

from placewright.placers.pipeline.ideals import solve_ideals
from placewright.placers.pipeline.linear_orders import solve_linear
from placewright.placers.pipeline.stage_loads import Pipeline, build_model, pipeline_value
from placewright.placers.pipeline.units import Floats, Ints, Units, build_units

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "wide": {"edge_share": 0.15, "op_count": 7},
    "free transfers": {"transfer_scale": 0.0, "op_count": 7},
    "cheap transfers": {"transfer_scale": 0.1, "op_count": 7},
    "dear transfers": {"transfer_scale": 4.0},
    "tight memory": {"memory_share": 0.35},
    "too tight memory": {"memory_share": 0.2, "kinds": 1},
    "one kind": {"kinds": 1, "max_devices": 4},
    "three kinds": {"kinds": 3, "max_devices": 2},
    "unsupported": {"unsupported_share": 0.25, "kinds": 3},
    "classes": {"group_share": 0.4, "op_count": 7},
    "training": {"training": True, "op_count": 4},
    "training classes": {"training": True, "op_count": 4, "group_share": 0.4},
    "training memory": {"training": True, "op_count": 4, "memory_share": 0.4},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "added": {},
    "overlapped": {"communication": "overlapped"},
    "replicated": {"max_replicas": 2},
    "replicated overlapped": {"max_replicas": 3, "communication": "overlapped"},
}
SEEDS = 15
Options = dict[str, Any]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_equals_brute_force(setting: str, variant: str) -> None:
    for seed in range(SEEDS):
        ops = random_ops(seed, **SETTINGS[setting])
        options = dict(VARIANTS[variant])
        units, unit_of_op = build_units(ops, merge_trivial=False)
        op_sync = None
        if "max_replicas" in options:
            op_sync = np.random.default_rng(seed).random(ops.op_time.shape)
            options["sync_cost"] = _per_unit(op_sync, unit_of_op)
        expected = best_value(ops, options.get("communication", "added"), options.get("max_replicas", 1), op_sync)
        result = solve_ideals(units, threads=1 + seed % 2, **options)
        _check(units, result, expected, options)
        linear = solve_linear(units, **options)
        assert linear.value >= expected * (1 - 1e-9)
        if linear.stages:
            _check_valid(units, linear, options)


@pytest.mark.parametrize("seed", range(40))
def test_merging_is_lossless_for_inference_with_room(seed: int) -> None:
    ops = random_ops(seed, edge_share=0.2, op_count=7)
    merged, _ = build_units(ops)
    assert solve_ideals(merged).value == pytest.approx(best_value(ops), rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_merging_never_finds_less_than_the_optimum(seed: int) -> None:
    ops = random_ops(seed, training=seed % 2 == 0, op_count=4, memory_share=0.4, edge_share=0.3)
    merged, _ = build_units(ops)
    assert solve_ideals(merged).value >= best_value(ops) * (1 - 1e-9)


def _per_unit(op_sync: Floats, unit_of_op: Ints) -> Floats:
    total = np.zeros((unit_of_op.max() + 1, op_sync.shape[1]))
    np.add.at(total, unit_of_op, op_sync)
    return total


def _check(units: Units, result: Pipeline, expected: float, options: Options) -> None:
    if expected == np.inf:
        assert result.status == "infeasible"
        assert not result.stages
        return
    assert result.status == "optimal"
    assert result.value == pytest.approx(expected, rel=1e-8, abs=1e-12)
    _check_valid(units, result, options)


def _check_valid(units: Units, result: Pipeline, options: Options) -> None:
    """Every unit once, devices and memory respected, stages in pipeline order, value as stated."""
    model = build_model(units, **options)
    assert pipeline_value(model, result.stages) == pytest.approx(result.value, rel=1e-12)
    placed = np.concatenate([stage.units for stage in result.stages])
    assert np.array_equal(np.sort(placed), np.arange(units.memory_bytes.size))
    used = np.zeros(units.kind_count.size, np.int64)
    stage_of = np.empty(placed.size, np.int64)
    for number, stage in enumerate(result.stages):
        used[stage.kind] += stage.replicas
        stage_of[stage.units] = number
    assert (used <= units.kind_count).all()
    source = np.repeat(np.arange(placed.size), np.diff(units.successor_ptr))
    assert (stage_of[source] <= stage_of[units.successor]).all()
