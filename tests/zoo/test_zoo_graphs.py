"""Graphs of the zoo: published sizes, options, and the shape of generated graphs."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.errors import InputError
from placewright.op_classes import OP_CLASSES
from placewright.zoo import MODELS, zoo_graph, zoo_tape
from placewright.zoo.synthetic import REFERENCE_FLOPS_PER_S, REFERENCE_LINK_BYTES_PER_S

# Parameters as the models' authors or the usual implementations state them.
PARAMETERS = {
    "resnet-50": 25_557_032,
    "inception-v3": 23_834_568,  # 27,161,264 with the auxiliary classifier
    "vgg-16": 138_357_544,
    "mobilenet": 3_504_872,
    "unet": 31_037_698,
    "bert-base": 109_482_240,
    "gpt2": 124_439_808,
    "llama": 1_235_814_400,
    "llama?layers=32&hidden=4096&key_heads=32&intermediate=11008&vocabulary=32000&tied=0": 6_738_415_616,
    "moe?layers=32&hidden=4096&intermediate=14336&heads=32&key_heads=8": 46_702_792_704,
}
GIGA_MULTIPLY_ADDS = {"resnet-50": 4.09, "inception-v3": 5.71, "vgg-16": 15.47, "mobilenet": 0.301}
PRODUCTS = ("conv", "conv1x1", "depthwise", "matmul")
TAPES = [name for name, model in MODELS.items() if "dtype" in model.options]


@pytest.mark.parametrize("reference", PARAMETERS)
def test_published_parameters(reference: str) -> None:
    assert zoo_tape(reference).parameters == PARAMETERS[reference]


@pytest.mark.parametrize("reference", GIGA_MULTIPLY_ADDS)
def test_published_work(reference: str) -> None:
    graph = zoo_graph(reference)
    products = sum(f for f, c in zip(graph.flops, graph.op_classes, strict=True) if c in PRODUCTS)
    assert products / 2e9 == pytest.approx(GIGA_MULTIPLY_ADDS[reference], rel=0.01)


def test_inception_has_94_convolutions() -> None:
    assert sum(c.startswith("conv") for c in zoo_graph("inception-v3").op_classes) == 94


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_a_sound_graph(name: str) -> None:
    graph = zoo_graph(name)
    assert set(graph.op_classes) <= set(OP_CLASSES)
    assert np.isfinite(graph.flops).all()
    assert (graph.flops >= 0).all()
    assert (graph.tensor_bytes >= 0).all()
    assert bool(graph.is_backward.any()) == MODELS[name].training


@pytest.mark.parametrize("name", TAPES)
def test_nothing_is_computed_in_vain(name: str) -> None:
    tape = zoo_tape(name)
    used = {(v.op, v.port) for op in tape.ops for v in op.inputs} | {(v.op, v.port) for v in tape.outputs}
    assert all(any((v.op, v.port) in used for v in op.outputs) for op in tape.ops)
    assert all(v.op < op.outputs[0].op for op in tape.ops for v in op.inputs)


@pytest.mark.parametrize("name", TAPES)
def test_no_op_lies_inside_another(name: str) -> None:
    paths = {op.path for op in zoo_tape(name).ops}
    assert not any(path.rsplit(".", cut)[0] in paths for path in paths for cut in range(1, path.count(".") + 1))


def test_gnmt_8_is_large() -> None:
    assert zoo_graph("gnmt-8").n_ops > 50_000


@pytest.mark.parametrize("name", ["resnet-50", "bert-base", "rnnlm-2", "wavenet-2x18"])
def test_work_grows_with_the_batch_and_weights_do_not(name: str) -> None:
    usual = MODELS[name].options["batch"]
    one, two = (zoo_graph(f"{name}?training=0&batch={b}") for b in (usual, 2 * usual))
    assert two.flops.sum() == pytest.approx(2 * one.flops.sum(), rel=0.01)
    tables = sum(w for w, t in zip(two.weight_bytes - one.weight_bytes, two.op_types, strict=True) if t != "Constant")
    assert tables == 0


def test_half_precision_halves_the_bytes() -> None:
    full, half = zoo_graph("resnet-50"), zoo_graph("resnet-50?dtype=float16")
    assert (full.tensor_bytes == 2 * half.tensor_bytes).all()
    assert (full.weight_bytes == 2 * half.weight_bytes).all()
    assert (full.flops == half.flops).all()


def test_experts_share_the_tokens() -> None:
    """Twice the experts do the same work in total."""
    work = [
        sum(f for f, p in zip(g.flops, g.module_paths, strict=True) if p.endswith((".w1", ".w2", ".w3")))
        for g in (zoo_graph("moe?experts=4"), zoo_graph("moe?experts=8"))
    ]
    assert work[0] == work[1] == 8 * 2 * 512 * 2 * 3 * 1024 * 3584


def test_equal_models_have_equal_fingerprints() -> None:
    prints = [zoo_graph(r).metadata["fingerprint"] for r in ("unet", "unet?batch=1", "unet?batch=2", "unet?training=1")]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("resnet", "resnet-50"),
        ("resnet-50?colour=1", "colour"),
        ("resnet-50?batch=0", "from 1"),
        ("resnet-50?batch=1e3", "whole number"),
        ("resnet-50?batch=99999999999", "to 1000000"),
        ("resnet-50?training=2", "0 or 1"),
        ("resnet-50?training=1&optimizer=adagrad", "momentum"),
        ("resnet-50?dtype=int4", "float16"),
        ("inception-v3?image=40", "too small"),
        ("unet?image=40", "multiple of 16"),
        ("bert-base?sequence=513", "at most"),
        ("bert-base?hidden=100", "multiple of 'heads'"),
        ("llama?key_heads=3", "key_heads"),
        ("moe?top=9", "experts"),
        ("transformer-xl-2?heads=7", "heads"),
        ("wavenet-2x18?layers=19", "stacks"),
        ("amoebanet?cells=4", "multiple of 3"),
        ("gnmt-8?steps=1000000", "more than"),
        ("series-parallel?parallel=2", "parallel"),
        ("layered?ccr=-1", "from 0"),
    ],
)
def test_bad_options_are_input_errors(reference: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as raised:
        zoo_graph(reference)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["layered", "fork-join", "series-parallel", "chain"])
def test_ratio_of_copying_to_computing(name: str) -> None:
    graph = zoo_graph(f"{name}?ccr=2")
    copying = graph.tensor_bytes[graph.edge_tensor].sum() / REFERENCE_LINK_BYTES_PER_S
    assert copying == pytest.approx(2 * graph.flops.sum() / REFERENCE_FLOPS_PER_S, rel=1e-4)
    assert (graph.flops == zoo_graph(name).flops).all()


@pytest.mark.parametrize("seed", range(5))
def test_series_parallel_graphs_reduce_to_one_edge(seed: int) -> None:
    graph = zoo_graph(f"series-parallel?ops=40&seed={seed}")
    edges = set(zip(graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True))
    for _ in range(graph.n_ops):
        for v in range(graph.n_ops):
            into, out = [e for e in edges if e[1] == v], [e for e in edges if e[0] == v]
            if len(into) == len(out) == 1:
                edges = (edges - {into[0], out[0]}) | {(into[0][0], out[0][1])}
    assert len(edges) == 1


def test_series_parallel_extremes() -> None:
    assert zoo_graph("series-parallel?ops=30&parallel=0").n_edges == 29
    beside = zoo_graph("series-parallel?ops=30&parallel=1")
    assert beside.n_edges == 1 + 2 * 28
