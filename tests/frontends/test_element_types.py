"""Every element type of ONNX is read: sizes follow from the type, texts are counted small and said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placewright.errors import InputError
from placewright.frontends.base import one_line
from placewright.frontends.registry import read_model

onnx = pytest.importorskip("onnx", reason="models are built with it")
pytest.importorskip("onnx_ir", reason="the extra 'onnx' is not installed")
helper, Type = onnx.helper, onnx.TensorProto
SIZES = {"STRING": 64, "BOOL": 8, "BFLOAT16": 16, "FLOAT8E5M2": 8, "INT4": 4, "FLOAT4E2M1": 4, "COMPLEX128": 128}
SIZES |= {"UINT64": 64, "DOUBLE": 64}


def saved(folder: Path, kinds: tuple[int, int, int], weights: list[Any] | None = None) -> Path:
    """``y = identity(identity(x))`` with the types of x, of what is between, and of y."""
    x, m, y = (helper.make_tensor_value_info(n, k, [3, 4]) for n, k in zip("xmy", kinds, strict=True))
    nodes = [helper.make_node("Identity", ["x"], ["m"]), helper.make_node("Identity", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "types", [x], [y], weights or [], value_info=[m])
    path = folder / "types.onnx"
    onnx.save(helper.make_model(graph, ir_version=11), path)
    return path


@pytest.mark.parametrize("kind", SIZES)
def test_sizes_follow_from_the_type(tmp_path: Path, kind: str) -> None:
    number = getattr(Type, kind)
    graph = read_model(saved(tmp_path, (number, number, number)))
    assert set(graph.tensor_bytes.tolist()) == {12 * SIZES[kind] / 8}
    assert graph.metadata["unknown_shapes"] == (3 if kind == "STRING" else 0)


def test_a_type_that_is_not_said_is_inferred_or_counted_as_usual(tmp_path: Path) -> None:
    graph = read_model(saved(tmp_path, (Type.FLOAT, Type.UNDEFINED, Type.UNDEFINED)))
    assert set(graph.tensor_bytes.tolist()) == {48.0}


def test_an_input_or_a_weight_without_a_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"types\.onnx: input 'x' has no element type"):
        read_model(saved(tmp_path, (Type.UNDEFINED, Type.FLOAT, Type.FLOAT)))
    weight = onnx.TensorProto(dims=[3, 4], data_type=0, name="m", raw_data=bytes(48))
    x, y = (helper.make_tensor_value_info(n, Type.FLOAT, [3, 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "m"], ["y"])], "types", [x], [y], [weight])
    onnx.save(helper.make_model(graph), tmp_path / "weight.onnx")
    with pytest.raises(InputError, match=r"weight\.onnx: initializer 'm' has no element type"):
        read_model(tmp_path / "weight.onnx")


def test_a_loop_keeps_the_types_of_what_it_makes(tmp_path: Path) -> None:
    """The guess for unknown types of op, like their first input, is not for a Loop: that input counts its rounds."""
    import onnx_ir

    from placewright.frontends.onnx_shapes import infer_shapes

    one = helper.make_tensor("one", Type.FLOAT, [1], [1.0])
    rounds = helper.make_tensor("rounds", Type.INT64, [], [3])
    inner = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("i", 7, []), ("c", 9, []), ("a", 1, [None]))]
    outer = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("c2", 9, []), ("a2", 1, [None]))]
    steps = [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Concat", ["a", "one"], ["a2"], axis=0)]
    body = helper.make_graph(steps, "body", inner, outer)
    nodes = [helper.make_node("Loop", ["rounds", "", "x"], ["z"], body=body), helper.make_node("Relu", ["z"], ["y"])]
    x = helper.make_tensor_value_info("x", Type.FLOAT, [2])
    y = helper.make_tensor_value_info("y", Type.FLOAT, [None])
    graph = helper.make_graph(nodes, "loop", [x], [y], [one, rounds])
    model = onnx_ir.from_proto(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]))
    infer_shapes(model, fixed_inputs=False)
    made = next(iter(model.graph)).outputs[0]
    assert made.dtype in (None, onnx_ir.DataType.FLOAT)


def test_what_a_library_says_is_one_line() -> None:
    openvino = RuntimeError(
        "Exception from src/inference/src/cpp/core.cpp:84:\nCheck 'false' failed at src/frontend.cpp:151:\n"
        "FrontEnd API failed with OpConversionFailure:\nModel wasn't fully converted.\nSummary:\n"
        "-- No conversion rule found for operations: my.ops.Wonder\n\n"
    )
    assert one_line(openvino) == "No conversion rule found for operations: my.ops.Wonder"
    ort = RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for MatMul(13)")
    assert one_line(ort) == "Could not find an implementation for MatMul(13)"
    page = RuntimeError("An error occurred with " + "a page of a graph\n" * 200 + "kwargs {}")
    page.__cause__ = ValueError("the input 'x' has no type")
    assert one_line(page) == "the input 'x' has no type"
    assert one_line(KeyError("w")) == "KeyError 'w'"
