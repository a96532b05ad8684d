"""All placements of a small problem, in the order of its ops, as far as they can still beat the best one known.

Which pieces the first ops form depends on these ops alone, and every cost of theirs only grows with more ops. So the
value of the part of a placement that covers the first ops is a lower bound on its value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate import evaluate_many
from placewright.placers.calls.groups import Groups
from placewright.placers.judges.calls import find_pieces, run_groups
from placewright.problems import Arrays, Problem

_HAIR = 1e-12


class Enumerated(NamedTuple):
    """``device_of_op`` is the best placement below the value given; ``is_complete`` if nothing was left out."""

    device_of_op: NDArray[np.int32] | None
    value: float
    is_complete: bool
    nodes: int


def enumerate_placements(
    problem: Problem, groups: Groups, below: float, most_nodes: int, should_stop: Callable[[], bool]
) -> Enumerated:
    """Look for a valid placement better than ``below``; a complete search without one proves that there is none."""
    search = _Search(problem, groups, below, most_nodes, should_stop)
    complete = search.extend(0)
    return Enumerated(search.best, search.value, complete, search.nodes)


class _Search:
    def __init__(
        self, problem: Problem, groups: Groups, below: float, most_nodes: int, should_stop: Callable[[], bool]
    ) -> None:
        self.problem, self.groups, self.should_stop = problem, groups, should_stop
        self.value, self.most_nodes, self.nodes = below, most_nodes, 0
        self.best: NDArray[np.int32] | None = None
        self.prefixes = [_prefix(problem.arrays, m + 1) for m in range(problem.n_ops)]
        self.device = np.zeros(problem.n_ops, dtype=np.int32)
        self.device_of_group = [-1] * len(groups.size_bytes)
        self.used = np.zeros(problem.n_devices)
        self.alike = _alike(problem)
        # Host devices form one pool, so of those that are alike one is enough, unless memory or segments count.
        unlimited = problem.arrays.is_host & np.isinf(groups.limit_bytes) & (problem.max_segments is None)
        self.idle = [bool(unlimited[d]) and self.alike[d] != d for d in range(problem.n_devices)]

    def extend(self, v: int) -> bool:
        """Place op ``v`` and all later ones in every way; False if not all ways were looked at."""
        if v == self.problem.n_ops:
            result = evaluate_many(self.problem, self.device[None, :], threads=1)
            if result.is_valid[0] and result.value[0] < self.value:
                self.best, self.value = self.device.copy(), float(result.value[0])
            return True
        g = int(self.groups.of_op[v])
        if self.device_of_group[g] >= 0:
            return self._place(v, self.device_of_group[g])
        complete = True
        for d in self._options(g):
            self.device_of_group[g] = d
            self.used[d] += self.groups.size_bytes[g]
            complete &= self._place(v, d)
            self.used[d] -= self.groups.size_bytes[g]
        self.device_of_group[g] = -1
        return complete

    def _options(self, g: int) -> list[int]:
        """Devices with room; of those that are alike and still empty, only the first."""
        taken = set(self.device_of_group)
        fresh: set[int] = set()
        options = []
        for d in np.flatnonzero(self.groups.allowed[g]).tolist():
            if self.used[d] + self.groups.size_bytes[g] > self.groups.limit_bytes[d] * (1 + _HAIR) or self.idle[d]:
                continue
            if d not in taken:
                if self.alike[d] in fresh:
                    continue
                fresh.add(self.alike[d])
            options.append(d)
        return options

    def _place(self, v: int, d: int) -> bool:
        self.nodes += 1
        if self.nodes > self.most_nodes or self.should_stop():
            return False
        self.device[v] = d
        part = self.device[: v + 1]
        group, times = np.empty(v + 1, dtype=np.int32), np.empty((4, v + 1))
        n = find_pieces(self.prefixes[v], part, group)
        value = run_groups(self.prefixes[v], part, group, n, times[0, :n], times[1, :n], times[2, :n], times[3, :n])
        return value * (1 - _HAIR) >= self.value or self.extend(v + 1)


def _prefix(a: Arrays, n_ops: int) -> Arrays:
    """The arrays of the first ops alone, as far as the model of calls reads them."""
    n_tensors = int(a.tensor_ptr[n_ops])
    ends = int(a.consumer_ptr[n_tensors])
    kept = a.consumer_op[:ends] < n_ops
    before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    return a._replace(
        tensor_ptr=a.tensor_ptr[: n_ops + 1],
        tensor_producer=a.tensor_producer[:n_tensors],
        consumer_ptr=before[a.consumer_ptr[: n_tensors + 1]],
        consumer_op=a.consumer_op[:ends][kept],
    )


def _alike(problem: Problem) -> list[int]:
    """A number per device; devices of one number can be exchanged for each other."""
    label = [0] * problem.n_devices
    for i, members in enumerate(problem.cluster.device_groups()):
        for d in members:
            label[d] = i
    keys = [(label[d], problem.allowed[:, d].tobytes()) for d in range(problem.n_devices)]
    return [keys.index(key) for key in keys]
