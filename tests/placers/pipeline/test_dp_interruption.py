"""Cutting the search into tiny calls, or sharing it among threads, changes nothing."""

from __future__ import annotations

import pytest
from pipeline_problems import random_ops

from placewright.placers.pipeline import thresholds
from placewright.placers.pipeline.ideals import solve_ideals
from placewright.placers.pipeline.units import build_units


@pytest.mark.parametrize("visits_per_call", [1, 3, 17])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_slicing_gives_the_optimum(monkeypatch: pytest.MonkeyPatch, visits_per_call: int, threads: int) -> None:
    for seed in range(6):
        ops = random_ops(seed, op_count=12, edge_share=0.2, training=seed % 2 == 1)
        units, _ = build_units(ops, merge_trivial=False)
        expected = solve_ideals(units, threads=1)
        with monkeypatch.context() as patch:
            patch.setattr(thresholds, "_VISITS_PER_CALL", visits_per_call)
            patch.setattr(thresholds, "_PARALLEL_VISITS", -1)
            result = solve_ideals(units, threads=threads)
        assert result.status == expected.status == "optimal"
        assert result.value == pytest.approx(expected.value, rel=1e-9)
