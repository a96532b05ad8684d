"""HSDAG's graphs, rebuilt as OpenVINO IR: counts, groups, clusters at random weights, and placements by name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
openvino = pytest.importorskip("openvino")

from placewright.api import load  # noqa: E402
from placewright.execute.live import devices_by_name  # noqa: E402
from placewright.execute.openvino import read_affinities, write_affinities  # noqa: E402
from placewright.frontends.openvino_conversion import convert_silently  # noqa: E402
from placewright.placers.learned.features import Blocks, Vocabulary, node_features  # noqa: E402
from placewright.placers.learned.groups import GroupGraph  # noqa: E402
from placewright.placers.learned.network import StructureNet  # noqa: E402
from placewright.reductions.colocate import colocation_groups, op_pairs  # noqa: E402
from placewright.zoo import zoo_module  # noqa: E402


class Counts(NamedTuple):
    """Of a graph, and of its groups by the released rule and by the paper's; clusters: means over random weights."""

    reference: str
    ops: int
    edges: int
    released: int
    paper: int
    released_edges: int
    missing: tuple[int, ...]  # conversions of scalars, each with its edge, that newer versions of OpenVINO leave out
    clusters: tuple[int, int]  # about the 61 and 103 of the released modules, which vary by a factor of five


COUNTS = (
    Counts("resnet-50", 396, 411, 237, 237, 252, (0,), (40, 85)),
    Counts("inception-v3?transform_input=1", 728, 764, 424, 435, 460, (0, 2), (70, 140)),
)


def converted(reference: str, folder: Path) -> Path:
    module, inputs = zoo_module(reference)
    path = folder / "model.xml"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = [openvino.PartialShape(list(x.shape)) for x in inputs]
        live = convert_silently(torch.export.export(module.eval(), inputs), input=shapes)
    openvino.save_model(live, path, compress_to_fp16=True)
    return path


def released_groups(problem: Any) -> GroupGraph:
    """Groups by the released rule alone, constants included, as HSDAG has them."""
    label = colocation_groups(problem.graph, "released").label
    first = np.unique(label, return_index=True)[1]
    pairs = label[op_pairs(problem.graph)].astype(np.int64)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    n = len(first)
    return GroupGraph(label, first, edges, np.ones((n, 2), dtype=np.bool_), np.ones((n, 2)), np.ones(n))


@pytest.mark.parametrize("expected", COUNTS, ids=lambda counts: counts.reference.split("?")[0])
def test_counts_groups_and_clusters_are_those_of_the_paper(expected: Counts, tmp_path: Path) -> None:
    problem = load(str(converted(expected.reference, tmp_path)), cluster="flex170")
    graph = problem.graph
    assert expected.ops - graph.n_ops in expected.missing
    assert expected.edges - len(op_pairs(graph)) == expected.ops - graph.n_ops
    counts = [colocation_groups(graph, rule).n_groups for rule in ("released", "paper")]
    assert counts == [expected.released, expected.paper]
    groups = released_groups(problem)
    assert (groups.n_groups, len(groups.edges)) == (expected.released, expected.released_edges)
    blocks = Blocks(shape=False, structure=False, position=False, work=False, index=True)
    x = torch.from_numpy(node_features(problem, groups, Vocabulary.of([graph]), blocks))
    first, last = [], []
    for seed in range(20):
        torch.manual_seed(seed)
        net = StructureNet(x.shape[1], 128, 0.2, directed=False).eval()
        with torch.no_grad():
            parsed = net(x, torch.from_numpy(groups.edges), None)
        first.append(parsed[1].n_clusters)
        last.append(parsed[-1].n_clusters)
    assert set(last) == {1}
    least, most = expected.clusters
    assert least < np.mean(first) < most


def test_affinities_written_by_name_read_back_as_placed(tmp_path: Path) -> None:
    path = converted("resnet-50", tmp_path)
    problem = load(str(path), cluster="flex170")
    rows = np.random.default_rng(0).integers(0, 2, problem.n_ops)
    placed = devices_by_name(problem.graph, rows.tolist(), problem.cluster)
    live = openvino.Core().read_model(path)
    write_affinities(live, placed)
    assert read_affinities(live) == placed
