"""The mirror from inference to training: gradients of everything that has one, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from placewright.api import load, place
from placewright.errors import InputError
from placewright.evaluate import check
from placewright.frontends.training import mirror_training
from placewright.graph import OpGraph, build_graph
from placewright.op_classes import OP_CLASSES
from placewright.testing import random_graph
from placewright.zoo import zoo_graph

SEEDS = range(60)


def random_forward_graph(seed: int) -> OpGraph:
    rng = np.random.default_rng(seed)
    graph = random_graph(
        rng, int(rng.integers(1, 25)), several_outputs=bool(seed % 2), backward=False, classes=seed % 3 == 0
    )
    classes = rng.choice([*OP_CLASSES, ""], graph.n_ops)
    return replace(graph, op_classes=tuple(classes.tolist()))


def reads(graph: OpGraph, name: str) -> set[str]:
    """Names of the ops whose tensors an op reads."""
    v = graph.index_of[name]
    return {
        graph.op_names[graph.tensor_producer[t]]
        for t in graph.input_tensor[graph.input_ptr[v] : graph.input_ptr[v + 1]]
    }


def parts_of(graph: OpGraph) -> dict[str, set[str]]:
    """What the mirror added to each op, by the suffix after the op's name."""
    parts: dict[str, set[str]] = {}
    for name in graph.op_names:
        op, _, suffix = name.partition("/")
        parts.setdefault(op, set()).update([suffix] if suffix else [])
    return parts


@pytest.fixture
def network() -> OpGraph:
    """x -> conv -> relu -> (matmul with a table, add) -> norm: two consumers of relu, one input without gradient."""
    names = ["x", "table", "conv", "relu", "matmul", "add", "norm"]
    tensors = [
        (0, 40.0, [2]),
        (1, 80.0, [4]),
        (2, 16.0, [3]),
        (3, 16.0, [4, 5]),
        (4, 16.0, [5]),
        (5, 16.0, [6]),
        (6, 8.0, []),
    ]
    classes = ["free", "free", "conv", "elementwise", "matmul", "elementwise", "norm"]
    types = ["Parameter", "Variable", "Conv2d", "ReLU", "MatMul", "Add", "LayerNorm"]
    graph, _ = build_graph(
        "network", names, tensors, op_types=types, op_classes=classes, weight_bytes=[0, 80, 400, 0, 0, 0, 4],
        flops=[0, 0, 100, 4, 50, 4, 10], module_paths=names,
    )  # fmt: skip
    return graph


def test_every_rule_on_one_network(network: OpGraph) -> None:
    graph = mirror_training(network)
    assert parts_of(graph) == {
        "x": set(),
        "table": {"update"},
        "conv": {"grad_weight", "update"},  # the image needs no gradient
        "relu": {"grad", "sum_1"},
        "matmul": {"grad_input0", "grad_input1"},
        "add": {"grad"},
        "norm": {"grad", "update"},
        "loss": set(),
    }
    assert reads(graph, "loss") == {"norm"}
    assert reads(graph, "norm/grad") == {"loss", "add"}
    assert reads(graph, "add/grad") == {"norm/grad"}
    assert reads(graph, "relu/sum_1") == {"add/grad", "matmul/grad_input1"}
    assert reads(graph, "relu/grad") == {"relu/sum_1", "relu"}
    assert reads(graph, "matmul/grad_input0") == {"add/grad", "relu"}  # the gradient of the table needs the activation
    assert reads(graph, "matmul/grad_input1") == {"add/grad", "table"}
    assert reads(graph, "conv/grad_weight") == {"relu/grad", "x"}
    assert reads(graph, "table/update") == {"matmul/grad_input0"}
    flops = dict(zip(graph.op_names, graph.flops.tolist(), strict=True))
    assert flops["conv/grad_weight"] == 100
    assert flops["matmul/grad_input0"] == flops["matmul/grad_input1"] == 50
    assert flops["norm/grad"] == 20
    assert flops["add/grad"] == 4


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 2), ("momentum", 3), ("adam", 4)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_memory_of_weights_gradients_and_state(optimizer: str, copies: int, seed: int) -> None:
    forward = random_forward_graph(seed)
    assert mirror_training(forward, optimizer).weight_bytes.sum() == copies * forward.weight_bytes.sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_graph_can_be_mirrored(seed: int) -> None:
    forward = random_forward_graph(seed)
    graph = mirror_training(forward)
    n = forward.n_ops
    assert graph.op_names[:n] == forward.op_names
    assert graph.op_names[n] == "loss"
    assert not graph.is_backward[: n + 1].any()
    assert graph.is_backward[n + 1 :].all()
    owner = [graph.index_of[name.partition("/")[0]] for name in graph.op_names]
    assert all(graph.colocation[v] == graph.colocation[u] >= 0 for v, u in enumerate(owner) if v > n)
    together = forward.colocation >= 0
    assert (graph.colocation[:n][together] == forward.colocation[together]).all()
    assert len(set(graph.colocation[:n][~together])) == (~together).sum()
    added = parts_of(graph)
    assert all("update" in added[op] for op, w in zip(forward.op_names, forward.weight_bytes, strict=True) if w > 0)
    assert (graph.weight_bytes[:n] == forward.weight_bytes).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_summed_and_as_large_as_their_tensors(seed: int) -> None:
    forward = random_forward_graph(seed)
    forward = replace(forward, weight_bytes=np.zeros(forward.n_ops), op_classes=("elementwise",) * forward.n_ops)
    graph = mirror_training(forward)
    new = np.arange(graph.n_tensors)[graph.tensor_producer >= forward.n_ops]
    sizes = Counter(graph.tensor_bytes[new].tolist())
    expected: Counter[float] = Counter()
    for t, size in enumerate(forward.tensor_bytes.tolist()):
        readers = max(1, int(forward.consumer_ptr[t + 1] - forward.consumer_ptr[t]))  # the loss reads results
        expected[size] += 2 * readers - 1  # one gradient per reader, one sum less
    silent = set(range(forward.n_ops)) - set(forward.tensor_producer.tolist())
    expected[0.0] += len(silent)  # ops without outputs count as results
    assert +sizes == +expected


def test_no_gradient_passes_a_stop() -> None:
    names = ["w", "stop", "relu"]
    graph, _ = build_graph(
        "stopped", names, [(0, 8.0, [1]), (1, 8.0, [2]), (2, 8.0, [])], op_types=["Linear", "StopGradient", "ReLU"],
        op_classes=["matmul", "free", "elementwise"], weight_bytes=[8, 0, 0],
    )  # fmt: skip
    assert not mirror_training(graph).is_backward.any()


def test_a_lookup_sends_its_gradient_to_the_table_alone() -> None:
    graph = zoo_graph("gpt2?layers=1&hidden=8&heads=1&sequence=4&vocabulary=10&training=1")
    assert reads(graph, "transformer.wte/grad") == {"transformer.add/grad", "input_ids"}
    assert reads(graph, "transformer.wte_weight/update") == {"transformer.wte_weight/sum_1"}
    assert not any(name.startswith(("input_ids/", "transformer.causal_mask/")) for name in graph.op_names)


def test_bad_input(network: OpGraph) -> None:
    with pytest.raises(InputError, match="adagrad"):
        mirror_training(network, "adagrad")
    with pytest.raises(InputError, match="backward"):
        mirror_training(mirror_training(network))


def test_training_graphs_can_be_placed() -> None:
    problem = load("zoo:wavenet-2x18?layers=4&batch=1", cluster="p100x2")
    placement = place(problem, placer="topo", budget=5)
    assert placement.is_valid
    assert not check(problem, placement.device_of_op)
