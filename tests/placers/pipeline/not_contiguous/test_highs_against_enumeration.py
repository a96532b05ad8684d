"""The mixed-integer programme against enumeration on random small problems."""

from __future__ import annotations

import numpy as np
import pytest
from assignment_problems import brute_force, random_units

from placewright.placers.pipeline.not_contiguous.exact_process import ExactProcess, Settings
from placewright.placers.pipeline.not_contiguous.highs_programme import Programme, run
from placewright.placers.pipeline.not_contiguous.units import evaluate

MODES = [("1f1b", "added"), ("1f1b", "overlapped"), ("gpipe", "added"), ("gpipe", "overlapped")]


@pytest.mark.parametrize("seed", range(60))
def test_programme(seed: int) -> None:
    units = random_units(6000 + seed)
    mode = MODES[seed % 4]
    optimum = brute_force(units, *mode)
    settings = Settings(*mode, "none", 60.0, 1, 0, np.inf, None)
    values, bounds = [], []
    status = run(
        Programme(units, settings),
        settings,
        lambda device_of_unit: values.append(evaluate(units, device_of_unit, *mode)),
        bounds.append,
    )
    if not np.isfinite(optimum):
        assert status == "infeasible"
        return
    assert status == "optimal"
    assert min(values) == pytest.approx(optimum, rel=1e-6, abs=1e-9)
    assert max(bounds, default=0.0) <= optimum * (1 + 1e-9)
    assert max(bounds, default=0.0) >= optimum * (1 - 1e-5)


@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_process(solver: str) -> None:
    units = random_units(6)
    optimum = brute_force(units, "1f1b", "added")
    settings = Settings("1f1b", "added", "none", 60.0, 1, 0, np.inf, None)
    process = ExactProcess(units, settings, solver)
    messages = []
    try:
        while not process.finished:
            messages += process.messages()
    finally:
        process.close()
    assert [m.status for m in messages if m.status != "unknown"] == ["optimal"]
    solutions = [evaluate(units, m.solution) for m in messages if m.solution is not None]
    assert min(solutions) == pytest.approx(optimum, rel=1e-6)
    assert max(m.bound for m in messages) == pytest.approx(optimum, rel=1e-5)
