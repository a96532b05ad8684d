"""The annotated ONNX model: the checker passes, ONNX Runtime loads it, acts on the settings and computes the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exported_models import Exports
from placewright import load, place
from placewright.cli.main import run
from placewright.errors import InputError
from placewright.export import export_placement
from placewright.placement import Placement, checked_placement

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def halves(model: Path, cluster: str, objective: str = "latency") -> Placement:
    problem = load(str(model), cluster=cluster, objective=objective)
    device = (np.arange(problem.n_ops) >= problem.n_ops // 2).astype(np.int32)
    return checked_placement(problem, device[problem.group_of_op], placer="test")


def outputs(model: Path, inputs: tuple[Any, ...], config: dict[str, str], providers: list[str]) -> tuple[Any, Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    available = [p for p in providers if p in onnxruntime.get_available_providers()]
    session = onnxruntime.InferenceSession(str(model), options, providers=available)
    names = [i.name for i in session.get_inputs()]
    return session, session.run(None, {n: i.numpy() for n, i in zip(names, inputs, strict=True)})


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_checker_passes_and_onnx_runtime_computes_the_same(conv_net: Exports, tmp_path: Path, objective: str) -> None:
    placement = halves(conv_net.onnx, "laptop-npu", objective)
    out = tmp_path / "placed.onnx"
    export_placement(placement, "onnx", out)
    onnx.checker.check_model(str(out), full_check=True)
    model = onnx.load(str(out))
    assert model.ir_version >= 11
    (configuration,) = model.configuration
    assert list(configuration.device) == list(placement.problem.cluster.device_names)
    for node in model.graph.node:
        facts = {p.key: p.value for p in node.metadata_props}
        (plan,) = node.device_configurations
        assert plan.configuration_id == configuration.name
        spec = plan.sharding_spec[0]
        assert configuration.device[spec.device[0]] == facts["placewright.device"]
        if node.name in placement.problem.graph.index_of:
            assert facts["placewright.device"] == placement.device_of(node.name)
        assert plan.HasField("pipeline_stage") == (objective == "throughput")
    _, got = outputs(out, conv_net.inputs, {}, ["CPUExecutionProvider"])
    _, wanted = outputs(conv_net.onnx, conv_net.inputs, {}, ["CPUExecutionProvider"])
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    weights = {i.name: i.raw_data for i in model.graph.initializer}
    assert weights == {i.name: i.raw_data for i in onnx.load(str(conv_net.onnx)).graph.initializer}


def test_settings_are_obeyed_by_onnx_runtime(conv_net: Exports, tmp_path: Path) -> None:
    exported = export_placement(halves(conv_net.onnx, "p100x2"), "ort-settings", tmp_path / "settings.json")
    settings = json.loads((tmp_path / "settings.json").read_text())
    assert [p.name for p in exported.files] == ["settings.json", settings["model"]]
    session, _ = outputs(
        tmp_path / settings["model"], conv_net.inputs, settings["session_config"], settings["providers"]
    )
    assigned = {n.name: s.ep_name for s in session.get_provider_graph_assignment_info() for n in s.get_nodes()}
    assert set(assigned.values()) == {"CPUExecutionProvider"}  # all that is installed here
    assert len(assigned) > 5
    rule = settings["session_config"]["session.layer_assignment_settings"]
    assert rule == "cuda(=gpu0, =gpu1)"
    assert exported.losses == (
        "a session holds a provider once: 'gpu0', 'gpu1' are one device to CUDAExecutionProvider",
    )


def test_settings_of_other_devices(conv_net: Exports, tmp_path: Path) -> None:
    placement = halves(conv_net.onnx, "laptop-npu")
    first, second = (placement.problem.cluster.devices[d] for d in (0, 1))
    export_placement(placement, "ort-settings", tmp_path / "s.json")
    settings = json.loads((tmp_path / "s.json").read_text())
    rule = settings["session_config"]["session.layer_assignment_settings"]
    assert rule == f"{first.kind}(={first.name}); {second.kind}(={second.name})"
    assert settings["providers"] == ["OpenVINOExecutionProvider", "CPUExecutionProvider"]


@pytest.mark.parametrize("name", ["attention_block", "lstm", "branches"])
def test_other_models(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    export_placement(halves(model.onnx, "p100x2"), "onnx", tmp_path / "placed.onnx")
    onnx.checker.check_model(str(tmp_path / "placed.onnx"), full_check=True)
    _, got = outputs(tmp_path / "placed.onnx", model.inputs, {}, ["CPUExecutionProvider"])
    _, wanted = outputs(model.onnx, model.inputs, {}, ["CPUExecutionProvider"])
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_in_other_files_stay_there(conv_net: Exports, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    onnx.save(onnx.load(str(conv_net.onnx)), str(home / "m.onnx"), save_as_external_data=True, size_threshold=64)
    before = {p.name: p.read_bytes() for p in home.iterdir()}
    placement = halves(home / "m.onnx", "laptop-npu")
    with pytest.raises(InputError, match=r"weights of m\.onnx lie in files beside it"):
        export_placement(placement, "onnx", tmp_path / "elsewhere.onnx")
    with pytest.raises(InputError, match="is the model itself"):
        export_placement(placement, "onnx", home / "m.onnx")
    export_placement(placement, "onnx", home / "placed.onnx")
    assert {p.name: p.read_bytes() for p in home.iterdir() if p.name in before} == before
    assert (home / "placed.onnx").stat().st_size < 20_000
    onnx.checker.check_model(str(home / "placed.onnx"))
    _, got = outputs(home / "placed.onnx", conv_net.inputs, {}, ["CPUExecutionProvider"])
    _, wanted = outputs(conv_net.onnx, conv_net.inputs, {}, ["CPUExecutionProvider"])
    np.testing.assert_array_equal(got[0], wanted[0])


def test_a_model_without_onnx_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single").save(tmp_path / "p.json")
    assert run(["export", str(tmp_path / "p.json"), "--to", "onnx", "-o", str(tmp_path / "x.onnx")]) == 2
    assert "only a model read from an .onnx file" in capsys.readouterr().err
    assert run(["export", str(tmp_path / "p.json"), "--to", "ony", "-o", str(tmp_path / "x.onnx")]) == 2
    assert "did you mean 'onnx'" in capsys.readouterr().err
