"""What is tied to what: constants, shape chains, results, state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placewright.errors import InputError
from placewright.frontends.assemble import OpRecord, TensorInfo, assemble
from placewright.frontends.registry import read_model
from placewright.graph import OpGraph
from placewright.reductions import contract


def op(name: str, *inputs: tuple[int, int], role: str = "compute", weight: float = 0.0, size: float = 8.0) -> OpRecord:
    output = TensorInfo(name, (2,), size)
    return OpRecord(
        name,
        "T",
        "elementwise",
        1.0,
        list(inputs),
        [output],
        weight_bytes=weight,
        role=role,  # type: ignore[arg-type]
    )


def edges(graph: OpGraph) -> dict[tuple[str, str], float]:
    return {
        (graph.op_names[u], graph.op_names[v]): float(graph.tensor_bytes[t])
        for u, v, t in zip(graph.edge_producer, graph.consumer_op, graph.edge_tensor, strict=True)
    }


def classes(graph: OpGraph) -> set[frozenset[str]]:
    groups: dict[int, set[str]] = {}
    for name, c in zip(graph.op_names, graph.colocation.tolist(), strict=True):
        if c >= 0:
            groups.setdefault(c, set()).add(name)
    return {frozenset(g) for g in groups.values()}


def test_a_shared_constant_is_charged_to_its_first_reader_and_free_for_the_others() -> None:
    graph = assemble(
        "g",
        [
            op("x", role="input"),
            op("w", role="constant", weight=64.0),
            op("a", (0, 0), (1, 0)),
            op("b", (2, 0), (1, 0)),
        ],
        "test",
        "here",
    )
    assert classes(graph) == {frozenset({"w", "a"})}
    assert dict(zip(graph.op_names, graph.weight_bytes, strict=True)) == {"x": 0, "w": 0, "a": 64, "b": 0}
    assert edges(graph) == {("x", "a"): 8, ("w", "a"): 0, ("w", "b"): 0, ("a", "b"): 8}
    assert graph.op_classes[graph.index_of["w"]] == "free"


def test_what_is_computed_from_constants_only_is_a_constant() -> None:
    graph = assemble(
        "g",
        [op("w", role="constant", weight=32.0), op("convert", (0, 0)), op("x", role="input"), op("y", (1, 0), (2, 0))],
        "test",
        "here",
    )
    assert classes(graph) == {frozenset({"w", "convert", "y"})}
    assert graph.flops.sum() == 2.0  # x and y
    assert graph.weight_bytes[graph.index_of["y"]] == 32


def test_a_shape_chain_belongs_to_the_op_that_needs_the_shape() -> None:
    graph = assemble(
        "g",
        [
            op("x", role="input"),
            op("shape", (0, 0), role="shape"),
            op("index", role="constant"),
            op("gather", (1, 0), (2, 0)),
            op("work", (0, 0)),
            op("reshape", (4, 0), (3, 0)),
        ],
        "test",
        "here",
    )
    assert classes(graph) == {frozenset({"shape", "index", "gather", "reshape"})}
    moved = edges(graph)
    assert moved["x", "shape"] == moved["shape", "gather"] == moved["gather", "reshape"] == 0
    assert moved["x", "work"] == moved["work", "reshape"] == 8


def test_results_follow_their_producer() -> None:
    graph = assemble("g", [op("x", role="input"), op("y", (0, 0)), op("end", (1, 0), role="result")], "test", "here")
    assert classes(graph) == {frozenset({"y", "end"})}


def test_ops_may_come_in_any_order_but_not_in_a_circle() -> None:
    graph = assemble("g", [op("b", (1, 0)), op("a", role="input")], "test", "here")
    assert graph.op_names == ("a", "b")
    with pytest.raises(InputError, match="here: the operators form a cycle"):
        assemble("g", [op("a", (1, 0)), op("b", (0, 0))], "test", "here")
    with pytest.raises(InputError, match="no operators"):
        assemble("g", [], "test", "here")


def test_tied_ops_can_always_be_merged_with_what_they_are_tied_to() -> None:
    """On random graphs, one op per colocation class never closes a circle."""
    from placewright.api import load
    from placewright.cluster_file import load_cluster

    cluster = load_cluster("p100x2")
    for seed in range(200):
        rng = np.random.default_rng(seed)
        records: list[OpRecord] = []
        for v in range(int(rng.integers(2, 25))):
            count = min(v, int(rng.integers(0, 4)))
            read = [(int(u), 0) for u in rng.choice(v, count, replace=False)] if count else []
            role = str(rng.choice(["compute", "shape"])) if read else str(rng.choice(["input", "constant"]))
            records.append(op(f"op{v}", *read, role=role, weight=1.0 if role == "constant" else 0.0))
        graph = assemble("g", records, "test", "here")
        problem = load(graph, cluster=cluster)
        assert contract(problem, problem.group_of_op).problem.n_ops == len(set(problem.group_of_op.tolist()))


def test_the_ends_of_a_variable_share_a_device(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    from openvino import opset13

    x = opset13.parameter([1, 3], np.float32, name="x")
    state = opset13.read_value(opset13.constant(np.zeros((1, 3), np.float32)), "memory")
    total = opset13.add(x, state)
    total.set_friendly_name("total")
    sink = opset13.assign(total, "memory")
    model = openvino.Model([opset13.result(opset13.multiply(total, total))], [sink], [x], "stateful")
    graph = read_model(model)
    on = {graph.op_types[v]: int(graph.colocation[v]) for v in range(graph.n_ops)}
    assert on["ReadValue"] == on["Assign"] >= 0
    assert on["Add"] == -1
    assert graph.flops[graph.index_of["total"]] == 3  # state is data, however it began


def test_small_types_are_packed() -> None:
    openvino = pytest.importorskip("openvino")
    from openvino import opset13

    packed = openvino.Tensor(np.zeros(32, np.uint8), [8, 8], openvino.Type.u4)
    weights = opset13.multiply(opset13.convert(openvino.op.Constant(packed), "f32"), np.float32(0.5))
    x = opset13.parameter([2, 8], np.float32, name="x")
    product = opset13.matmul(x, weights, False, True)
    graph = read_model(openvino.Model([opset13.result(product)], [x], "packed"))
    (heavy,) = [v for v, c in enumerate(graph.op_classes) if c == "matmul"]
    assert graph.weight_bytes[heavy] == 8 * 8 // 2 + 4
    assert graph.flops.sum() == graph.flops[heavy] == 2 * 2 * 8 * 8


def test_loops_count_every_round() -> None:
    onnx_ir = pytest.importorskip("onnx_ir")
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("MatMul", ["state", "w"], ["next"])],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("state", TensorProto.FLOAT, [4, 4]),
        ],
        [value("on", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, [4, 4])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["rounds", "", "x"], ["y"], name="loop", body=body)],
        "g",
        [value("x", TensorProto.FLOAT, [4, 4]), value("w", TensorProto.FLOAT, [4, 4])],
        [value("y", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor("rounds", TensorProto.INT64, [], [10])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    read = read_model(onnx_ir.from_proto(model))
    assert read.flops[read.index_of["loop"]] == 10 * 2 * 4 * 4 * 4
    assert ("w", "loop") in edges(read)
    assert read.metadata["unknown_iterations"] == 0
