"""Segment overheads as costs of edges: what makes bounds and cuts see them.

Along any path, every change of device starts a segment, so the overheads are at least those along the path, and at
least their mean over several paths. Such a mean charges a change of device edge by edge, like a copy that costs only
the receiver: any bound or cut for labellings then holds with overheads, too. The paths that are worst for the present
labelling are mixed in, one after another, until labellings have no cheap way to change device any more. With two
devices the worst path tells the segments of a labelling exactly, up to the one it starts with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.graph import FloatArray, IntArray
from placewright.placers.sequential.labelling import Energy, compiled, energy_of
from placewright.placers.units import movable_units
from placewright.problems import Problem


class PathMix:
    """A mean of paths: how much of each edge and of each first unit is in it."""

    def __init__(self, problem: Problem, segment_s: FloatArray) -> None:
        """``segment_s`` [devices]: what a segment costs, the price of a limited number of them included."""
        self.problem, self.segment_s = problem, segment_s
        self.edge = np.zeros(problem.graph.n_edges)
        self.first = np.zeros(energy_of(problem).n_units)

    def mix_in(self, label: IntArray, share: float) -> None:
        """Make the path that is worst for a labelling that share of the mean."""
        g, unit = self.problem.graph, movable_units(self.problem).unit_of_op
        edges, first = _worst_path(
            g.tensor_ptr, g.consumer_ptr, g.consumer_op, label[unit].astype(np.int32), self.segment_s
        )
        self.edge *= 1 - share
        self.first *= 1 - share
        self.edge[edges] += share
        self.first[unit[first]] += share

    def energy(self) -> Energy:
        """The problem's energy with the mean overhead along the paths."""
        e, g, unit = energy_of(self.problem), self.problem.graph, movable_units(self.problem).unit_of_op
        n = e.n_devices
        before, after = unit[g.edge_producer], unit[g.consumer_op]
        used = np.flatnonzero((self.edge > 0) & (before != after))
        into = self.edge[used, None] * self.segment_s  # [edges, devices]
        # One link class per pair, per way down and per way up: an edge's cost depends on the receiver alone.
        pair = np.where(e.direct >= 0, np.arange(n * n).reshape(n, n), -1).astype(np.int32)
        copies = np.concatenate(
            [e.copy_s[:, e.direct.ravel()], e.copy_s[:, e.from_host], e.copy_s[:, e.to_host]], axis=1
        )
        edges = np.concatenate([np.tile(into, n), into, np.zeros_like(into)], axis=1)
        down = n * n + np.arange(n, dtype=np.int32)
        tensor = np.repeat(np.arange(len(e.home)), np.diff(e.reader_ptr))
        return compiled(
            e.time_s + self.first[:, None] * self.segment_s,
            e.memory_bytes,
            np.concatenate([e.home, before[used]]),
            np.concatenate([tensor, len(e.home) + np.arange(len(used))]),
            np.concatenate([e.reader, after[used]]),
            np.concatenate([copies, edges]),
            pair,
            down + np.int32(n),
            down,
        )


@njit(cache=True, nogil=True)
def _worst_path(tensor_ptr: Any, consumer_ptr: Any, consumer_op: Any, device: Any, segment_s: Any) -> Any:
    """(edges, first op) of the path whose changes of device cost most."""
    n = device.shape[0]
    worst = np.empty(n)
    through = np.full(n, -1, dtype=np.int32)
    origin = np.full(n, -1, dtype=np.int32)
    for v in range(n):
        worst[v] = segment_s[device[v]]
    end = 0
    for u in range(n):
        if worst[u] > worst[end]:
            end = u
        for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
            for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
                v = consumer_op[e]
                cost = worst[u] + (segment_s[device[v]] if device[v] != device[u] else 0.0)
                if cost > worst[v]:
                    worst[v] = cost
                    through[v] = e
                    origin[v] = u
    length = 0
    at = end
    while through[at] >= 0:
        length += 1
        at = origin[at]
    edges = np.empty(length, dtype=np.int32)
    first = at
    at = end
    for k in range(length):
        edges[k] = through[at]
        at = origin[at]
    return edges, first
