"""Figures that list schedulers rank ops by: mean times and copies, ranks, the optimistic cost table.

Mean time of an op: over the devices its group may be on. Mean copy of a tensor: over all ordered pairs of different
devices (the free diagonal does not count).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import FloatArray, IntArray, sums_by_index
from placewright.problems import Arrays, Problem, once_per_problem


class Costs(NamedTuple):
    """Arrays of one problem for the kernels; a group is named by its first op, rows of other ops are unused."""

    arrays: Arrays  # the problem's, all writable: read-only ones would be types of their own, compiled anew
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
    mean_copy = problem.tensor_copy_s @ _share_of_pairs(problem)
    writable: list[Any] = [np.require(array, requirements=["C", "W"]) for array in problem.arrays]
    a = Arrays(*writable)
    upward = np.empty(n)
    upward_ranks(a.tensor_ptr, a.consumer_ptr, a.consumer_op, mean_time, mean_copy, upward)
    return Costs(
        arrays=a,
        time_s=np.ascontiguousarray(time),
        mean_time_s=mean_time,
        mean_copy_s=np.ascontiguousarray(mean_copy),
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


@njit(cache=True, nogil=True)
def upward_ranks(
    tensor_ptr: Any, consumer_ptr: Any, consumer_op: Any, mean_time_s: Any, mean_copy_s: Any, out: Any
) -> None:
    """Longest way from an op's start to the end, mean times and copies along it (HEFT's rank)."""
    for u in range(out.shape[0] - 1, -1, -1):
        longest = 0.0
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
                longest = max(longest, mean_copy_s[t] + out[consumer_op[e]])
        out[u] = mean_time_s[u] + longest


@njit(cache=True, nogil=True)
def downward_ranks(
    tensor_ptr: Any, consumer_ptr: Any, consumer_op: Any, mean_time_s: Any, mean_copy_s: Any, out: Any
) -> None:
    """Longest way from the beginning to an op's start (CPOP's second rank)."""
    out[:] = 0.0
    for u in range(out.shape[0]):
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
                v = consumer_op[e]
                out[v] = max(out[v], out[u] + mean_time_s[u] + mean_copy_s[t])


@njit(cache=True, nogil=True)
def optimistic_costs(
    tensor_ptr: Any, consumer_ptr: Any, consumer_op: Any, time_s: Any, mean_copy_s: Any, out: Any
) -> None:
    """PEFT's table [ops, devices]: what is left after an op ends on a device, if each later op has the best device."""
    n, n_devices = out.shape
    total = np.empty(n_devices)
    for u in range(n - 1, -1, -1):
        out[u] = 0.0
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
                v = consumer_op[e]
                least = np.inf
                for d in range(n_devices):
                    total[d] = out[v, d] + time_s[v, d]
                    least = min(least, total[d])
                for d in range(n_devices):
                    out[u, d] = max(out[u, d], min(total[d], least + mean_copy_s[t]))
