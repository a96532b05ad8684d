"""The course of a placement: what ran when, what waits for what, and what a change would delay. Nothing is judged."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.rewards import copy_seconds
from placewright.placers.search.moves import copy_time_s
from placewright.problems import Arrays, Problem


class Course(NamedTuple):
    """One entry per op. Under ``overlap`` devices run one op at a time; else ops start when their inputs allow it."""

    device: IntArray
    start_s: FloatArray
    end_s: FloatArray
    ready_s: FloatArray  # when the last input arrived
    tail_s: FloatArray  # longest way from the start to the end of all, by what is read and by who runs after whom
    by_device: NDArray[np.int64]  # ops by device, then by start
    position: NDArray[np.int64]  # of an op in ``by_device``
    first_of_device: NDArray[np.int64]  # [devices + 1]: positions
    whole_s: float

    @property
    def is_critical(self) -> NDArray[np.bool_]:
        return self.start_s + self.tail_s >= self.whole_s * (1 - 1e-6)


def course_of(problem: Problem, device_of_op: IntArray, rank_s: FloatArray) -> Course:
    """Follow a placement that was judged already; among ready ops, that with the largest rank runs first."""
    device = np.ascontiguousarray(device_of_op, dtype=np.int32)
    time_s = problem.op_device_time_s[np.arange(problem.n_ops), device]
    one_at_a_time = problem.execution == "overlap"
    start, copies = _simulated(problem, device, rank_s) if one_at_a_time else _earliest_starts(problem, device, time_s)
    end = start + time_s
    by_start = np.lexsort((end, start))  # what takes no time before what starts at the same moment and takes some
    ready, tail = np.zeros(problem.n_ops), np.empty(problem.n_ops)
    _ready_and_tail(problem.arrays, device, by_start, end, time_s, copies, one_at_a_time, ready, tail)
    by_device = by_start[np.argsort(device[by_start], kind="stable")]
    position = np.empty_like(by_device)
    position[by_device] = np.arange(len(position))
    first = np.concatenate([[0], np.cumsum(np.bincount(device, minlength=problem.n_devices))])
    whole = float((start + tail).max()) or 1.0
    return Course(device, start, end, ready, tail, by_device, position, first, whole)


def ends_s(problem: Problem, device_of_op: IntArray, rank_s: FloatArray) -> FloatArray:
    """[ops]: when each op of a placement that was judged already under ``overlap`` ended."""
    start, _ = _simulated(problem, device_of_op, rank_s)
    return start + problem.op_device_time_s[np.arange(problem.n_ops), device_of_op]


def _simulated(problem: Problem, device: IntArray, rank_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    from placewright.evaluate.judging import simulated

    record = simulated(problem, device, -rank_s)[1]
    return record.start_s, record.copies[:, :, 1]


def _earliest_starts(problem: Problem, device: IntArray, time_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    g, start = problem.graph, np.zeros(problem.n_ops)
    copies = copy_seconds(problem, g.edge_tensor, device[g.edge_producer], device[g.consumer_op])
    order = np.argsort(g.edge_producer, kind="stable")
    source, target = g.edge_producer[order].astype(np.int64), g.consumer_op[order].astype(np.int64)
    _earliest(source, target, copies[order], time_s, start)
    return start, np.full((g.n_tensors, problem.n_devices), np.nan)


@njit(cache=True, nogil=True)
def _earliest(source: Any, target: Any, copy_s: Any, time_s: Any, start: Any) -> None:
    for e in range(source.shape[0]):  # by producer, in topological order: its own start is final
        ready = start[source[e]] + time_s[source[e]] + copy_s[e]
        if ready > start[target[e]]:
            start[target[e]] = ready


@njit(cache=True, nogil=True)
def _ready_and_tail(
    a: Arrays, device: Any, by_start: Any, end_s: Any, time_s: Any, arrival_s: Any, one_at_a_time: bool, ready_s: Any,
    tail_s: Any,
) -> None:  # fmt: skip
    """``arrival_s`` [tensors, devices] includes waiting for channels; NaN where nothing was queued."""
    next_tail_s = np.zeros(arrival_s.shape[1])
    for i in range(by_start.shape[0] - 1, -1, -1):
        v = by_start[i]
        d = device[v]
        longest = next_tail_s[d]
        for t in range(a.tensor_ptr[v], a.tensor_ptr[v + 1]):
            for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                w = a.consumer_op[e]
                delay = 0.0
                if device[w] != d:
                    queued = not np.isnan(arrival_s[t, device[w]])
                    delay = arrival_s[t, device[w]] - end_s[v] if queued else copy_time_s(a, t, d, device[w])
                ready_s[w] = max(ready_s[w], end_s[v] + delay)
                longest = max(longest, delay + tail_s[w])
        tail_s[v] = time_s[v] + longest
        if one_at_a_time:
            next_tail_s[d] = tail_s[v]


def busy_until(course: Course, n_bins: int) -> FloatArray:
    """[devices, bins + 1]: seconds of work before each bin's beginning."""
    n_devices = len(course.first_of_device) - 1
    return _busy_until(course.start_s, course.end_s, course.device, n_devices, course.whole_s, n_bins)


@njit(cache=True, nogil=True)
def _busy_until(start_s: Any, end_s: Any, device: Any, n_devices: int, whole_s: float, n_bins: int) -> Any:
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


def overtakings(course: Course) -> NDArray[np.int64]:
    """[pairs, 2]: a critical op that waited for its device, and one that the device ran in the meantime."""
    waited = np.flatnonzero(course.is_critical & (course.start_s > course.ready_s + 1e-9 * course.whole_s))
    pairs = [
        (v, int(course.by_device[k]))
        for v in waited.tolist()
        for k in range(int(course.position[v]) - 1, int(course.first_of_device[course.device[v]]) - 1, -1)
        if course.start_s[course.by_device[k]] >= course.ready_s[v]
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


class Guesses(NamedTuple):
    """What a move may lead to, one entry per move: the end of all, for one reason, over that of now, less 1."""

    there: FloatArray  # the way through the part there
    here: FloatArray  # the way through it now, 0 if it is critical
    pushed: FloatArray  # the ways behind it on its new device
    left: FloatArray  # the way past the gap on its old device

    def change(self) -> FloatArray:
        """The guessed change of the value, as a share of it: what is not critical cannot make anything better."""
        worst = np.maximum(np.maximum(self.there, self.pushed), self.left)
        return np.where(self.here < -1e-5, np.maximum(worst, 0.0), worst)


def guesses(
    problem: Problem, course: Course, part_of_op: NDArray[np.int64], part: NDArray[np.int64], to: NDArray[np.int64]
) -> tuple[Guesses, FloatArray, FloatArray]:
    """Guess moves of parts to devices; also when each part would begin there, and how long it would run, in seconds."""
    by_part = np.argsort(part_of_op, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(part_of_op))])
    out = np.empty((len(part), 6))
    _guess(
        problem.arrays, problem.op_device_time_s, course.device, course.start_s, course.end_s, course.ready_s,
        course.tail_s, course.by_device, course.position, course.first_of_device, problem.execution == "overlap",
        part_of_op, by_part, first, part, to, out,
    )  # fmt: skip
    there, here, pushed, left = (out[:, k] / course.whole_s - 1.0 for k in range(4))
    return Guesses(there, here, pushed, left), out[:, 4], out[:, 5]


@njit(cache=True, nogil=True)
def _guess(
    a: Arrays, time_s: Any, device: Any, start_s: Any, end_s: Any, ready_s: Any, tail_s: Any, by_device: Any,
    position: Any, first_of_device: Any, one_at_a_time: bool, part_of_op: Any, op_by_part: Any, first: Any,
    moved_part: Any, to: Any, out: Any,
) -> None:  # fmt: skip
    """All ops outside the part keep their places in the course: nothing is simulated."""
    new_start_s, new_tail_s = np.zeros(device.shape[0]), np.zeros(device.shape[0])
    for m in range(moved_part.shape[0]):
        part, d = moved_part[m], to[m]
        there, here, pushed, left, begin, work, free = 0.0, 0.0, 0.0, 0.0, np.inf, 0.0, 0.0
        for i in range(first[part], first[part + 1]):
            v = op_by_part[i]
            begins = free
            for j in range(a.input_ptr[v], a.input_ptr[v + 1]):
                t = a.input_tensor[j]
                u = a.tensor_producer[t]
                if part_of_op[u] == part:
                    begins = max(begins, new_start_s[u] + time_s[u, d])
                else:
                    begins = max(begins, end_s[u] + copy_time_s(a, t, device[u], d))
            begin = min(begin, begins)
            if one_at_a_time:
                low, high = first_of_device[d], first_of_device[d + 1]
                while low < high:
                    middle = (low + high) // 2
                    if start_s[by_device[middle]] < begins:
                        low = middle + 1
                    else:
                        high = middle
                if low > first_of_device[d]:
                    begins = max(begins, end_s[by_device[low - 1]])
                if low < first_of_device[d + 1]:
                    pushed = max(pushed, begins + time_s[v, d] + tail_s[by_device[low]])
                free = begins + time_s[v, d]
                home = device[v]
                before, behind = position[v] - 1, position[v] + 1
                while before >= first_of_device[home] and part_of_op[by_device[before]] == part:
                    before -= 1
                while behind < first_of_device[home + 1] and part_of_op[by_device[behind]] == part:
                    behind += 1
                if behind < first_of_device[home + 1]:
                    w = by_device[behind]
                    earliest = ready_s[w]
                    if before >= first_of_device[home]:
                        earliest = max(earliest, end_s[by_device[before]])
                    left = max(left, earliest + tail_s[w])
            new_start_s[v] = begins
            here = max(here, start_s[v] + tail_s[v])
            work += time_s[v, d]
        for i in range(first[part + 1] - 1, first[part] - 1, -1):
            v = op_by_part[i]
            tail = 0.0
            for t in range(a.tensor_ptr[v], a.tensor_ptr[v + 1]):
                for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                    w = a.consumer_op[e]
                    if part_of_op[w] == part:
                        tail = max(tail, new_tail_s[w])
                    else:
                        tail = max(tail, tail_s[w] + copy_time_s(a, t, d, device[w]))
            new_tail_s[v] = tail + time_s[v, d]
            there = max(there, new_start_s[v] + new_tail_s[v])
        out[m, 0], out[m, 1], out[m, 2], out[m, 3], out[m, 4], out[m, 5] = there, here, pushed, left, begin, work
