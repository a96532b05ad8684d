"""Graph parsing: clusters by dominant edges, without a fixed number of clusters. Batched torch, no loop over nodes.

Every undirected edge has one score. Each node keeps its best edge (among equals the one with the least number); the
connected components of the kept edges are the clusters. So every node that has a neighbour shares its cluster with one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Level(NamedTuple):
    """One parsing level: the cluster of each node, and the graph of the clusters."""

    cluster_of_node: Tensor  # [nodes]
    n_clusters: int
    edges: Tensor  # [edges, 2]: distinct undirected pairs of clusters, least number first
    inner_score: Tensor  # [clusters]: sum of the scores inside, 1 where there is no edge


def undirected(edges: Tensor) -> Tensor:
    """[edges, 2] distinct pairs, least number first, whatever the direction; loops are dropped."""
    ordered = torch.stack([edges.amin(dim=1), edges.amax(dim=1)], dim=1)
    return torch.unique(ordered[ordered[:, 0] != ordered[:, 1]].reshape(-1, 2), dim=0)


def dominant_neighbour(n_nodes: int, edges: Tensor, score: Tensor) -> Tensor:
    """[nodes]: the neighbour along the best edge of each node, the node itself where it has none."""
    n_edges = len(edges)
    rank = torch.empty(n_edges, dtype=torch.long)
    order = torch.sort(score.detach(), descending=True, stable=True).indices
    rank[order] = torch.arange(n_edges)  # equal scores: the edge with the least number comes first
    best = torch.full((n_nodes,), n_edges, dtype=torch.long)
    best.scatter_reduce_(0, edges.reshape(-1), rank.repeat_interleave(2), "amin")
    itself = torch.arange(n_nodes)
    alone = best == n_edges
    if n_edges == 0:
        return itself
    ends = edges[order[best.clamp(max=n_edges - 1)]]
    return torch.where(alone, itself, ends.sum(dim=1) - itself)


def components(neighbour: Tensor) -> Tensor:
    """[nodes]: a number per component of the graph with one edge from each node to its neighbour.

    Pointer jumping: every node takes the least label it sees, then the label of its label, about log(n) times.
    """
    label = torch.arange(len(neighbour))
    while True:
        seen = torch.minimum(label, label[neighbour])
        seen = seen.scatter_reduce(0, neighbour, seen, "amin")
        seen = seen.scatter_reduce(0, label, seen, "amin")  # tell the root that was known so far
        seen = seen[seen]
        if torch.equal(seen, label):
            return torch.unique(label, return_inverse=True)[1]
        label = seen


def parse_level(n_nodes: int, edges: Tensor, score: Tensor) -> Level:
    """Cluster the nodes of an undirected graph by the scores of its edges."""
    cluster = components(dominant_neighbour(n_nodes, edges, score))
    n_clusters = int(cluster.max()) + 1
    ends = cluster[edges]
    inside = ends[:, 0] == ends[:, 1]
    total = torch.zeros(n_clusters, dtype=score.dtype).index_add(0, ends[inside, 0], score[inside])
    has_edge = torch.zeros(n_clusters, dtype=torch.bool)
    has_edge[ends[inside, 0]] = True
    return Level(cluster, n_clusters, undirected(ends), torch.where(has_edge, total, torch.ones_like(total)))
