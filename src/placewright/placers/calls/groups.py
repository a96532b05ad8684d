"""Ops that must share a device, as the things that a search for calls moves about."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import BoolArray, FloatArray, sums_by_index
from placewright.problems import Problem, once_per_problem


class Groups(NamedTuple):
    """Groups in the order of their first ops."""

    of_op: NDArray[np.int64]  # [ops]
    op_ptr: NDArray[np.int64]  # [groups + 1]
    op: NDArray[np.int64]
    neighbour_ptr: NDArray[np.int64]  # [groups + 1]
    neighbour: NDArray[np.int64]  # groups that one shares a tensor with
    allowed: BoolArray  # [groups, devices]
    time_s: FloatArray  # [groups, devices]
    size_bytes: FloatArray  # [groups]
    limit_bytes: FloatArray  # [devices]


@once_per_problem
def groups_of(problem: Problem) -> Groups:
    """The groups of a problem."""
    g = problem.graph
    _, of_op = np.unique(problem.group_of_op, return_inverse=True)
    n = int(of_op.max()) + 1
    time = np.zeros((n, problem.n_devices))
    np.add.at(time, of_op, problem.op_device_time_s)
    a, b = of_op[g.edge_producer], of_op[g.consumer_op]
    pairs = np.unique(np.concatenate([a * n + b, b * n + a])[np.concatenate([a != b, a != b])])
    return Groups(
        of_op=of_op.astype(np.int64),
        op_ptr=_pointers(of_op, n),
        op=np.argsort(of_op, kind="stable"),
        neighbour_ptr=_pointers(pairs // n, n),
        neighbour=pairs % n,
        allowed=np.isfinite(time),
        time_s=time,
        size_bytes=sums_by_index(of_op, problem.memory_bytes, n),
        limit_bytes=problem.arrays.memory_limit_bytes.astype(np.float64),
    )


def _pointers(row: NDArray[np.int64], n_rows: int) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))]).astype(np.int64)
