"""Pipelined-throughput problems as arrays: ops, colocation units, and the plain evaluator.

A *unit* is one colocation class of ops (forward and backward members together): the smallest thing
that can be placed when the parts of one device need not be contiguous.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import sums_by_index
from placewright.placers.pipeline.units import Ops

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]
Objective = Literal["1f1b", "gpipe"]
Communication = Literal["added", "overlapped"]


class Units(NamedTuple):
    """One unit-level problem; see `load_table` for the meaning of the costs."""

    forward_time: FloatArray  # [U, K], inf = unsupported
    backward_time: FloatArray  # [U, K]
    memory_bytes: FloatArray  # [U]
    successor_ptr: IntArray  # [U + 1]
    successor: IntArray
    tensor_ptr: IntArray  # [T + 1]
    tensor_unit: IntArray  # distinct units per tensor, the producer first
    tensor_in: FloatArray  # [T, K]
    tensor_out: FloatArray  # [T, K]
    tensor_is_backward: BoolArray  # [T]
    kind_count: NDArray[np.int64]
    kind_memory: FloatArray

    @property
    def unit_count(self) -> int:
        return len(self.memory_bytes)

    @property
    def tensor_count(self) -> int:
        return len(self.tensor_ptr) - 1

    @property
    def kind_of_device(self) -> IntArray:
        """Devices are numbered kind by kind."""
        return np.repeat(np.arange(len(self.kind_count), dtype=np.int32), self.kind_count)

    @property
    def device_count(self) -> int:
        return int(self.kind_count.sum())


class LoadTable(NamedTuple):
    """Per device: busy time by direction and cause, and resident bytes."""

    compute: FloatArray  # [2, D]; row 0 forward, row 1 backward
    communication: FloatArray  # [2, D]
    memory_bytes: FloatArray  # [D]


def load_table(units: Units, device_of_unit: IntArray) -> LoadTable:
    """The reference evaluator: obviously right, no incremental state.

    A device that holds a tensor's producer pays `tensor_out` once if any other device uses the tensor; a
    device that only consumes it pays `tensor_in` once.
    """
    kind = units.kind_of_device
    compute = np.zeros((2, len(kind)))
    communication = np.zeros((2, len(kind)))
    memory = np.zeros(len(kind))
    for unit, device in enumerate(device_of_unit):
        compute[0, device] += units.forward_time[unit, kind[device]]
        compute[1, device] += units.backward_time[unit, kind[device]]
        memory[device] += units.memory_bytes[unit]
    for tensor in range(units.tensor_count):
        members = units.tensor_unit[units.tensor_ptr[tensor] : units.tensor_ptr[tensor + 1]]
        devices = {int(device_of_unit[member]) for member in members}
        if len(devices) == 1:
            continue
        row = int(units.tensor_is_backward[tensor])
        home = int(device_of_unit[members[0]])
        communication[row, home] += units.tensor_out[tensor, kind[home]]
        for device in devices - {home}:
            communication[row, device] += units.tensor_in[tensor, kind[device]]
    return LoadTable(compute, communication, memory)


def combine_loads(table: LoadTable, objective: Objective, communication: Communication) -> float:
    """The objective value of a load table, memory not looked at."""
    if objective == "gpipe":
        rows = (
            table.compute + table.communication
            if communication == "added"
            else np.maximum(table.compute, table.communication)
        )
        return float(rows[0].max() + rows[1].max())
    compute, moved = table.compute.sum(axis=0), table.communication.sum(axis=0)
    return float((compute + moved if communication == "added" else np.maximum(compute, moved)).max())


def evaluate(
    units: Units, device_of_unit: IntArray, objective: Objective = "1f1b", communication: Communication = "added"
) -> float:
    """Exact value of an assignment; inf when it breaks a memory limit or uses an unsupported kind."""
    table = load_table(units, device_of_unit)
    if np.any(table.memory_bytes > units.kind_memory[units.kind_of_device] * (1 + 1e-12)):
        return float("inf")
    return combine_loads(table, objective, communication)


def units_from_ops(ops: Ops) -> tuple[Units, IntArray]:
    """Contract colocation classes. Returns the units and the unit of every op.

    Nothing else is merged. The precedence graph is the one contiguity is asked of: forward edges between
    classes, and reversed backward edges where a class without forward ops is at either end. It can hold
    cycles; contiguity then forces the classes of a cycle together.
    """
    unit_of_op = _number_classes(ops.colocation)
    unit_count = int(unit_of_op.max()) + 1 if len(unit_of_op) else 0
    forward = ~ops.is_backward
    times = [_sum_rows(ops.op_time, unit_of_op, mask, unit_count) for mask in (forward, ops.is_backward)]
    memory = sums_by_index(unit_of_op, ops.memory_bytes, unit_count)
    tensors = _contract_tensors(ops, unit_of_op)
    successor_ptr, successor = _precedence(ops, unit_of_op, unit_count)
    units = Units(times[0], times[1], memory, successor_ptr, successor, *tensors, ops.kind_count, ops.kind_memory)
    return units, unit_of_op


def _number_classes(colocation: NDArray[np.int64]) -> IntArray:
    """Class numbers in the order of each class's first op."""
    label = np.asarray(colocation, dtype=np.int64).copy()
    alone = label < 0
    label[alone] = label.max(initial=0) + 1 + np.arange(int(alone.sum()))
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]


def _sum_rows(values: FloatArray, group: IntArray, mask: BoolArray, group_count: int) -> FloatArray:
    out = np.zeros((group_count, values.shape[1]))
    np.add.at(out, group[mask], values[mask])
    return out


def _contract_tensors(ops: Ops, unit_of_op: IntArray) -> tuple[IntArray, IntArray, FloatArray, FloatArray, BoolArray]:
    """Tensors between units; those with equal producer, consumers and direction are merged."""
    counts = np.diff(ops.consumer_ptr)
    ptr = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts + 1, out=ptr[1:])
    member = np.empty(int(ptr[-1]), dtype=np.int32)
    is_home = np.zeros(len(member), dtype=bool)
    is_home[ptr[:-1]] = True
    member[is_home] = ops.tensor_producer
    member[~is_home] = ops.consumer_op
    op_level = Units(
        ops.op_time, ops.op_time, ops.memory_bytes, ptr, member, ptr, member, ops.tensor_in, ops.tensor_out,
        ops.is_backward[ops.tensor_producer], ops.kind_count, ops.kind_memory,
    )  # fmt: skip
    return _merge_tensors(op_level, unit_of_op)


def _precedence(ops: Ops, unit_of_op: IntArray, unit_count: int) -> tuple[IntArray, IntArray]:
    tail_op = np.repeat(ops.tensor_producer, np.diff(ops.consumer_ptr))
    tail, head = unit_of_op[tail_op], unit_of_op[ops.consumer_op]
    orphan = np.ones(unit_count, dtype=bool)
    orphan[unit_of_op[~ops.is_backward]] = False
    true_edge = ~ops.is_backward[tail_op] & ~ops.is_backward[ops.consumer_op]
    artificial = ops.is_backward[tail_op] & ops.is_backward[ops.consumer_op] & (orphan[tail] | orphan[head])
    edges = np.concatenate(
        [np.stack([tail[true_edge], head[true_edge]], 1), np.stack([head[artificial], tail[artificial]], 1)]
    )
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    ptr = np.searchsorted(edges[:, 0], np.arange(unit_count + 1)).astype(np.int32)
    return ptr, edges[:, 1].astype(np.int32)


def fold_directions(units: Units) -> Units:
    """Count backward work as forward work: the same problem under the "1f1b" objective, with fewer tensors."""
    folded = units._replace(
        forward_time=units.forward_time + units.backward_time,
        backward_time=np.zeros_like(units.backward_time),
        tensor_is_backward=np.zeros(units.tensor_count, dtype=bool),
    )
    return merge_units(folded, np.arange(units.unit_count, dtype=np.int32))


def merge_units(units: Units, group_of_unit: IntArray) -> Units:
    """Contract groups of units into one unit each (they will share a device); loads are kept exactly."""
    group_count = int(group_of_unit.max()) + 1 if len(group_of_unit) else 0
    everyone = np.ones(units.unit_count, dtype=bool)
    tail = np.repeat(group_of_unit, np.diff(units.successor_ptr))
    edges = np.stack([tail, group_of_unit[units.successor]], axis=1)
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    return Units(
        _sum_rows(units.forward_time, group_of_unit, everyone, group_count),
        _sum_rows(units.backward_time, group_of_unit, everyone, group_count),
        sums_by_index(group_of_unit, units.memory_bytes, group_count),
        np.searchsorted(edges[:, 0], np.arange(group_count + 1)).astype(np.int32),
        edges[:, 1].astype(np.int32),
        *_merge_tensors(units, group_of_unit),
        units.kind_count,
        units.kind_memory,
    )


def _merge_tensors(
    units: Units, group_of_unit: IntArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, BoolArray]:
    """Tensors between groups, equal ones added up.

    Two tensors between the same two groups are one tensor even when they run in opposite directions: each end
    pays for both of them exactly when the ends are apart.
    """
    index_of_key: dict[tuple[bool, bytes], int] = {}
    slot = np.full(units.tensor_count, -1, dtype=np.int32)
    reverse = np.zeros(units.tensor_count, dtype=bool)
    touched_all = np.asarray(group_of_unit, dtype=np.int32)[units.tensor_unit]
    ptr = units.tensor_ptr.tolist()
    for tensor, direction in enumerate(units.tensor_is_backward.tolist()):
        touched = touched_all[ptr[tensor] : ptr[tensor + 1]].tolist()
        others = sorted(set(touched) - {touched[0]})
        if not others:
            continue
        part = [touched[0], *others]
        if len(part) == 2 and part[0] > part[1]:
            part.reverse()
            reverse[tensor] = True
        key = (direction, np.array(part, dtype=np.int32).tobytes())
        slot[tensor] = index_of_key.setdefault(key, len(index_of_key))
    members = [np.frombuffer(key[1], dtype=np.int32) for key in index_of_key]
    merged_ptr = np.zeros(len(members) + 1, dtype=np.int32)
    np.cumsum([len(part) for part in members], out=merged_ptr[1:])
    flip = reverse[:, None]
    return (
        merged_ptr,
        np.concatenate(members) if members else np.zeros(0, dtype=np.int32),
        _sum_rows(np.where(flip, units.tensor_out, units.tensor_in), slot, slot >= 0, len(members)),
        _sum_rows(np.where(flip, units.tensor_in, units.tensor_out), slot, slot >= 0, len(members)),
        np.array([key[0] for key in index_of_key], dtype=bool),
    )
