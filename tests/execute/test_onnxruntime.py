"""The ONNX Runtime executor: outputs unchanged, providers read back, errors that name the op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ir = pytest.importorskip("onnx_ir", reason="the extra 'onnx' is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")

from placewright.errors import InputError  # noqa: E402
from placewright.execute.onnxruntime import OrtRun, OrtSetup  # noqa: E402
from placewright.frontends.registry import read_model  # noqa: E402

SETUPS = {"core0": OrtSetup(threads=1), "core1": OrtSetup(threads=1)}


@pytest.fixture(scope="module")
def model() -> Any:
    """A stem with an unnamed activation, two branches that share a weight, a join, two results."""
    rng = np.random.default_rng(0)
    weight = ir.val("weight", const_value=ir.tensor((rng.standard_normal((8, 8, 3, 3)) * 0.1).astype(np.float32)))
    x = ir.val("x", dtype=ir.DataType.FLOAT, shape=[1, 8, 12, 12])

    def convolution(value: Any, name: str) -> Any:
        attributes = {"pads": [1, 1, 1, 1]}
        return ir.node("Conv", [value, weight], attributes, name=name, outputs=[ir.val(f"{name}_out")])

    stem = convolution(x, "stem")
    relu = ir.node("Relu", stem.outputs, outputs=[ir.val("features", dtype=ir.DataType.FLOAT, shape=[1, 8, 12, 12])])
    left, right = convolution(relu.outputs[0], "left"), convolution(relu.outputs[0], "right")
    join = ir.node("Add", [left.outputs[0], right.outputs[0]], name="join", outputs=[ir.val("sum")])
    mean = ir.val("mean", dtype=ir.DataType.FLOAT, shape=[1, 8, 1, 1])
    head = ir.node("GlobalAveragePool", join.outputs, name="head", outputs=[mean])
    graph = ir.Graph(
        [x], [mean, relu.outputs[0]], nodes=[stem, relu, left, right, join, head], initializers=[weight],
        opset_imports={"": 17}, name="branches",
    )  # fmt: skip
    return ir.Model(graph, ir_version=9)


@pytest.fixture(scope="module")
def op_names(model: Any) -> list[str]:
    return [name for name in read_model(model, {}).op_names if name != "x"]


def test_outputs_do_not_depend_on_the_placement(model: Any, op_names: list[str]) -> None:
    rng = np.random.default_rng(1)
    sample = rng.standard_normal((1, 8, 12, 12)).astype(np.float32)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    expected = session.run(None, {"x": sample})
    for _ in range(8):
        starts = {name: float(rng.random()) for name in op_names}
        run = OrtRun(model, {name: f"core{rng.integers(2)}" for name in op_names}, SETUPS, starts)
        try:
            for ours, theirs in zip(run([sample]), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
            assignments = run.assignments()  # what the runtime fused or found twice is not there
            assert set(assignments) <= set(op_names)
            assert {"stem", "join"} <= set(assignments)
            assert set(assignments.values()) == {"CPUExecutionProvider"}
        finally:
            run.close()


def test_an_op_without_a_device_is_named(model: Any, op_names: list[str]) -> None:
    with pytest.raises(InputError, match="no device for operator 'left' \\(Conv\\)"):
        OrtRun(model, {name: "core0" for name in op_names if name != "left"}, SETUPS)


def test_a_provider_that_is_not_there_is_named(model: Any, op_names: list[str]) -> None:
    with pytest.raises(InputError, match="device 'gpu' needs ONNX Runtime's 'NoSuchProvider'"):
        OrtRun(model, dict.fromkeys(op_names, "gpu"), {"gpu": OrtSetup("NoSuchProvider")})
