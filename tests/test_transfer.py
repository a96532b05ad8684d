"""Placements carried between graphs by names."""

from __future__ import annotations

import numpy as np
import pytest

from exported_models import Exports
from placewright.api import load, place
from placewright.errors import InputError
from placewright.frontends.registry import read_model
from placewright.graph import OpGraph, build_graph
from placewright.transfer import HOW, transfer_placement


def graph_of(*ops: tuple[str, str, float], edges: tuple[tuple[int, int], ...] = (), **more: object) -> OpGraph:
    graph, _ = build_graph(
        "g",
        [name for name, _, _ in ops],
        [(u, 1.0, [v]) for u, v in edges],
        module_paths=[path for _, path, _ in ops],
        flops=[flops for _, _, flops in ops],
        **more,  # type: ignore[arg-type]
    )
    return graph


SOURCE = graph_of(("conv", "layer.0.conv", 9.0), ("bias", "layer.0.conv", 1.0), ("norm", "layer.1.norm", 2.0))
DEVICES = np.array([1, 0, 2])


def test_the_same_name_comes_first_even_if_the_path_says_otherwise() -> None:
    moved = transfer_placement(DEVICES, SOURCE, graph_of(("bias", "layer.1.norm", 0.0)))
    assert (moved.device_of_op.tolist(), moved.matched_by) == ([0], ("name",))


def test_among_ops_of_a_path_the_heavy_ones_decide() -> None:
    moved = transfer_placement(DEVICES, SOURCE, graph_of(("other", "layer.0.conv", 0.0)))
    assert (moved.device_of_op.tolist(), moved.matched_by) == ([1], ("path",))


def test_the_longest_common_beginning_of_a_path_decides() -> None:
    moved = transfer_placement(
        DEVICES, SOURCE, graph_of(("a", "layer.1.act", 0.0), ("b", "layer.7", 0.0), ("c", "layer.0.conv.inner", 0.0))
    )
    assert moved.device_of_op.tolist() == [2, 1, 1]
    assert set(moved.matched_by) == {"prefix"}


def test_ops_without_names_in_common_follow_their_neighbours() -> None:
    target = graph_of(("p", "", 0.0), ("q", "", 0.0), ("norm", "", 1.0), ("lonely", "", 0.0), edges=((0, 1), (1, 2)))
    moved = transfer_placement(DEVICES, SOURCE, target)
    assert moved.device_of_op.tolist() == [2, 2, 2, 1]
    assert moved.matched_by == ("neighbour", "neighbour", "name", "default")


def test_classes_of_the_target_stay_together_where_most_work_is() -> None:
    target = graph_of(("conv", "", 5.0), ("norm", "", 1.0), colocation=[0, 0])
    moved = transfer_placement(DEVICES, SOURCE, target)
    assert (moved.device_of_op.tolist(), moved.conflicts) == ([1, 1], 1)


def test_ops_of_the_same_class_count_before_others() -> None:
    source = graph_of(("a", "m", 9.0), ("b", "m", 1.0), op_classes=["conv", "norm"])
    target = graph_of(("x", "m", 1.0), ("y", "m", 1.0), op_classes=["norm", "conv"])
    assert transfer_placement(np.array([0, 1]), source, target).device_of_op.tolist() == [1, 0]


def test_a_graph_to_itself_is_the_identity() -> None:
    problem = load("zoo:layered?ops=60", cluster="p100x2")
    placement = place(problem, placer="topo", budget=2)
    moved = transfer_placement(placement, problem.graph, problem.graph)
    assert placement.device_of_op is not None
    assert moved.device_of_op.tolist() == placement.device_of_op.tolist()
    assert moved.counts == {how: 60 if how == "name" else 0 for how in HOW}


def test_a_placement_of_another_graph_is_refused() -> None:
    with pytest.raises(InputError, match="2 operators"):
        transfer_placement(np.array([0, 1]), SOURCE, SOURCE)


def test_a_zoo_placement_goes_to_every_export_of_its_module() -> None:
    """Op names of the zoo are the modules' paths, which exports keep."""
    pytest.importorskip("torch")
    from placewright.zoo import zoo_graph, zoo_module

    reference = "mobilenet?image=64"
    graph, exported = zoo_graph(reference), read_model(zoo_module(reference))
    devices = np.arange(graph.n_ops) * 3 // graph.n_ops
    moved = transfer_placement(devices, graph, exported)
    wanted = dict(zip(graph.op_names, devices.tolist(), strict=True))
    convolutions = [v for v, c in enumerate(exported.op_classes) if c in ("conv", "conv1x1", "depthwise")]
    assert len(convolutions) > 50
    assert all(moved.device_of_op[v] == wanted[exported.module_paths[v]] for v in convolutions)


def test_torch_to_openvino_keeps_the_heavy_ops(attention_block: Exports) -> None:
    source, target = read_model(attention_block.pt2), read_model(attention_block.xml)
    devices = np.array([{"query": 1, "widen": 2}.get(p, 0) for p in source.module_paths])
    moved = transfer_placement(devices, source, target)
    on = {target.module_paths[v]: int(moved.device_of_op[v]) for v, c in enumerate(target.op_classes) if c == "matmul"}
    assert (on["query"], on["widen"], on["key"], on["narrow"]) == (1, 2, 0, 0)
