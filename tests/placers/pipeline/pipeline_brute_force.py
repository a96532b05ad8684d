"""Slow, obvious reference: try every partition of colocated groups and every staffing of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placewright.placers.pipeline.stage_loads import Communication
from placewright.placers.pipeline.units import Floats, Ops

Option = tuple[int, int, float]


def best_value(
    ops: Ops,
    communication: Communication = "added",
    max_replicas: int = 1,
    op_sync: Floats | None = None,
) -> float:
    """Least largest load over all placements of the original operators that form a pipeline."""
    groups = _groups(ops)
    edges = _order_edges(ops, groups)
    count = max(groups) + 1
    sync = np.zeros_like(ops.op_time) if op_sync is None else op_sync
    best = np.inf
    for block_of_group in _partitions(count):
        if not _is_acyclic({(block_of_group[a], block_of_group[b]) for a, b in edges}):
            continue
        blocks = max(block_of_group) + 1
        members = [[op for op in range(len(groups)) if block_of_group[groups[op]] == block] for block in range(blocks)]
        options = [_options(ops, m, communication, max_replicas, sync) for m in members]
        best = min(best, _staff(options, 0, tuple(ops.kind_count.tolist()), 0.0, best))
    return best


def _groups(ops: Ops) -> list[int]:
    label: dict[object, int] = {}
    keys = [c if c >= 0 else ("free", op) for op, c in enumerate(ops.colocation.tolist())]
    return [label.setdefault(key, len(label)) for key in keys]


def _op_edges(ops: Ops) -> Iterator[tuple[int, int]]:
    for tensor, producer in enumerate(ops.tensor_producer.tolist()):
        for slot in range(ops.consumer_ptr[tensor], ops.consumer_ptr[tensor + 1]):
            yield producer, int(ops.consumer_op[slot])


def _order_edges(ops: Ops, groups: list[int]) -> set[tuple[int, int]]:
    with_forward = {groups[op] for op in range(len(groups)) if not ops.is_backward[op]}
    edges = set()
    for a, b in _op_edges(ops):
        if not ops.is_backward[a] and not ops.is_backward[b]:
            edges.add((groups[a], groups[b]))
        orphaned = not {groups[a], groups[b]} <= with_forward
        if ops.is_backward[a] and ops.is_backward[b] and orphaned:
            edges.add((groups[b], groups[a]))
    return edges


def _partitions(count: int) -> Iterator[list[int]]:
    def extend(prefix: list[int]) -> Iterator[list[int]]:
        if len(prefix) == count:
            yield prefix
            return
        for block in range(max(prefix, default=-1) + 2):
            yield from extend([*prefix, block])

    return extend([])


def _is_acyclic(edges: set[tuple[int, int]]) -> bool:
    edges = {(a, b) for a, b in edges if a != b}
    while edges:
        heads = {b for _, b in edges}
        rest = {(a, b) for a, b in edges if a in heads}
        if rest == edges:
            return False
        edges = rest
    return True


def _options(
    ops: Ops, members: list[int], communication: Communication, max_replicas: int, sync: Floats
) -> list[Option]:
    """(kind, replicas, load) of every way of staffing the block."""
    inside = set(members)
    options = []
    for kind in range(ops.kind_count.size):
        if ops.memory_bytes[members].sum() > ops.kind_memory[kind]:
            continue
        compute = ops.op_time[members, kind].sum()
        transfer = 0.0
        for tensor, producer in enumerate(ops.tensor_producer.tolist()):
            users = set(ops.consumer_op[ops.consumer_ptr[tensor] : ops.consumer_ptr[tensor + 1]])
            if producer in inside and users - inside:
                transfer += ops.tensor_out[tensor, kind]
            if producer not in inside and users & inside:
                transfer += ops.tensor_in[tensor, kind]
        busy = max(compute, transfer) if communication == "overlapped" else compute + transfer
        for r in range(1, max_replicas + 1):
            load = busy / r + 2 * (r - 1) / r * sync[members, kind].sum()
            if np.isfinite(load):
                options.append((kind, r, load))
    return options


def _staff(options: list[list[Option]], block: int, free: tuple[int, ...], value: float, best: float) -> float:
    if block == len(options):
        return value
    for kind, replicas, load in options[block]:
        if free[kind] >= replicas and max(value, load) < best:
            left = tuple(n - replicas * (k == kind) for k, n in enumerate(free))
            best = min(best, _staff(options, block + 1, left, max(value, load), best))
    return best
