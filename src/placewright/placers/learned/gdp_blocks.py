"""Blocks of groups that a policy decides on as one, at several scales.

Independent decisions of thousands of ops cannot say "these forty together", and one reward for all of them teaches
little about each. Blocks follow the tensors: the dearest copies are avoided first, and readers of one tensor, such as
the steps of a layer that share its weights, belong together in the order in which they read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
        _unite(edges, groups.time_s.copy(), groups.memory_bytes.copy(), limit_s, limit_bytes, label)
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


@njit(cache=True, nogil=True)
def _root(label: Any, v: int) -> int:
    while label[v] != v:
        label[v] = label[label[v]]
        v = label[v]
    return v


@njit(cache=True, nogil=True)
def _unite(edges: Any, time_s: Any, memory_bytes: Any, limit_s: float, limit_bytes: float, label: Any) -> None:
    """Unite along edges in order, while some device takes both and the limits hold; sums are changed in place."""
    n_devices = time_s.shape[1]
    for e in range(edges.shape[0]):
        a, b = _root(label, edges[e, 0]), _root(label, edges[e, 1])
        if a == b or memory_bytes[a] + memory_bytes[b] > limit_bytes:
            continue
        least = np.inf
        for d in range(n_devices):
            least = min(least, time_s[a, d] + time_s[b, d])
        if not least <= limit_s:
            continue
        if b < a:
            a, b = b, a
        label[b] = a
        time_s[a] += time_s[b]
        memory_bytes[a] += memory_bytes[b]
    for v in range(label.shape[0]):
        label[v] = _root(label, v)


@njit(cache=True, nogil=True)
def _next_random(state: Any, below: int) -> Any:
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64((x >> np.uint64(11)) % np.uint64(below))


@njit(cache=True, nogil=True)
def _mutate(
    parents: Any, edges: Any, allowed: Any, ptr: Any, first_ptr: Any, member: Any, block: Any, state: Any, out: Any
) -> None:  # fmt: skip
    n_parents, n = parents.shape
    n_devices, n_edges = allowed.shape[1], edges.shape[0]
    for i in range(out.shape[0]):
        # The best parent is as likely as all others.
        parent = np.int64(0) if _next_random(state, 2) == 0 else _next_random(state, n_parents)
        out[i] = parents[parent]
        if n_parents > 1 and _next_random(state, 8) == 0:  # a stretch of another one
            other = parents[_next_random(state, n_parents)]
            lo, hi = _next_random(state, n), _next_random(state, n)
            for g in range(min(lo, hi), max(lo, hi) + 1):
                out[i, g] = other[g]
        moves = 1
        while moves < 6 and _next_random(state, 2) == 0:
            moves += 1
        for _ in range(moves):
            # Of two scales the earlier one: coarse moves matter most.
            scale = min(_next_random(state, first_ptr.shape[0]), _next_random(state, first_ptr.shape[0]))
            d = _next_random(state, n_devices)
            g = _next_random(state, n)
            if n_edges > 0 and _next_random(state, 4) > 0:  # one end of an edge that is cut follows the other
                for _ in range(8):
                    e = _next_random(state, n_edges)
                    side = _next_random(state, 2)
                    if out[i, edges[e, side]] != out[i, edges[e, 1 - side]]:
                        g, d = edges[e, side], out[i, edges[e, 1 - side]]
                        break
            b = first_ptr[scale] + block[scale, g]
            for k in range(ptr[b], ptr[b + 1]):
                if allowed[member[scale, k], d]:
                    out[i, member[scale, k]] = d


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
        np.concatenate([b.member_ptr for b in scales]), np.cumsum([0, *sizes[:-1]]),
        np.stack([b.member for b in scales]), np.stack([b.block_of_group for b in scales]),
    )  # fmt: skip


def mutated(parents: IntArray, groups: GroupGraph, scales: Scales, count: int, seed: int) -> IntArray:
    """[count, groups]: copies of good placements (best first) with a few blocks of any scale moved."""
    out = np.empty((count, groups.n_groups), dtype=np.int32)
    state = np.random.default_rng(seed).integers(1, 2**63, 1).astype(np.uint64)
    allowed = np.require(groups.allowed, requirements="W")
    _mutate(np.ascontiguousarray(parents, dtype=np.int32), groups.edges, allowed, *scales, state, out)
    return out
