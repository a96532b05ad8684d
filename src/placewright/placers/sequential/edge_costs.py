"""Segment overheads as costs of edges: what makes bounds and cuts see them.

Along any path, every change of device starts a segment, so the overheads are at least those along the path, and at
least their mean over several paths. Such a mean charges a change of device edge by edge, like a copy that costs only
the receiver: any bound or cut for labellings then holds with overheads, too. The paths that are worst for the present
labelling are mixed in, one after another, until labellings have no cheap way to change device any more. With two
devices the worst path tells the segments of a labelling exactly, up to the one it starts with.
"""

from __future__ import annotations

import numpy as np

from placewright import _core
from placewright.graph import FloatArray, IntArray
from placewright.placers.sequential.labelling import Energy, compiled, energy_of
from placewright.placers.units import movable_units
from placewright.problems import Problem, core_problem


class PathMix:
    """A mean of paths: how much of each edge and of each first unit is in it."""

    def __init__(self, problem: Problem, segment_s: FloatArray) -> None:
        """``segment_s`` [devices]: what a segment costs, the price of a limited number of them included."""
        self.problem, self.segment_s = problem, segment_s
        self.edge = np.zeros(problem.graph.n_edges)
        self.first = np.zeros(energy_of(problem).n_units)

    def mix_in(self, label: IntArray, share: float) -> None:
        """Make the path that is worst for a labelling that share of the mean."""
        unit = movable_units(self.problem).unit_of_op
        path = np.empty(len(unit), dtype=np.int32)
        length, first = _core.sequential.worst_path(core_problem(self.problem), label[unit], self.segment_s, path)
        edges = path[:length]
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
