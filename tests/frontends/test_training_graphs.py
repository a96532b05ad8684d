"""Training steps: autograd's own graph for live torch models, the mirror for everything else."""

from __future__ import annotations

import numpy as np
import pytest

from exported_models import Exports
from placewright.api import load, place
from placewright.errors import InputError
from placewright.evaluate import check
from placewright.frontends.registry import read_model
from placewright.graph import OpGraph


@pytest.fixture(scope="module")
def joint(conv_net: Exports) -> OpGraph:
    return read_model((conv_net.module, conv_net.inputs), optimizer="adam")


def test_no_forward_op_waits_for_a_backward_one(joint: OpGraph) -> None:
    assert joint.is_backward.any()
    assert not (joint.is_backward[joint.edge_producer] & ~joint.is_backward[joint.consumer_op]).any()


def test_backward_ops_share_the_class_of_their_module(joint: OpGraph) -> None:
    """Every backward convolution and product is with the forward op of the same module."""
    heavy = [v for v, c in enumerate(joint.op_classes) if c in ("conv", "conv1x1", "depthwise", "matmul")]
    forward = {joint.module_paths[v]: joint.colocation[v] for v in heavy if not joint.is_backward[v]}
    backward = [v for v in heavy if joint.is_backward[v]]
    assert set(forward) == {"stem", "blocks.0", "blocks.1", "head"}
    assert {joint.module_paths[v] for v in backward} == set(forward)
    assert all(joint.colocation[v] == forward[joint.module_paths[v]] >= 0 for v in backward)


def test_backward_work_is_twice_the_forward_work(joint: OpGraph) -> None:
    """Except for the first layer, whose input needs no gradient."""
    flops = {True: 0.0, False: 0.0}
    for v, path in enumerate(joint.module_paths):
        if path in ("blocks.0", "blocks.1", "head") and joint.op_types[v] != "Update":
            flops[bool(joint.is_backward[v])] += joint.flops[v]
    assert flops[True] == pytest.approx(2 * flops[False], rel=0.02)


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 1), ("momentum", 2), ("adam", 3)])
def test_updates_hold_gradients_and_optimizer_state(conv_net: Exports, optimizer: str, copies: int) -> None:
    graph = read_model((conv_net.module, conv_net.inputs), optimizer=optimizer)
    trained = sum(p.nbytes for p in conv_net.module.parameters())
    updates = np.array([t == "Update" for t in graph.op_types])
    assert graph.weight_bytes[updates].sum() == copies * trained
    assert graph.weight_bytes[~updates].sum() >= trained


def test_files_are_mirrored(conv_net: Exports, joint: OpGraph) -> None:
    for path in conv_net.files:
        graph = read_model(path, optimizer="adam")
        assert graph.is_backward.any()
        assert graph.weight_bytes.sum() == pytest.approx(joint.weight_bytes.sum(), rel=0.02)
        assert graph.metadata["fingerprint"] != read_model(path).metadata["fingerprint"]


def test_training_graphs_can_be_placed(conv_net: Exports) -> None:
    problem = load((conv_net.module, conv_net.inputs), cluster="p100x2", objective="throughput", training=True)
    placement = place(problem, placer="topo", budget=5)
    assert placement.device_of_op is not None
    assert check(problem, placement.device_of_op) == ()


def test_buffers_that_a_step_replaces_stay_with_their_readers() -> None:
    torch = pytest.importorskip("torch")

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(8, 8))

        def forward(self, x: object) -> object:
            seen = x @ self.total  # type: ignore[operator]
            self.total += 1
            return seen

    graph = read_model((Counting(), (torch.ones(8, 8),)))
    reader = next(v for v, c in enumerate(graph.op_classes) if c == "matmul")
    writer = next(v for v, t in enumerate(graph.op_types) if "add" in t)
    assert graph.colocation[reader] == graph.colocation[writer] >= 0


def test_wrong_wishes_are_refused(conv_net: Exports) -> None:
    with pytest.raises(InputError, match="optimizer 'adamm' is not known"):
        load(conv_net.onnx, training=True, optimizer="adamm")
    with pytest.raises(InputError, match="training=1"):
        load("zoo:chain", training=True)
