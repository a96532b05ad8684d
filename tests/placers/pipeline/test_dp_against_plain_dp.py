"""Medium problems: pruning and domination lose nothing against the plain dynamic program."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_problems import random_ops
from pipeline_reference_dp import optimum

from placewright.placers.pipeline.ideals import solve_ideals
from placewright.placers.pipeline.stage_loads import Communication, build_model
from placewright.placers.pipeline.units import build_units

SHAPES: list[dict[str, Any]] = [
    {"transfer_scale": 0.05},
    {"transfer_scale": 0.5},
    {"transfer_scale": 2.0},
    {"transfer_scale": 0.5, "memory_share": 0.3},
    {"transfer_scale": 0.5, "training": True},
    {"transfer_scale": 0.1, "training": True, "memory_share": 0.35},
]


@pytest.mark.parametrize("communication", ["added", "overlapped"])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_equals_plain_dynamic_program(shape: int, communication: Communication) -> None:
    for seed in range(8):
        ops = random_ops(1000 + seed, op_count=10, edge_share=0.22, **SHAPES[shape])
        units, _ = build_units(ops, merge_trivial=False)
        expected, ideals = optimum(units, build_model(units, communication))
        result = solve_ideals(units, communication=communication)
        assert result.value == pytest.approx(expected, rel=1e-8, abs=1e-12)
        assert result.ideals == ideals or result.status == "infeasible"
