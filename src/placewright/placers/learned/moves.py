"""The state of a search as a policy sees it, and the moves it may choose from: a cluster, or its part, to a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.course import Course, busy_until, course_of, guesses
from placewright.placers.learned.groups import GroupGraph
from placewright.placers.learned.rewards import copy_seconds, ways_left
from placewright.problems import Problem

STATE_WIDTH = 6
MOVE_WIDTH = 16
_BINS = 64  # parts of the time in which it is known how busy a device is


class Moves(NamedTuple):
    """Moves that change something and are allowed. ``part_of_group[level]`` numbers the parts that can be moved."""

    level: NDArray[np.int64]  # [moves]
    part: NDArray[np.int64]  # [moves]: number of the part at its level
    device: IntArray  # [moves]
    cluster: NDArray[np.int64]  # [moves]: cluster of the level that the part belongs to
    features: NDArray[np.float32]  # [moves, MOVE_WIDTH]
    value_change: FloatArray  # [moves]: guessed, as a share of the whole time
    work_change: FloatArray  # [moves]: of priced work, as a share of the whole time
    part_of_group: NDArray[np.int64]  # [levels, groups]


class Situation(NamedTuple):
    """A placement of the groups with what is known about its course."""

    device: IntArray  # [groups]
    criticality: FloatArray  # [groups]: 1 where the longest way through the schedule passes
    start: FloatArray  # [groups]: as a share of the whole time
    load: FloatArray  # [devices]: as a share of the whole time
    unit_s: float  # the whole time, or what stands for it
    course: Course  # of the ops
    busy: FloatArray  # [devices, _BINS + 1]: seconds of work up to a bin


class MoveSpace:
    """Describes situations and lists moves; holds what does not change during a search.

    ``price`` [devices] is what a second of work on a device is worth, nothing if not given.
    """

    def __init__(self, problem: Problem, groups: GroupGraph, price: FloatArray | None = None) -> None:
        self.problem, self.groups = problem, groups
        self._price = np.zeros(problem.n_devices) if price is None else price
        g = problem.graph
        source, target = groups.group_of_op[g.edge_producer], groups.group_of_op[g.consumer_op]
        crossing = source != target
        self._source, self._target = source[crossing].astype(np.int64), target[crossing].astype(np.int64)
        self._tensor = g.edge_tensor[crossing]
        self._time_s = np.where(groups.allowed, groups.time_s, 0.0)
        self._all = np.arange(groups.n_groups)

    def situation(self, device: IntArray, rank_s: FloatArray | None = None) -> Situation:
        """Look at a placement: who is critical, when, and how busy the devices are. ``rank_s`` [ops]: the order."""
        ops = device[self.groups.group_of_op]
        course = course_of(self.problem, ops, ways_left(self.problem, ops[None])[0] if rank_s is None else rank_s)
        whole, n = course.whole_s, self.groups.n_groups
        critical, begin = np.zeros(n), np.zeros(n)
        np.maximum.at(critical, self.groups.group_of_op, (course.start_s + course.tail_s) / whole)
        np.maximum.at(begin, self.groups.group_of_op, course.start_s / whole)
        load = np.bincount(device, self._time_s[self._all, device], self.groups.n_devices) / whole
        return Situation(device, critical, begin, load, whole, course, busy_until(course, _BINS))

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
        level, part, device, cluster, features, value, work = (
            np.concatenate([m[k] for m in listed]) for k in range(7)
        )  # fmt: skip
        return Moves(level, part, device, cluster, features, value, work, np.stack([m[7] for m in listed]))

    def _moves_of_level(self, level: int, now: Situation, cluster_of_group: NDArray[np.int64]) -> tuple[Any, ...]:
        n_devices, device = self.groups.n_devices, now.device
        key, part = np.unique(cluster_of_group * n_devices + device, return_inverse=True)
        n, here = len(key), key % n_devices
        size = np.bincount(part)
        time = np.zeros((n, n_devices))
        np.add.at(time, part, self._time_s)
        allowed = np.ones((n, n_devices), dtype=np.bool_)
        np.logical_and.at(allowed, part, self.groups.allowed)
        critical = np.zeros(n)
        np.maximum.at(critical, part, now.criticality)
        start = np.bincount(part, now.start) / size
        allowed[np.arange(n), here] = False
        p, d = np.nonzero(allowed)
        home, own = here[p], time[p, here[p]]
        longer, copies = time[p, d] - own, self._copy_change(part, n, device)[p, d]
        guess, begin_s, work_s = guesses(self.problem, now.course, part[self.groups.group_of_op], p, d)
        if self.problem.execution == "overlap":
            value_change = guess.change()
        else:  # times and copies add up
            value_change = (longer + copies) / (now.load.sum() * now.unit_s or 1.0)
        work_change = (time[p, d] * self._price[d] - own * self._price[home]) / now.unit_s
        low, high = self._bins(now, begin_s, begin_s + work_s)
        span_s = (high - low) * now.unit_s / _BINS
        shares = (guess.there, guess.here, guess.pushed, guess.left, value_change)
        features = np.stack(
            [
                _log_share(longer / now.unit_s),
                _log_share(copies / now.unit_s),
                _log_share((longer + copies) / now.unit_s),
                4 * critical[p] - 3,
                _log_share(own / now.unit_s),
                now.load[d],
                now.load[home],
                np.log(size[p]),
                start[p],
                (now.busy[d, high] - now.busy[d, low]) / span_s,
                (now.busy[home, high] - now.busy[home, low]) / span_s,
                *(np.clip(10 * share, -5.0, 5.0) for share in shares),
            ],
            axis=1,
        )
        levels, clusters = np.full(len(p), level), key[p] // n_devices
        return levels, p, d.astype(np.int32), clusters, features.astype(np.float32), value_change, work_change, part

    def _bins(self, now: Situation, begin_s: FloatArray, end_s: FloatArray) -> tuple[Any, Any]:
        """First bin of a time, and the one behind its last."""
        low = np.minimum(begin_s / now.unit_s * _BINS, _BINS - 1).astype(np.int64)
        high = np.minimum(
            _BINS, np.maximum(low + 1, np.minimum(end_s / now.unit_s * _BINS, _BINS).astype(np.int64) + 1)
        )
        return low, high

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


def _log_share(share: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of thousandths, with sign."""
    return np.sign(share) * np.log1p(1000 * np.abs(share))
