"""ONNX, IR and checkpoint files from strangers: no file outside of the model's folder, no code, nothing fetched."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.cli.main import run
from placewright.errors import InputError
from placewright.frontends.registry import read_model


def complaint(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = run([str(argument) for argument in arguments])
    lines = [
        line for line in capsys.readouterr().err.splitlines() if ": loading" not in line and ": opening" not in line
    ]
    assert (code, len(lines)) == (2, 1), lines
    return lines[0]


def external_model(path: Path, location: str) -> Path:
    """A product whose weight lies elsewhere; some exporters keep it in an attribute."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 8], np.ones(64, np.float32).tobytes(), raw=True)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "256")):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    value_of = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    inputs, outputs = (
        [value_of("x", TensorProto.FLOAT, [2, 8])],
        [value_of("y", TensorProto.FLOAT, [2, 8])],
    )
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "inside/../../secret.bin", "/etc/passwd", "C:\\secret", "\\\\host\\share", "..\\secret",
     "link.bin", "linked/secret.bin", "", "a\nb"],
)  # fmt: skip
def test_weights_outside_of_the_models_folder_are_not_read(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(256))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "linked").symlink_to(tmp_path)
    external_model(folder / "stranger.onnx", location)
    monkeypatch.chdir(folder)  # a bare file name has no folder in it
    for model in ("stranger.onnx", folder / "stranger.onnx"):
        assert "stranger.onnx" in complaint(capsys, "place", model, "--placer", "single")
    profile = ("profile", "stranger.onnx", "--cluster", "cores:1", "--repeats", "1", "-o", "times.json")
    assert "stranger.onnx" in complaint(capsys, *profile)
    for runtime in ("openvino", "onnxruntime"):
        placement = folder / "placement.json"
        (folder / "w.bin").write_bytes(np.ones(64, np.float32).tobytes())
        external_model(folder / "fine.onnx", "w.bin")
        assert run(["place", "fine.onnx", "--cluster", "cores:2", "--placer", "single", "-o", str(placement)]) == 0
        capsys.readouterr()
        placement.write_text(placement.read_text().replace("fine.onnx", "stranger.onnx"))
        assert "stranger.onnx" in complaint(capsys, "run", "stranger.onnx", placement, "--runtime", runtime)


def test_weights_beside_the_model_and_below_are_read(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "w.bin").write_bytes(bytes(256))
    (tmp_path / "link.bin").symlink_to(tmp_path / "parts" / "w.bin")
    for location in ("parts/w.bin", "link.bin", "not-here.bin"):
        assert read_model(external_model(tmp_path / "m.onnx", location)).weight_bytes.sum() == 256


@pytest.mark.parametrize(
    ("domain", "kind"), [("com.microsoft", "EPContext"), ("com.microsoft", "PythonOp"), ("com.microsoft", "ATen")]
)
def test_onnx_nodes_that_are_code_are_refused(domain: str, kind: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    value_of = helper.make_tensor_value_info
    node = helper.make_node(kind, ["x"], ["y"], name="n", domain=domain, ep_cache_context="../evil.so", embed_mode=0)
    graph = helper.make_graph(
        [node], "g", [value_of("x", TensorProto.FLOAT, [2])], [value_of("y", TensorProto.FLOAT, [2])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "code.onnx")
    with pytest.raises(InputError, match=f"{kind}.*not run"):
        read_model(tmp_path / "code.onnx")


def test_ir_that_wants_an_extension_loads_nothing(
    conv_net: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Layers of an unknown set, with whatever attributes: OpenVINO loads libraries only when its caller names them."""
    text = conv_net.xml.read_text()
    shutil.copy(conv_net.xml.with_suffix(".bin"), tmp_path / "custom.bin")
    at = text.index('type="Convolution"')
    changed = text[:at] + text[at:].replace('version="opset1"', 'version="extension" library="evil.so"', 1)
    (tmp_path / "custom.xml").write_text(changed.replace('type="Convolution"', 'type="EvilLayer"', 1))
    (tmp_path / "evil.so").write_bytes(b"\x7fELF")
    assert "custom.xml" in complaint(capsys, "place", tmp_path / "custom.xml", "--placer", "single")


TINY = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2,
    "vocab_size": 16, "n_positions": 16,
}  # fmt: skip
REMOTE = {
    "auto_map": {"auto_map": {"AutoConfig": "evil_config.C", "AutoModelForCausalLM": "evil_config.C"}},
    "auto_map-of-the-hub": {"auto_map": {"AutoConfig": "someone/something--evil_config.C"}},
    "auto_map-inside": {"text_config": {"auto_map": {"AutoConfig": "evil_config.C"}}},
    "unknown-type": {"model_type": "evil", "auto_map": {"AutoConfig": "evil_config.C"}},
    "trust": {"trust_remote_code": True},
    "kernel": {"attn_implementation": "someone/evil-kernel"},
    "kernel-private": {"_attn_implementation": "someone/evil-kernel"},
    "other-file": {"configuration_files": ["config.4.0.0.json"]},
    "backbone": {"backbone": "someone/evil", "use_pretrained_backbone": True},
    "dtype-function": {"dtype": "load"},
    "dtype-number": {"torch_dtype": 2},
    "architecture-number": {"architectures": -1},
    "architecture-list": {"architectures": [["x"]]},
    "list": [],
}


@pytest.mark.parametrize("name", REMOTE)
def test_configurations_that_ask_for_code_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    marker, folder = tmp_path / "sprung", tmp_path / "model"
    folder.mkdir()
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nclass C:\n    pass\n"
    (folder / "evil_config.py").write_text(code)
    change = REMOTE[name]
    (folder / "config.json").write_text(json.dumps({**TINY, **change} if isinstance(change, dict) else change))
    (folder / "config.4.0.0.json").write_text(json.dumps({**TINY, "auto_map": {"AutoConfig": "evil_config.C"}}))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(folder))
    assert "model" in complaint(capsys, "place", f"hf:{folder}?tokens=4", "--placer", "single")
    assert not marker.exists()
    assert "evil_config" not in sys.modules
    assert not os.path.exists(tmp_path / "modules" / "transformers_modules")


@pytest.mark.parametrize("architecture", ["pipeline", "AutoTokenizer", "Trainer", "logging", "utils", "__class__"])
def test_architectures_are_models_and_nothing_else(
    architecture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "architectures": [architecture]}))
    told = complaint(capsys, "place", f"hf:{tmp_path}?tokens=4", "--placer", "single")
    assert f"'{architecture}' as its architecture, which is no model" in told


def test_architectures_that_nobody_knows_are_left_to_the_type_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from placewright.live.hf import empty_model

    for architectures, made in ((["TheirsForCausalLM"], "GPT2Model"), (["GPT2LMHeadModel"], "GPT2LMHeadModel")):
        (tmp_path / "config.json").write_text(json.dumps({**TINY, "architectures": architectures}))
        assert type(empty_model(tmp_path)).__name__ == made
