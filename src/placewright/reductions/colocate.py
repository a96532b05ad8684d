"""Co-location groups of HSDAG: ops that its policy always places together, under two rules.

``paper``: an op joins its predecessor if each is the other's only neighbour on that side; groups are maximal chains.
``released``: any op with exactly one predecessor joins it, even if that one has other successors; groups are
out-trees. Every edge that enters a group enters its first op, so the graph of groups has no cycle under either rule.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError, suggestion
from placewright.graph import OpGraph
from placewright.text import shown

ColocationRule = Literal["paper", "released"]


class Groups(NamedTuple):
    """``label[v]`` numbers the group of op ``v``, in a topological order of the groups; edges are distinct pairs."""

    label: NDArray[np.int32]
    n_groups: int
    n_edges: int


def colocation_groups(graph: OpGraph, rule: ColocationRule) -> Groups:
    """Group the ops of a graph by one of the two rules.

    >>> from placewright.graph import build_graph
    >>> fork, _ = build_graph("fork", ["a", "b", "c", "d"], [(0, 1.0, [1, 2]), (1, 1.0, [3])])
    >>> colocation_groups(fork, "paper").label.tolist(), colocation_groups(fork, "released").label.tolist()
    ([0, 1, 2, 1], [0, 0, 0, 0])
    """
    if rule not in get_args(ColocationRule):
        raise InputError(f"unknown co-location rule '{shown(rule)}'; {suggestion(rule, get_args(ColocationRule))}")
    pairs = op_pairs(graph)
    predecessors = np.bincount(pairs[:, 1], minlength=graph.n_ops)
    successors = np.bincount(pairs[:, 0], minlength=graph.n_ops)
    joins = predecessors[pairs[:, 1]] == 1
    if rule == "paper":
        joins &= successors[pairs[:, 0]] == 1
    root = np.arange(graph.n_ops, dtype=np.int64)
    for u, v in pairs[joins].tolist():  # ascending by u: roots of predecessors are final
        root[v] = root[u]
    # A group is entered at its root only, so roots in op order are a topological order of the groups.
    _, label = np.unique(root, return_inverse=True)
    crossing = label[pairs]
    crossing = np.unique(crossing[crossing[:, 0] != crossing[:, 1]], axis=0)
    return Groups(label.astype(np.int32), int(label.max()) + 1, len(crossing))


def op_pairs(graph: OpGraph) -> NDArray[np.int64]:
    """[edges, 2]: distinct (producer, consumer) pairs, ascending; parallel tensors count once."""
    pairs = np.stack([graph.edge_producer, graph.consumer_op], axis=1).astype(np.int64)
    return np.unique(pairs, axis=0).reshape(-1, 2)
