"""Figures that list schedulers rank ops by: mean times and copies, ranks, the optimistic cost table.

Mean time of an op: over the devices its group may be on. Mean copy of a tensor: over all ordered pairs of different
devices (the free diagonal does not count).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright import _core
from placewright.graph import FloatArray, IntArray, sums_by_index
from placewright.problems import Problem, core_problem, once_per_problem


class Costs(NamedTuple):
    """Arrays of one problem; a group is named by its first op, rows of other ops are unused."""

    time_s: FloatArray  # [ops, devices], infinite where the op's group may not be
    mean_time_s: FloatArray  # [ops]
    mean_copy_s: FloatArray  # [tensors]
    group_time_s: FloatArray  # [ops, devices]: of all members, infinite where the group may not be
    group_bytes: FloatArray  # [ops]: resident, of all members
    group_size: IntArray  # [ops]
    upward_s: FloatArray  # [ops]: mean time from the op's start to the end of everything after it


@once_per_problem
def list_costs(problem: Problem) -> Costs:
    """Compute them once per problem."""
    n, group = problem.n_ops, problem.group_of_op
    group_time = np.zeros((n, problem.n_devices))
    np.add.at(group_time, group, problem.op_device_time_s)
    time = np.where(np.isfinite(group_time[group]), problem.op_device_time_s, np.inf)
    finite = np.isfinite(time)
    mean_time = np.where(finite, time, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    mean_copy = np.ascontiguousarray(problem.tensor_copy_s @ _share_of_pairs(problem))
    upward = np.empty(n)
    _core.overlap.upward_ranks(core_problem(problem), mean_time, mean_copy, upward)
    return Costs(
        time_s=np.ascontiguousarray(time),
        mean_time_s=mean_time,
        mean_copy_s=mean_copy,
        group_time_s=group_time,
        group_bytes=sums_by_index(group, problem.memory_bytes, n),
        group_size=np.bincount(group, minlength=n).astype(np.int32),
        upward_s=upward,
    )


def _share_of_pairs(problem: Problem) -> FloatArray:
    """[link classes]: how many copies over it a random pair of different devices needs, on average."""
    links, n = problem.links, problem.n_devices
    uses = np.zeros(len(links.links))
    for i in range(n):
        for j in range(n):
            legs = (links.direct[i, j],) if links.direct[i, j] >= 0 else (links.to_host[i], links.from_host[j])
            for leg in legs:
                if i != j and leg >= 0:
                    uses[leg] += 1.0
    return uses / max(1, n * (n - 1))


def downward_ranks(problem: Problem) -> FloatArray:
    """[ops]: longest path from the beginning to an op's start (CPOP's second rank)."""
    costs, out = list_costs(problem), np.empty(problem.n_ops)
    _core.overlap.downward_ranks(core_problem(problem), costs.mean_time_s, costs.mean_copy_s, out)
    return out


def optimistic_costs(problem: Problem) -> FloatArray:
    """[ops, devices]: what is left after an op ends on a device, each later op on its best device (PEFT's table)."""
    costs = list_costs(problem)
    out = np.empty(costs.time_s.shape)
    _core.overlap.optimistic_costs(core_problem(problem), costs.time_s, costs.mean_copy_s, out)
    return out
