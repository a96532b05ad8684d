"""The same model from OpenVINO, ONNX and torch files: the same work, the same weights, one placement for all."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from exported_models import Exports
from placewright.api import load, place
from placewright.evaluate import check
from placewright.frontends.registry import read_model
from placewright.graph import OpGraph
from placewright.transfer import transfer_placement

MODELS = ("conv_net", "attention_block", "lstm", "branches")
SUFFIXES = (".xml", ".onnx", ".pt2")


@pytest.fixture(scope="module", params=MODELS)
def exports(request: pytest.FixtureRequest) -> Exports:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def graphs(exports: Exports) -> dict[str, OpGraph]:
    return {path.suffix: read_model(path) for path in exports.files}


def test_flops_agree_within_two_percent(graphs: dict[str, OpGraph]) -> None:
    flops = [graph.flops.sum() for graph in graphs.values()]
    assert 0 < max(flops) <= 1.02 * min(flops)


def test_weights_agree_within_one_percent(graphs: dict[str, OpGraph]) -> None:
    weights = [graph.weight_bytes.sum() for graph in graphs.values()]
    assert 0 < max(weights) <= 1.01 * min(weights)


def test_nothing_in_them_is_unknown(graphs: dict[str, OpGraph]) -> None:
    for graph in graphs.values():
        assert graph.metadata["unknown_op_types"] == {}
        assert not graph.metadata.get("unknown_shapes")


def test_a_module_with_inputs_is_read_like_its_archive(exports: Exports, graphs: dict[str, OpGraph]) -> None:
    live = read_model((exports.module, exports.inputs))
    assert live.metadata["fingerprint"] == graphs[".pt2"].metadata["fingerprint"]
    assert live.flops.tolist() == graphs[".pt2"].flops.tolist()


def test_a_placement_of_one_file_is_valid_for_the_others(exports: Exports) -> None:
    """Heavy ops of one module stay where they were put, whichever format they came from."""
    problems = {path.suffix: load(path, cluster="p100x2") for path in exports.files}
    for a, b in itertools.permutations(SUFFIXES, 2):
        source, target = problems[a].graph, problems[b].graph
        modules = sorted({p.split(".")[0] for p in source.module_paths if p})
        wanted = {m: i % 2 for i, m in enumerate(modules)}
        devices = np.array([wanted.get(p.split(".")[0], 0) for p in source.module_paths])
        moved = transfer_placement(devices, source, target)
        assert check(problems[b], moved.device_of_op) == ()
        assert sum(moved.counts.values()) == target.n_ops
        for v, path in enumerate(target.module_paths):
            # Elsewhere a colocation class may have drawn a light op to its heavy neighbours.
            if path.split(".")[0] in wanted and target.op_classes[v] in ("conv1x1", "matmul", "recurrent"):
                assert moved.device_of_op[v] == wanted[path.split(".")[0]]


def test_models_can_be_placed(exports: Exports) -> None:
    for path in exports.files:
        placement = place(load(path, cluster="laptop-npu"), placer="topo", budget=5)
        assert placement.is_valid
        assert placement.value > 0


@pytest.mark.parametrize(
    ("name", "flops", "weight_bytes"),
    [("resnet50", 8.2e9, 102e6), ("densenet121", 5.7e9, 32e6), ("shufflenet", 0.26e9, 5.7e6), ("vgg19", 39e9, 574e6)],
)
def test_published_onnx_graphs_have_their_published_size(name: str, flops: float, weight_bytes: float) -> None:
    """Graphs of old opsets without shapes inside; their weights are made by nodes."""
    onnx = pytest.importorskip("onnx")
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    if not path.is_file():
        pytest.skip("this onnx package has no light models")
    graph = read_model(path)
    assert graph.metadata["unknown_op_types"] == {}
    assert graph.metadata["unknown_shapes"] == 0
    assert graph.flops.sum() == pytest.approx(flops, rel=0.03)
    assert graph.weight_bytes.sum() == pytest.approx(weight_bytes, rel=0.03)


def test_control_flow_is_kept_whole(branches: Exports) -> None:
    for path in branches.files:
        graph = read_model(path)
        (choice,) = [v for v in range(graph.n_ops) if graph.op_classes[v] == "control"]
        assert graph.flops[choice] == 2 * 2 * 3 * 3  # the dearer branch
        assert graph.weight_bytes.sum() == 36
        producers = {graph.op_names[u] for u in graph.edge_producer[graph.consumer_op == choice]}
        assert {"x"} < producers  # read inside the branches only


def test_recurrent_layers_are_one_op(lstm: Exports) -> None:
    for path in lstm.files:
        graph = read_model(path)
        (layer,) = [v for v in range(graph.n_ops) if graph.op_classes[v] == "recurrent"]
        rows, hidden, width = 2 * 8, 128, 64
        assert graph.flops[layer] >= 2 * rows * 2 * 4 * hidden * (hidden + width)


def test_several_outputs_are_several_tensors(conv_net: Exports) -> None:
    graph = read_model(conv_net.pt2)
    split = graph.index_of["split"]
    assert graph.tensor_ptr[split + 1] - graph.tensor_ptr[split] == 2
    assert "getitem" not in "".join(graph.op_names)


def test_an_op_that_lost_its_name_has_the_path_of_what_was_folded_into_it(conv_net: Exports) -> None:
    graph = read_model(conv_net.xml)
    (stem,) = [v for v, c in enumerate(graph.op_classes) if c == "conv"]
    assert "stem" not in graph.op_names[stem]
    assert graph.module_paths[stem] == "norm"


def test_scopes_that_exporters_leave_become_paths() -> None:
    onnx_ir = pytest.importorskip("onnx_ir")
    x = onnx_ir.val("x", onnx_ir.DataType.FLOAT, [2, 3])
    node = onnx_ir.node("Relu", [x], name="node_7", num_outputs=1)
    node.metadata_props["pkg.torch.onnx.name_scopes"] = "['', 'encoder', 'encoder.layer.0', 'encoder.layer.0.act', 'r']"
    node.outputs[0].name = "y"
    model = onnx_ir.Model(onnx_ir.Graph([x], [node.outputs[0]], nodes=[node], opset_imports={"": 17}), ir_version=9)
    graph = read_model(model)
    assert graph.module_paths[graph.index_of["node_7"]] == "encoder.layer.0.act"


def test_module_paths_are_the_modules(attention_block: Exports) -> None:
    for path in attention_block.files:
        graph = read_model(path)
        found = {graph.module_paths[v] for v in range(graph.n_ops) if graph.op_classes[v] == "matmul"}
        assert {"query", "key", "value", "output", "widen", "narrow"} <= found
