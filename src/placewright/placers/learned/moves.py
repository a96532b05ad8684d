"""The state of a search as a policy sees it, and the moves it may choose from: a cluster, or its part, to a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.graph import FloatArray, IntArray
from placewright.placers.annealing.moves import copy_time_s
from placewright.placers.learned.groups import GroupGraph
from placewright.placers.learned.rewards import copy_seconds, ways_left
from placewright.problem import Arrays, Problem

STATE_WIDTH = 6
MOVE_WIDTH = 13
_BINS = 64  # parts of the time in which it is known how busy a device is


class Moves(NamedTuple):
    """Moves that change something and are allowed. ``part_of_group[level]`` numbers the parts that can be moved."""

    level: NDArray[np.int64]  # [moves]
    part: NDArray[np.int64]  # [moves]: number of the part at its level
    device: IntArray  # [moves]
    cluster: NDArray[np.int64]  # [moves]: cluster of the level that the part belongs to
    features: NDArray[np.float32]  # [moves, MOVE_WIDTH]
    part_of_group: NDArray[np.int64]  # [levels, groups]


class Situation(NamedTuple):
    """A placement of the groups with what is known about its course."""

    device: IntArray  # [groups]
    criticality: FloatArray  # [groups]: 1 where the longest way through the schedule passes
    start: FloatArray  # [groups]: as a share of the whole time
    load: FloatArray  # [devices]: as a share of the whole time
    unit_s: float  # the whole time, or what stands for it
    op_end_s: FloatArray  # [ops]: when it ends
    op_left_s: FloatArray  # [ops]: longest way from its start to the end of the model
    busy: FloatArray  # [devices, _BINS + 1]: seconds of work up to a bin


class MoveSpace:
    """Describes situations and lists moves; holds what does not change during a search."""

    def __init__(self, problem: Problem, groups: GroupGraph) -> None:
        self.problem, self.groups = problem, groups
        g = problem.graph
        source, target = groups.group_of_op[g.edge_producer], groups.group_of_op[g.consumer_op]
        crossing = source != target
        self._source, self._target = source[crossing].astype(np.int64), target[crossing].astype(np.int64)
        self._tensor = g.edge_tensor[crossing]
        self._time_s = np.where(groups.allowed, groups.time_s, 0.0)
        self._all = np.arange(groups.n_groups)

    def situation(self, device: IntArray) -> Situation:
        """Look at a placement: who is critical, when, and how busy the devices are."""
        ops = device[self.groups.group_of_op]
        left = ways_left(self.problem, ops[None])[0]
        start = _starts(self.problem, ops, left)
        whole = max(float((start + left).max()), 1e-300)
        n = self.groups.n_groups
        critical, begin = np.zeros(n), np.zeros(n)
        np.maximum.at(critical, self.groups.group_of_op, (start + left) / whole)
        np.maximum.at(begin, self.groups.group_of_op, start / whole)
        load = np.bincount(device, self._time_s[self._all, device], self.groups.n_devices) / whole
        end = start + self.problem.op_device_time_s[np.arange(self.problem.n_ops), ops]
        busy = _busy_until(start, end, ops, self.groups.n_devices, whole, _BINS)
        return Situation(device, critical, begin, load, whole, end, left, busy)

    def state_features(self, now: Situation) -> NDArray[np.float32]:
        """[groups, STATE_WIDTH]: what the placement adds to the features of each group."""
        n, device = self.groups.n_groups, now.device
        away = (device[self._source] != device[self._target]).astype(np.float64)
        cut_in = np.bincount(self._target, away, n) / np.maximum(np.bincount(self._target, minlength=n), 1)
        cut_out = np.bincount(self._source, away, n) / np.maximum(np.bincount(self._source, minlength=n), 1)
        own = _log_share(self._time_s[self._all, device] / now.unit_s)
        columns = (4 * now.criticality - 3, now.start, own, now.load[device], cut_in, cut_out)
        return np.stack(columns, axis=1).astype(np.float32)

    def moves(self, now: Situation, cluster_of_group: list[NDArray[np.int64]]) -> Moves:
        """List the moves of all levels. A part is the share of a cluster that is on one device now."""
        listed = [self._moves_of_level(i, now, labels) for i, labels in enumerate(cluster_of_group)]
        level, part, device, cluster, features = (np.concatenate([m[k] for m in listed]) for k in range(5))
        return Moves(level, part, device, cluster, features, np.stack([m[5] for m in listed]))

    def _moves_of_level(self, level: int, now: Situation, cluster_of_group: NDArray[np.int64]) -> tuple[Any, ...]:
        n_devices, device = self.groups.n_devices, now.device
        key, part = np.unique(cluster_of_group * n_devices + device, return_inverse=True)
        n, here = len(key), key % n_devices
        size = np.bincount(part)
        time = np.zeros((n, n_devices))
        np.add.at(time, part, self._time_s)
        allowed = np.ones((n, n_devices), dtype=np.bool_)
        np.logical_and.at(allowed, part, self.groups.allowed)
        copies = self._copy_change(part, n, device)
        critical = np.zeros(n)
        np.maximum.at(critical, part, now.criticality)
        start = np.bincount(part, now.start) / size
        allowed[np.arange(n), here] = False
        p, d = np.nonzero(allowed)
        own = time[np.arange(n), here]
        guess = self._guesses(now, part, p, d)
        features = np.stack(
            [
                _log_share((time[p, d] - own[p]) / now.unit_s),
                _log_share(copies[p, d] / now.unit_s),
                _log_share((time[p, d] - own[p] + copies[p, d]) / now.unit_s),
                4 * critical[p] - 3,
                _log_share(own[p] / now.unit_s),
                now.load[d],
                now.load[here[p]],
                np.log(size[p]),
                start[p],
                np.clip(10 * guess[:, 0], -5.0, 5.0),
                np.clip(10 * guess[:, 1], -5.0, 5.0),
                guess[:, 2],
                guess[:, 3],
            ],
            axis=1,
        )
        levels = np.full(len(p), level)
        return levels, p, d.astype(np.int32), key[p] // n_devices, features.astype(np.float32), part

    def _guesses(
        self, now: Situation, part: NDArray[np.int64], moved_part: NDArray[np.int64], to: NDArray[np.int64]
    ) -> FloatArray:
        """[moves, 4]: the longest way through the part there and here, less the whole time, as shares of it; how busy
        the device is there, and the one here, while the part would run.
        """
        part_of_op, device_of_op = part[self.groups.group_of_op], now.device[self.groups.group_of_op]
        by_part = np.argsort(part_of_op, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(part_of_op))])
        out = np.empty((len(moved_part), 4))
        _guess(
            self.problem.arrays, self.problem.op_device_time_s, device_of_op, now.op_end_s, now.op_left_s, now.busy,
            now.unit_s, part_of_op, by_part, first, moved_part, to, out,
        )  # fmt: skip
        return out

    def _copy_change(self, part: NDArray[np.int64], n: int, device: IntArray) -> FloatArray:
        """[parts, devices]: seconds of copies more, were the part there and all else as it is."""
        crossing = part[self._source] != part[self._target]
        u, v, t = self._source[crossing], self._target[crossing], self._tensor[crossing]
        everywhere = np.arange(self.groups.n_devices)[None]
        now = copy_seconds(self.problem, t, device[u], device[v])[:, None]
        change = np.zeros((n, self.groups.n_devices))
        np.add.at(change, part[u], copy_seconds(self.problem, t[:, None], everywhere, device[v][:, None]) - now)
        np.add.at(change, part[v], copy_seconds(self.problem, t[:, None], device[u][:, None], everywhere) - now)
        return change


def moved(device: IntArray, moves: Moves, chosen: NDArray[np.int64]) -> IntArray:
    """[batch, groups]: the placement after the chosen moves [batch, moves each] (-1: none), one after another."""
    rows = np.repeat(device[None], len(chosen), axis=0)
    for k in range(chosen.shape[1]):
        c = chosen[:, k]
        hit = (moves.part_of_group[moves.level[c]] == moves.part[c][:, None]) & (c >= 0)[:, None]
        rows = np.where(hit, moves.device[c][:, None], rows)
    return rows


@njit(cache=True, nogil=True)
def _guess(
    a: Arrays, time_s: Any, device: Any, end_s: Any, left_s: Any, busy: Any, whole_s: float, part_of_op: Any,
    op_by_part: Any, first: Any, moved_part: Any, to: Any, out: Any,
) -> None:  # fmt: skip
    """Ops before the part end when they do now, what follows takes as long as now: nothing is simulated."""
    n_bins = busy.shape[1] - 1
    for m in range(moved_part.shape[0]):
        part, d = moved_part[m], to[m]
        here, there, begin, work = 0.0, 0.0, np.inf, 0.0
        for i in range(first[part], first[part + 1]):
            v = op_by_part[i]
            ready, tail = 0.0, 0.0
            for j in range(a.input_ptr[v], a.input_ptr[v + 1]):
                t = a.input_tensor[j]
                u = a.tensor_producer[t]
                source = d if part_of_op[u] == part else device[u]
                ready = max(ready, end_s[u] + copy_time_s(a, t, source, d))
            for t in range(a.tensor_ptr[v], a.tensor_ptr[v + 1]):
                for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                    w = a.consumer_op[e]
                    target = d if part_of_op[w] == part else device[w]
                    tail = max(tail, left_s[w] + copy_time_s(a, t, d, target))
            there = max(there, ready + time_s[v, d] + tail)
            here = max(here, end_s[v] - time_s[v, device[v]] + left_s[v])
            begin = min(begin, ready)
            work += time_s[v, d]
        low = min(n_bins - 1, int(begin / whole_s * n_bins))
        high = min(n_bins, max(low + 1, int((begin + work) / whole_s * n_bins) + 1))
        span_s = (high - low) * whole_s / n_bins
        home = device[op_by_part[first[part]]]
        out[m, 0] = there / whole_s - 1.0
        out[m, 1] = here / whole_s - 1.0
        out[m, 2] = (busy[d, high] - busy[d, low]) / span_s
        out[m, 3] = (busy[home, high] - busy[home, low]) / span_s


@njit(cache=True, nogil=True)
def _busy_until(start_s: Any, end_s: Any, device: Any, n_devices: int, whole_s: float, n_bins: int) -> Any:
    """[devices, bins + 1]: seconds of work before each bin's beginning."""
    busy = np.zeros((n_devices, n_bins + 1))
    bin_s = whole_s / n_bins
    for v in range(start_s.shape[0]):
        first = min(n_bins - 1, int(start_s[v] / bin_s))
        last = min(n_bins - 1, int(end_s[v] / bin_s))
        for b in range(first, last + 1):
            busy[device[v], b + 1] += max(0.0, min(end_s[v], (b + 1) * bin_s) - max(start_s[v], b * bin_s))
    for d in range(n_devices):
        for b in range(n_bins):
            busy[d, b + 1] += busy[d, b]
    return busy


def _log_share(share: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of thousandths, with sign."""
    return np.sign(share) * np.log1p(1000 * np.abs(share))


def _starts(problem: Problem, device_of_op: IntArray, left: FloatArray) -> FloatArray:
    """When ops start: as simulated under ``overlap``, else as early as what they read allows."""
    if problem.execution == "overlap":
        from placewright.evaluate.overlap import empty_record, simulate, workspace

        record = empty_record(problem.n_ops, problem.graph.n_tensors, problem.n_devices)
        simulate(problem.arrays, device_of_op, -left, workspace(problem.n_ops, problem.n_devices), record)
        return record.start_s
    g, start = problem.graph, np.zeros(problem.n_ops)
    copies = copy_seconds(problem, g.edge_tensor, device_of_op[g.edge_producer], device_of_op[g.consumer_op])
    time = problem.op_device_time_s[np.arange(problem.n_ops), device_of_op]
    order = np.argsort(g.edge_producer, kind="stable")
    _earliest(
        g.edge_producer[order].astype(np.int64), g.consumer_op[order].astype(np.int64), copies[order], time, start
    )
    return start


@njit(cache=True, nogil=True)
def _earliest(source: Any, target: Any, copy_s: Any, time_s: Any, start: Any) -> None:
    for e in range(source.shape[0]):  # by producer, in topological order: its own start is final
        ready = start[source[e]] + time_s[source[e]] + copy_s[e]
        if ready > start[target[e]]:
            start[target[e]] = ready
