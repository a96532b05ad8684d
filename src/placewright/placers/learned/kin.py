"""Groups that look alike: same work and same surroundings, as in the repeated blocks of a network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.placers.learned.groups import GroupGraph, group_graph
from placewright.problem import Problem

ROUNDS = 2  # how far the surroundings reach, in hops


def kin_of_groups(problem: Problem, groups: GroupGraph, *, by_size: bool) -> NDArray[np.int64]:
    """[groups]: a number per sort of group, by colour refinement over op types, predecessors and successors.

    With ``by_size`` flops and bytes must be the same too, or times where the graph has no flops.
    """
    g, n = problem.graph, groups.n_groups
    types = np.unique(np.array(g.op_types), return_inverse=True)[1]
    weight = np.random.default_rng(0).integers(1, 2**30, int(types.max()) + 1)
    sent = np.bincount(groups.group_of_op[g.tensor_producer], g.tensor_bytes, n)
    flops = np.bincount(groups.group_of_op, g.flops, n)
    look = [np.bincount(groups.group_of_op, weight[types].astype(np.float64), n)]
    look += [sent, groups.memory_bytes, flops] if by_size else []
    if by_size and not flops.any():
        look += list(np.where(np.isfinite(groups.time_s), groups.time_s, -1.0).T)
    sort = np.unique(np.stack(look, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    for _ in range(ROUNDS):
        before = _multisets(sort, groups.edges[:, 1], groups.edges[:, 0])
        after = _multisets(sort, groups.edges[:, 0], groups.edges[:, 1])
        sort = np.unique(np.stack([sort, before, after], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    return sort.astype(np.int64)


def standing_clusters(problem: Problem, groups: GroupGraph) -> list[NDArray[np.int64]]:
    """Clusters that no policy needs to find: chains (the paper's co-location rule), chains that look alike or are
    equal, and equal groups.

    A labelling that puts every group alone, or everything together, is left out.
    """
    chains = group_graph(problem, "paper")
    chain_of_group = chains.group_of_op[groups.first_op].astype(np.int64)
    alike, equal = (kin_of_groups(problem, chains, by_size=by_size)[chain_of_group] for by_size in (False, True))
    labellings = [chain_of_group, alike, equal, kin_of_groups(problem, groups, by_size=True)]
    return [x for x in labellings if 1 < len(np.unique(x)) < groups.n_groups]


def _multisets(sort: NDArray[np.int64], owner: NDArray[np.int64], member: NDArray[np.int64]) -> NDArray[np.int64]:
    """[groups]: a number for the multiset of sorts that each group's neighbours have; random weights add up to it."""
    weight = np.random.default_rng(0).integers(1, 2**40, int(sort.max()) + 1)
    return np.bincount(owner, weight[sort[member]].astype(np.float64), len(sort)).astype(np.int64)
