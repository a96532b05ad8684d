"""Ops that have to move together, in an order along which a placement can be cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import BoolArray, FloatArray, sums_by_index
from placewright.problems import Problem, once_per_problem
from placewright.reductions.contract import strongly_connected


class Units(NamedTuple):
    """Groups of ops that share a device, topologically ordered where stages must follow one another."""

    unit_of_op: NDArray[np.int32]  # [ops]
    memory_bytes: FloatArray  # [units]
    time_s: FloatArray  # [units, devices], infinite where the unit may not be
    allowed: BoolArray  # [units, devices]


@once_per_problem
def movable_units(problem: Problem) -> Units:
    """Colocation groups; for contiguous pipelines also fused where they depend on each other in a circle.

    Cutting the sequence of units anywhere gives a prefix that nothing later leads back into (contiguous pipelines);
    for other models the order is that of the groups' first ops.
    """
    label = problem.group_of_op.astype(np.int64)
    if problem.needs_contiguous_stages:
        a = problem.arrays
        source, target = label[a.order_source], label[a.order_target]
        components = strongly_connected(problem.n_ops, source, target)  # sinks first
        number = np.empty(problem.n_ops, dtype=np.int64)
        for i, c in enumerate(reversed(components)):
            number[c] = i
        # Components without order between them keep the order of their first ops.
        label = _stable_order(number[label], number[source], number[target])
    values, unit = np.unique(label, return_inverse=True)
    n = len(values)
    time = np.zeros((n, problem.n_devices))
    np.add.at(time, unit, problem.op_device_time_s)
    memory = sums_by_index(unit, problem.memory_bytes, n)
    return Units(unit.astype(np.int32), memory, time, np.isfinite(time))


def fastest_devices(problem: Problem) -> NDArray[np.int32]:
    """Every unit on the device that runs it fastest, whatever the limits: where all else has failed."""
    units = movable_units(problem)
    return units.time_s.argmin(axis=1).astype(np.int32)[units.unit_of_op]


def whole_units(problem: Problem, device_of_op: NDArray[np.int32]) -> NDArray[np.int32]:
    """The placement with whole units on devices that they may use: where every search has to start.

    A unit that is split goes where its first op is; one that may not be there goes where it takes the least time.
    """
    units = movable_units(problem)
    first_op = np.unique(units.unit_of_op, return_index=True)[1]
    device = np.asarray(device_of_op, dtype=np.int32)[first_op][units.unit_of_op]
    return np.where(units.allowed[units.unit_of_op, device], device, fastest_devices(problem))


def _stable_order(label: NDArray[np.int64], source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
    from placewright.graph import topological_order

    values, first, dense = np.unique(label, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # number of each label by its first op
    lookup = np.full(int(max(label.max(), source.max(initial=0), target.max(initial=0))) + 1, -1, dtype=np.int64)
    lookup[values] = rank
    s, t = lookup[source], lookup[target]
    outer = s != t
    order = topological_order(len(values), s[outer], t[outer], [""] * len(values))
    position = np.empty(len(values), dtype=np.int64)
    position[order] = np.arange(len(values))
    return position[rank[dense]]
