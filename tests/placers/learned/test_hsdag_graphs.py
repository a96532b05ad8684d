"""HSDAG's ResNet-50, rebuilt as OpenVINO IR: counts, groups, clusters at random weights, and placements by name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
openvino = pytest.importorskip("openvino")

from placewright.api import load  # noqa: E402
from placewright.execute.live import devices_by_name  # noqa: E402
from placewright.execute.openvino import read_affinities, write_affinities  # noqa: E402
from placewright.placers.learned.features import Blocks, Vocabulary, node_features  # noqa: E402
from placewright.placers.learned.groups import GroupGraph  # noqa: E402
from placewright.placers.learned.network import StructureNet  # noqa: E402
from placewright.reductions.colocate import colocation_groups, op_pairs  # noqa: E402
from placewright.zoo import zoo_module  # noqa: E402


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module, inputs = zoo_module("resnet-50")
    path = tmp_path_factory.mktemp("ir") / "resnet.xml"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = [openvino.PartialShape(list(x.shape)) for x in inputs]
        live = openvino.convert_model(torch.export.export(module.eval(), inputs), input=shapes)
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


def test_counts_groups_and_clusters_are_those_of_the_paper(resnet: Path) -> None:
    problem = load(str(resnet), cluster="flex170")
    graph = problem.graph
    assert (graph.n_ops, len(op_pairs(graph))) == (396, 411)
    assert [colocation_groups(graph, rule).n_groups for rule in ("released", "paper")] == [237, 237]
    groups = released_groups(problem)
    assert (groups.n_groups, len(groups.edges)) == (237, 252)
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
    assert 40 < np.mean(first) < 85  # 61 in the released modules, 23 to 110 by seed


def test_affinities_written_by_name_read_back_as_placed(resnet: Path) -> None:
    problem = load(str(resnet), cluster="flex170")
    rows = np.random.default_rng(0).integers(0, 2, problem.n_ops)
    placed = devices_by_name(problem.graph, rows.tolist(), problem.cluster)
    live = openvino.Core().read_model(resnet)
    write_affinities(live, placed)
    assert read_affinities(live) == placed
