"""Reduce an operator graph to the units a contiguous pipeline is cut from.

Operators that must share a device become one class; classes whose forward parts depend on each
other in a cycle are fused; weightless dangling classes are merged into their only neighbour. What
is left are units: every unit has a forward part, possibly a backward part, and the precedence
relation among units is a directed acyclic graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright import _core

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Ops(NamedTuple):
    """Operators in a topological order, tensors sorted by producer, `K` kinds of devices."""

    op_time: Floats  # [n, K] inf where a kind does not support the operator
    memory_bytes: Floats  # [n]
    is_backward: Bools  # [n]
    colocation: Ints  # [n] -1: free; equal values share a device
    tensor_producer: npt.NDArray[np.int32]  # [T] ascending
    consumer_ptr: npt.NDArray[np.int32]  # [T + 1]
    consumer_op: npt.NDArray[np.int32]  # [E]
    tensor_in: Floats  # [T, K] cost of bringing the tensor in from host memory
    tensor_out: Floats  # [T, K] cost of sending it to host memory, once
    kind_count: Ints  # [K]
    kind_memory: Floats  # [K] inf: unlimited


class Units(NamedTuple):
    """Units numbered in a topological order; a tensor lists its producer first."""

    forward_time: Floats  # [U, K]
    backward_time: Floats  # [U, K]
    memory_bytes: Floats  # [U]
    successor_ptr: Ints  # [U + 1]
    successor: Ints
    tensor_ptr: Ints  # [T + 1]
    tensor_unit: Ints  # distinct units touched, the producer first, at least two
    tensor_in: Floats  # [T, K]
    tensor_out: Floats  # [T, K]
    tensor_is_backward: Bools  # [T]
    kind_count: Ints  # [K]
    kind_memory: Floats  # [K]


class Edges(NamedTuple):
    """Distinct edges between the forward parts of classes."""

    source: Ints
    target: Ints
    is_artificial: Bools


def build_units(ops: Ops, *, merge_trivial: bool = True, trivial_time: float = 1e-6) -> tuple[Units, Ints]:
    """Return the units of `ops` and the unit of every operator.

    `merge_trivial` shrinks the search space but is not lossless under tight memory: a merged class
    takes its memory along to its neighbour's device.
    """
    class_of_op = _number_classes(ops.colocation)
    edges = _precedence(ops, class_of_op)
    fused = _fuse_cycles(_class_count(class_of_op), edges)
    class_of_op, edges = fused[class_of_op], _relabel(edges, fused)
    if merge_trivial:
        merged = _merge_trivial(ops, class_of_op, edges, trivial_time)
        class_of_op, edges = merged[class_of_op], _relabel(edges, merged)
    rank = _topological_rank(_class_count(class_of_op), edges)
    unit_of_op = rank[class_of_op]
    return _contract(ops, unit_of_op, _relabel(edges, rank)), unit_of_op


def compressed_rows(row: Ints, value: Ints, row_count: int) -> tuple[Ints, Ints]:
    """Group `value` by `row`: values of row `r` are `values[ptr[r]:ptr[r + 1]]`, order kept."""
    ptr = np.zeros(row_count + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=row_count), out=ptr[1:])
    return ptr, value[np.argsort(row, kind="stable")]


def _number_classes(colocation: Ints) -> Ints:
    keys = colocation.astype(np.int64)
    free = keys < 0
    keys[free] = keys.max(initial=0) + 1 + np.arange(int(free.sum()))
    return _renumber(keys)


def _renumber(keys: Ints) -> Ints:
    return np.unique(keys, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _class_count(class_of_op: Ints) -> int:
    return int(class_of_op.max(initial=-1)) + 1


def _op_edges(ops: Ops) -> tuple[Ints, Ints]:
    source = np.repeat(ops.tensor_producer, np.diff(ops.consumer_ptr)).astype(np.int64)
    return source, ops.consumer_op.astype(np.int64)


def _precedence(ops: Ops, class_of_op: Ints) -> Edges:
    """Edges among forward parts, plus reversed backward edges at classes without a forward part.

    A class that only exists in the backward pass has no place in the forward order; it gets one by
    running the backward edges it takes part in the other way round.
    """
    source, target = _op_edges(ops)
    backward = ops.is_backward
    has_forward_op = np.zeros(_class_count(class_of_op), np.bool_)
    has_forward_op[class_of_op[~backward]] = True

    true = ~backward[source] & ~backward[target]
    tail, head = class_of_op[source], class_of_op[target]
    is_orphaned = ~(has_forward_op[tail] & has_forward_op[head])
    artificial = backward[source] & backward[target] & is_orphaned
    edges = Edges(
        np.concatenate([tail[true], head[artificial]]),
        np.concatenate([head[true], tail[artificial]]),
        np.repeat([False, True], [int(true.sum()), int(artificial.sum())]),
    )
    return _relabel(edges, np.arange(has_forward_op.size))


def _relabel(edges: Edges, new_label: Ints) -> Edges:
    """Rename the ends, then drop loops and duplicates."""
    source, target = new_label[edges.source], new_label[edges.target]
    size = int(new_label.max(initial=0)) + 1
    keys = (source * size + target) * 2 + edges.is_artificial
    keys = np.unique(keys[source != target])
    return Edges(keys // 2 // size, keys // 2 % size, keys % 2 == 1)


def _fuse_cycles(class_count: int, edges: Edges) -> Ints:
    """New label of every class: strongly connected classes share one."""
    import rustworkx as rx  # here, because searches for latency import this module without ever needing it

    graph: rx.PyDiGraph = rx.PyDiGraph()
    graph.add_nodes_from([None] * class_count)
    pairs = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    graph.extend_from_edge_list(list(pairs))
    label = np.empty(class_count, np.int64)
    for number, members in enumerate(rx.strongly_connected_components(graph)):
        label[members] = number
    return label


def _merge_trivial(ops: Ops, class_of_op: Ints, edges: Edges, trivial_time: float) -> Ints:
    """New label of every class: negligible classes on one edge join the other end of that edge."""
    count = _class_count(class_of_op)
    forward, backward = _times(ops, class_of_op, count)
    source, target = _op_edges(ops)
    touches_backward = np.zeros(count, np.bool_)
    mixed = ops.is_backward[source] != ops.is_backward[target]
    forward_end = np.where(ops.is_backward[source], target, source)[mixed]
    touches_backward[class_of_op[forward_end]] = True

    ends = np.concatenate([edges.source, edges.target])
    others = np.concatenate([edges.target, edges.source])
    degree = np.bincount(ends, minlength=count)
    neighbour_xor = np.zeros(count, np.int64)
    np.bitwise_xor.at(neighbour_xor, ends, others)
    root = np.empty(count, np.int64)
    _core.pipeline.merge_leaves(forward, backward, touches_backward, degree, neighbour_xor, trivial_time, root)
    return _renumber(root)


def _times(ops: Ops, label_of_op: Ints, count: int) -> tuple[Floats, Floats]:
    """Forward and backward time of every label on every kind."""
    forward = np.zeros((count, ops.op_time.shape[1]))
    backward = np.zeros_like(forward)
    is_backward = ops.is_backward
    np.add.at(forward, label_of_op[~is_backward], ops.op_time[~is_backward])
    np.add.at(backward, label_of_op[is_backward], ops.op_time[is_backward])
    return forward, backward


def _topological_rank(count: int, edges: Edges) -> Ints:
    ptr, successor = compressed_rows(edges.source, edges.target, count)
    order = topological_order(ptr, successor, np.zeros(count), True)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    return rank


def topological_order(successor_ptr: Ints, successor: Ints, priority: Floats, depth_first: bool) -> Ints:
    """Order by a stack (`depth_first`) or a queue of ready units; freed ones by rising priority."""
    order = np.empty(successor_ptr.size - 1, np.int64)
    _core.pipeline.topological_order(successor_ptr, successor, priority, depth_first, order)
    return order


def _contract(ops: Ops, unit_of_op: Ints, edges: Edges) -> Units:
    count = _class_count(unit_of_op)
    forward, backward = _times(ops, unit_of_op, count)
    pairs = np.unique(edges.source * count + edges.target)
    successor_ptr, successor = compressed_rows(pairs // max(count, 1), pairs % max(count, 1), count)
    producer = unit_of_op[ops.tensor_producer]
    tensor = np.repeat(np.arange(producer.size), np.diff(ops.consumer_ptr))
    touched = unit_of_op[ops.consumer_op]
    tensors = contract_tensors(
        producer,
        tensor,
        touched,
        ops.tensor_in,
        ops.tensor_out,
        ops.is_backward[ops.tensor_producer],
    )
    return Units(
        forward, backward, np.bincount(unit_of_op, ops.memory_bytes, count).astype(np.float64),
        successor_ptr, successor, *tensors, ops.kind_count, ops.kind_memory,
    )  # fmt: skip


def contract_tensors(
    producer: Ints, tensor: Ints, touched: Ints, cost_in: Floats, cost_out: Floats, backward: Bools
) -> tuple[Ints, Ints, Floats, Floats, Bools]:
    """Tensor part of `Units` from the touches `(tensor, touched)` of every tensor.

    Tensors that stay inside one unit vanish; tensors with the same producer, direction and touched
    units are charged under the same conditions and therefore added up.
    """
    size = int(max(producer.max(initial=0), touched.max(initial=0))) + 1
    keys = np.unique((tensor * size + touched)[touched != producer[tensor]])
    tensor, touched = keys // size, keys % size
    group = _equal_sets(producer, tensor, touched, backward)
    kept, representative, label = np.unique(group[tensor], return_index=True, return_inverse=True)
    chosen = tensor[representative]
    is_chosen = np.zeros(producer.size, np.bool_)
    is_chosen[chosen] = True
    rank = np.zeros(producer.size, np.int64)
    rank[chosen] = np.arange(kept.size)
    listed = is_chosen[tensor]
    ptr, units = compressed_rows(
        np.concatenate([np.arange(kept.size), rank[tensor[listed]]]),
        np.concatenate([producer[chosen], touched[listed]]), kept.size,
    )  # fmt: skip
    members, first = np.unique(tensor, return_index=True)
    row = label.reshape(-1)[first]
    total_in = np.zeros((kept.size, cost_in.shape[1]))
    total_out = np.zeros_like(total_in)
    np.add.at(total_in, row, cost_in[members])
    np.add.at(total_out, row, cost_out[members])
    return ptr, units, total_in, total_out, backward[chosen]


def _equal_sets(producer: Ints, tensor: Ints, touched: Ints, backward: Bools) -> Ints:
    """Group of every tensor; tensors of one group touch the same units in the same direction."""
    count = producer.size
    ptr, units = compressed_rows(tensor, touched, count)
    fingerprint = np.zeros(count, np.uint64)
    np.add.at(fingerprint, tensor, _mix(touched))
    fingerprint += _mix(producer * 2 + backward) * np.uint64(3)
    first, group = np.unique(fingerprint, return_index=True, return_inverse=True)[1:]
    group = first[group.reshape(-1)]
    # A collision of fingerprints must not merge different sets: compare with the group's first.
    is_same = np.empty(count, np.bool_)
    _core.pipeline.compare_touches(ptr, units, producer.astype(np.int64), backward, group, is_same)
    return np.where(is_same, group, np.arange(count))


def _mix(values: Ints) -> npt.NDArray[np.uint64]:
    """Scatter integers over 64 bits (a multiply-xorshift finaliser)."""
    mixed = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))
