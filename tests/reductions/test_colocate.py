"""HSDAG's co-location rules on random graphs, against a plain union of edges."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.errors import InputError
from placewright.graph import OpGraph
from placewright.reductions.colocate import ColocationRule, colocation_groups, op_pairs
from placewright.testing import random_graph


def plain_groups(graph: OpGraph, rule: str) -> set[frozenset[int]]:
    before: dict[int, set[int]] = {v: set() for v in range(graph.n_ops)}
    after: dict[int, set[int]] = {v: set() for v in range(graph.n_ops)}
    for u, v in zip(graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True):
        before[v].add(u)
        after[u].add(v)
    groups = [{v} for v in range(graph.n_ops)]
    for v in range(graph.n_ops):
        if len(before[v]) == 1:
            (u,) = before[v]
            if rule == "released" or len(after[u]) == 1:
                united = next(g for g in groups if u in g) | next(g for g in groups if v in g)
                groups = [g for g in groups if not g & united] + [united]
    return {frozenset(g) for g in groups}


@pytest.mark.parametrize("rule", ["paper", "released"])
def test_groups_are_those_of_the_rule_and_numbered_in_order(rule: ColocationRule) -> None:
    for seed in range(150):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 25)))
        found = colocation_groups(graph, rule)
        members = {frozenset(np.flatnonzero(found.label == g).tolist()) for g in range(found.n_groups)}
        assert members == plain_groups(graph, rule)
        crossing = {
            (found.label[u], found.label[v]) for u, v in op_pairs(graph).tolist() if found.label[u] != found.label[v]
        }
        assert len(crossing) == found.n_edges
        assert all(a < b for a, b in crossing)


def test_the_released_rule_makes_one_group_per_op_without_a_single_predecessor() -> None:
    for seed in range(50):
        graph = random_graph(np.random.default_rng(seed), 20)
        predecessors = np.bincount(op_pairs(graph)[:, 1], minlength=20)
        assert colocation_groups(graph, "released").n_groups == int((predecessors != 1).sum())


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'paper'"):
        colocation_groups(random_graph(np.random.default_rng(0), 3), "papers")  # type: ignore[arg-type]
