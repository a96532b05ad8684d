"""Blocks of groups that a policy decides on as one, at several scales.

Independent decisions of thousands of ops cannot say "these forty together", and one reward for all of them teaches
little about each. Blocks follow the tensors: the dearest copies are avoided first, and readers of one tensor, such as
the steps of a layer that share its weights, belong together in the order in which they read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.graph import IntArray
from placewright.placers.learned.groups import GroupGraph
from placewright.problems import Problem

MOST_OF_A_MEMORY = 0.25  # of the smallest memory, that a block of several groups may need


class Blocks(NamedTuple):
    """A partition of the groups, numbered by first groups, and the members of each block."""

    block_of_group: IntArray  # [groups]
    member_ptr: IntArray  # [blocks + 1]
    member: IntArray  # [groups]

    @property
    def n_blocks(self) -> int:
        return len(self.member_ptr) - 1


def make_blocks(problem: Problem, groups: GroupGraph, per_device: int) -> Blocks:
    """Unite groups along the largest tensors, up to 1 / (``per_device`` x devices) of all work; 0 unites nothing."""
    n = groups.n_groups
    label = np.arange(n, dtype=np.int64)
    if per_device > 0 and len(groups.edges):
        edges = _weighted_edges(problem, groups)
        least = groups.time_s.min(axis=1)
        limit_s = float(least.sum()) / (per_device * problem.n_devices)
        limit_bytes = MOST_OF_A_MEMORY * float(problem.arrays.memory_limit_bytes.min())
        _core.learned.unite_blocks(edges, groups.time_s, groups.memory_bytes, limit_s, limit_bytes, label)
    _, first, dense = np.unique(label, return_index=True, return_inverse=True)
    block = np.argsort(np.argsort(first))[dense].astype(np.int32)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=len(first)))]).astype(np.int32)
    return Blocks(block, ptr, np.argsort(block, kind="stable").astype(np.int32))


def _weighted_edges(problem: Problem, groups: GroupGraph) -> NDArray[np.int64]:
    """[edges, 2]: pairs of groups, those with the most bytes between them first.

    A tensor joins its producer with its first reader, and each reader with the next: to copy it to one device more
    costs the same whoever reads it there.
    """
    g, n = problem.graph, groups.n_groups
    reader = groups.group_of_op[g.consumer_op].astype(np.int64)
    before = np.concatenate([[0], reader[:-1]]) if len(reader) else reader
    starts = g.consumer_ptr[:-1][np.diff(g.consumer_ptr) > 0]
    before[starts] = groups.group_of_op[g.edge_producer[starts]]
    outer = before != reader
    pair = np.minimum(before, reader)[outer] * n + np.maximum(before, reader)[outer]
    pairs, inverse = np.unique(pair, return_inverse=True)
    weight = np.bincount(inverse, g.tensor_bytes[g.edge_tensor[outer]], len(pairs))
    chosen = pairs[np.argsort(-weight, kind="stable")]
    return np.stack([chosen // n, chosen % n], axis=1)


class Scales(NamedTuple):
    """Blocks of several scales, side by side."""

    member_ptr: IntArray  # all scales' pointers in a row
    first_ptr: NDArray[np.int64]  # [scales]: where each scale's pointers begin
    member: IntArray  # [scales, groups]
    block_of_group: IntArray  # [scales, groups]


def side_by_side(scales: tuple[Blocks, ...]) -> Scales:
    """What :func:`mutated` reads."""
    sizes = [len(b.member_ptr) for b in scales]
    return Scales(
        np.concatenate([b.member_ptr for b in scales]), np.cumsum([0, *sizes[:-1]], dtype=np.int64),
        np.stack([b.member for b in scales]), np.stack([b.block_of_group for b in scales]),
    )  # fmt: skip


def mutated(parents: IntArray, groups: GroupGraph, scales: Scales, count: int, seed: int) -> IntArray:
    """[count, groups]: copies of good placements (best first) with a few blocks of any scale moved."""
    out = np.empty((count, groups.n_groups), dtype=np.int32)
    state = int(np.random.default_rng(seed).integers(1, 2**63))
    blocks = _core.learned.Scales(groups.edges, groups.allowed, *scales)
    blocks.mutate(np.ascontiguousarray(parents, dtype=np.int32), state, out)
    return out
