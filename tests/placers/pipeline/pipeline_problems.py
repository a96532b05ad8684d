"""Random small problems."""

from __future__ import annotations

import numpy as np

from placewright.placers.pipeline.lattice import Indices
from placewright.placers.pipeline.units import Bools, Ints, Ops

Edge = tuple[int, int]


def random_ops(
    seed: int,
    *,
    op_count: int = 6,
    kinds: int = 2,
    training: bool = False,
    group_share: float = 0.0,
    memory_share: float | None = None,
    transfer_scale: float = 1.0,
    unsupported_share: float = 0.0,
    max_devices: int = 3,
    edge_share: float = 0.4,
) -> Ops:
    """Operators in topological order; with `training`, a backward copy with reversed edges.

    `memory_share` is the memory of each device of all but the last kind relative to all bytes.
    """
    rng = np.random.default_rng(seed)
    edges = [(a, b) for a in range(op_count) for b in range(a + 1, op_count) if rng.random() < edge_share]
    backward = np.zeros(op_count, np.bool_)
    colocation = np.where(rng.random(op_count) < group_share, rng.integers(0, 2, op_count), -1)
    if training:
        edges, backward, colocation = _with_backward(rng, op_count, edges, colocation)
    n = backward.size
    time = np.round(rng.gamma(1.0, 4.0, (n, kinds)) * rng.integers(0, 2, (n, 1)), 2)
    time[rng.random(time.shape) < unsupported_share] = np.inf
    memory = rng.integers(0, 9, n).astype(float)
    share = np.inf if memory_share is None else memory_share
    kind_memory = np.full(kinds, np.floor(share * memory.sum()) if memory_share else np.inf)
    if kinds > 1:
        kind_memory[-1] = np.inf
    producer, ptr, consumer = _tensors(edges)
    cost = np.round(rng.gamma(1.0, 2.0, (producer.size, kinds)) * transfer_scale, 2)
    cost_out = np.round(cost * rng.uniform(0.5, 1.5, cost.shape), 2)
    if kinds > 1:
        cost[:, -1] = cost_out[:, -1] = 0.0
    counts = rng.integers(1, max_devices + 1, kinds)
    return Ops(
        time, memory, backward, colocation.astype(np.int64), producer, ptr, consumer,
        cost, cost_out, counts.astype(np.int64), kind_memory,
    )  # fmt: skip


def _with_backward(
    rng: np.random.Generator, count: int, edges: list[Edge], colocation: Ints
) -> tuple[list[Edge], Bools, Ints]:
    """Backward op of `v` is `2 * count - 1 - v`; most share the class of their forward op."""
    mirror = [2 * count - 1 - op for op in range(count)]
    both = edges + [(mirror[b], mirror[a]) for a, b in edges]
    both += [(op, mirror[op]) for op in range(count) if rng.random() < 0.5]
    classes = np.where(colocation >= 0, colocation, 10 + np.arange(count))
    paired = np.where(rng.random(count) < 0.75, classes, -1)
    backward = np.repeat([False, True], count)
    return both, backward, np.concatenate([classes, paired[::-1]])


def _tensors(edges: list[Edge]) -> tuple[Indices, Indices, Indices]:
    users: dict[int, list[int]] = {}
    for a, b in edges:
        users.setdefault(a, []).append(b)
    producer = np.array(sorted(users), np.int32)
    ptr = np.cumsum([0, *(len(users[p]) for p in producer.tolist())]).astype(np.int32)
    consumer = np.array([b for p in producer.tolist() for b in users[p]], np.int32)
    return producer, ptr, consumer
