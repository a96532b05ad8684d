"""The affinity map: its code applies it to the model, OpenVINO reads the same affinities back, and results agree."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exported_models import Exports
from placewright import load
from placewright.errors import InputError
from placewright.execute.openvino import read_affinities
from placewright.export import export_placement
from placewright.placement import Placement, checked_placement

openvino = pytest.importorskip("openvino")


def spread(model: str, cluster: str = "cores:2") -> Placement:
    problem = load(model, cluster=cluster)
    device = np.random.default_rng(3).integers(0, 2, problem.n_ops).astype(np.int32)
    return checked_placement(problem, device[problem.group_of_op], placer="test")


@pytest.mark.parametrize("kind", ["xml", "onnx"])
def test_the_code_reproduces_the_affinities(conv_net: Exports, tmp_path: Path, kind: str) -> None:
    path = getattr(conv_net, kind)
    placement = spread(str(path))
    exported = export_placement(placement, "openvino-affinity", tmp_path / "a.json")
    assert [p.name for p in exported.files] == ["a.json", "a.py", *(["a.xml", "a.bin"] if kind == "onnx" else [])]
    path = tmp_path / "a.xml" if kind == "onnx" else path
    code: dict[str, Any] = runpy.run_path(str(tmp_path / "a.py"))
    core = openvino.Core()
    model = core.read_model(path)
    compiled = code["compile_placed"](core, model)
    affinities, wanted = read_affinities(model), json.loads((tmp_path / "a.json").read_text())
    assert set(affinities) == {op.get_friendly_name() for op in model.get_ordered_ops()}
    assert {n: affinities[n] for n in wanted} == wanted
    names = {"core0": "CPU", "core1": "CPU2"}
    computing = [op for op in model.get_ordered_ops() if op.get_type_name() not in ("Constant", "Parameter", "Result")]
    placed = [op.get_friendly_name() for op in computing if op.get_friendly_name() in placement.problem.graph.index_of]
    assert len(placed) > 5
    assert all(affinities[n] == names[placement.device_of(n)] for n in placed if n in wanted)
    assert set(compiled.get_property("EXECUTION_DEVICES")) == {"CPU", "CPU2"}
    alone = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    inputs = [i.numpy() for i in conv_net.inputs]
    np.testing.assert_allclose(compiled(inputs)[0], alone(inputs)[0], atol=1e-4)
    assert "one after another" in exported.losses[0]


def test_the_code_refuses_another_model(conv_net: Exports, attention_block: Exports, tmp_path: Path) -> None:
    export_placement(spread(str(conv_net.xml)), "openvino-affinity", tmp_path / "a.json")
    code = runpy.run_path(str(tmp_path / "a.py"))
    core = openvino.Core()
    with pytest.raises(ValueError, match="not the model of this placement"):
        code["compile_placed"](core, core.read_model(attention_block.xml))


def test_a_zoo_model_brings_its_ir(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    placement = spread("zoo:mobilenet?image=32")
    export_placement(placement, "openvino-affinity", tmp_path / "a.json")
    code = runpy.run_path(str(tmp_path / "a.py"))
    core = openvino.Core()
    model = core.read_model(tmp_path / "a.xml")
    code["apply"](model, json.loads((tmp_path / "a.json").read_text()))
    assert set(read_affinities(model).values()) == {"CPU", "CPU2"}


def test_devices_that_hetero_cannot_use_are_named(conv_net: Exports, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device 'core1' runs in a worker process"):
        export_placement(spread(str(conv_net.xml), "cores:f32+slow"), "openvino-affinity", tmp_path / "a.json")
