"""``next:`` proposes to run a placement only where that can work, with the runtime that is there."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from placewright import load
from placewright.cli import guidance

EVERYTHING = ("openvino", "torch", "onnxruntime", "onnx_ir")
MLP = "zoo:mobilenet?image=32"


@pytest.mark.parametrize(
    ("model", "cluster", "packages", "words"),
    [
        ("m.onnx", "cores:2", EVERYTHING, ["run", "m.onnx", "p.json"]),
        ("m.onnx", "cores:2", ("onnxruntime", "onnx_ir"), ["run", "m.onnx", "p.json", "--runtime", "onnxruntime"]),
        ("m.onnx", "cores:2", (), None),
        ("m.xml", "cores:2", ("torch",), None),
        ("m.pt2", "cores:2", ("torch",), ["run", "m.pt2", "p.json"]),
        (MLP, "cores:2", EVERYTHING, ["run", MLP, "p.json"]),
        (MLP, "cores:2", ("torch",), ["run", MLP, "p.json", "--runtime", "torch"]),
        (MLP, "cores:2", ("openvino",), None),
        ("zoo:chain?ops=8", "cores:2", EVERYTHING, None),
        ("m.json", "cores:2", EVERYTHING, None),
        ("m.onnx", "p100x2", ("onnxruntime", "onnx_ir"), None),
    ],
)
def test_running_is_proposed_where_it_can_work(
    model: str, cluster: str, packages: Collection[str], words: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = load("zoo:chain?ops=8", cluster=cluster)
    monkeypatch.setattr(guidance, "has_package", lambda name: name in packages)
    assert guidance.run_words(model, "p.json", problem) == words
