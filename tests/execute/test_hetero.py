"""HETERO on two names of one processor: every affinity where the placement wants it, outputs unchanged."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "hetero_affinities.py"
    spec = importlib.util.spec_from_file_location("hetero_affinities", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", ["resnet-50?image=32", "bert-base?sequence=8&layers=2"])
def test_affinities_read_back_and_outputs(model: str) -> None:
    found = benchmark().examined(model, 4, 0)
    assert found["placements"] == 4
    assert found["affinities"] > 4 * 50
    assert found["wrong"] == 0
    assert min(found["submodels"]) >= 1 < max(found["submodels"])
    assert found["max_rel_error"] < 1e-4
