"""``pipedream``: a baseline that never cuts branches: every biconnected part of the graph stays on one device."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.placers.base import Found, Placer
from placewright.placers.pipeline.dpl import DplPlacer
from placewright.problems import Problem
from placewright.reductions.contract import strongly_connected

_FEW_READERS = 5  # a value handed to more ops than this is broadcast, not a fork of the network


class PipedreamPlacer(Placer):
    """Unites the ops of each biconnected component but its exit, then cuts the chain that is left optimally.

    Inputs that several ops read, and values without work of their own that many read (attention contexts), would tie
    everything together; their edges do not count.
    """

    name = "pipedream"
    summary = "chain of biconnected components, cut optimally (baseline)"
    executions = ("pipeline",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        graph = replace(problem.graph, colocation=_united(problem))
        chain = problem.with_options(graph=graph, rules=(), permitted=problem.allowed)
        return DplPlacer().search(chain, budget, seed)


def _united(problem: Problem) -> NDArray[np.int32]:
    """[ops]: group of each op after uniting, for every biconnected component, the groups its edges start from."""
    import rustworkx

    g = problem.graph
    node = 2 * problem.group_of_op.astype(np.int64) + g.is_backward
    tail, head = node[g.edge_producer], node[g.consumer_op]
    kept = (tail != head) & ~_is_broadcast(problem, node, tail, head)[tail]
    undirected = rustworkx.PyGraph(multigraph=False)
    undirected.add_nodes_from(range(2 * problem.n_ops))
    undirected.add_edges_from_no_data(list(zip(tail[kept].tolist(), head[kept].tolist(), strict=True)))
    component_of_edge = dict(rustworkx.biconnected_components(undirected).items())
    tails: dict[int, list[int]] = {}
    for u, v in zip(tail[kept].tolist(), head[kept].tolist(), strict=True):
        component = component_of_edge[(u, v) if (u, v) in component_of_edge else (v, u)]
        tails.setdefault(component, []).append(u // 2)
    pairs = [(a, b) for members in tails.values() for a, b in pairwise(members)]
    ends = np.array(pairs + [(b, a) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    label = np.arange(problem.n_ops, dtype=np.int32)
    for part in strongly_connected(problem.n_ops, ends[:, 0], ends[:, 1]):
        label[part] = min(part)
    return label[problem.group_of_op]


def _is_broadcast(
    problem: Problem, node: NDArray[np.int64], tail: NDArray[np.int64], head: NDArray[np.int64]
) -> NDArray[np.bool_]:
    n = 2 * problem.n_ops
    outer = tail != head
    has_input = np.zeros(n, dtype=np.bool_)
    has_input[head[outer]] = True
    time = np.where(np.isfinite(problem.op_time_s), problem.op_time_s, 0.0).sum(axis=1)
    has_work = np.bincount(node, time, n) > 0
    pairs = np.unique(tail[outer] * n + head[outer])
    readers = np.bincount(pairs // n, minlength=n)
    return np.asarray(~has_work & (readers > np.where(has_input, _FEW_READERS, 1)))
