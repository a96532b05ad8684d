"""Complete search of tiny problems under ``overlap``: all placements, all orders, cut by bounds.

Orders: a device that is free takes one of its ready ops; priorities can only say which. Conversely any such choices are
those of some priorities: number the ops as they start. So the best over all priorities is the best over all choices,
and the search branches on these. A branch is followed by running the rules of the evaluator from the beginning, which
is cheap for graphs this small and needs no state to go back to.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate.judging import memory_matters
from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.placers.judges.batch import judge_latency
from placewright.placers.judges.sequential import find_segments
from placewright.placers.search.moves import copy_time_s
from placewright.placers.units import movable_units
from placewright.problems import Arrays, Problem

_STEPS_PER_LOOK = 2000  # at the clock


class Complete(NamedTuple):
    """The best valid placement met and its order; ``finished`` makes its value the optimum (none: infeasible)."""

    device_of_op: NDArray[np.int32] | None
    priority: FloatArray | None
    value: float
    finished: bool
    steps: int


class _Search(NamedTuple):
    level: IntArray  # [1]: units placed so far
    tried: IntArray  # [units]: the device each was put on last, -1 if none yet
    device: IntArray  # [ops], -1 where not placed
    choice: IntArray  # [ops]: which of its ready ops a device took, decision by decision
    options: IntArray  # [ops]: out of how many
    decisions: IntArray  # [1]: how many decisions are fixed
    rank: IntArray  # [ops]: ops as they start
    best_device: IntArray
    best_rank: IntArray
    best: FloatArray  # [1]
    allowed: BoolArray  # [units, devices]
    alike: IntArray  # [devices]: the device before it that is the same in everything, -1 if none
    unit_of_op: IntArray
    least_s: FloatArray  # [ops]
    head_s: FloatArray  # [ops]: the earliest start of each op as far as the placement is known
    tail_s: FloatArray  # [ops]: the least time from its end to the end of everything


def search_completely(
    problem: Problem, budget: Budget, upper: float = math.inf, most_steps: float = math.inf
) -> Complete:
    """Search until everything better than ``upper`` has been seen, or the budget or the steps end."""
    search = _new_search(problem, upper)
    a, limits = problem.arrays, problem.max_segments or 0
    strict = memory_matters(problem)
    finished, steps = False, 0
    while not finished and steps < most_steps and not (steps and budget.expired()):
        finished = bool(_go_on(a, search, limits, strict, _STEPS_PER_LOOK))
        steps += _STEPS_PER_LOOK
    if search.best_device[0] < 0:
        return Complete(None, None, math.inf, finished, steps)
    value = float(search.best[0])
    return Complete(search.best_device, search.best_rank.astype(np.float64), value, finished, steps)


def _new_search(problem: Problem, upper: float) -> _Search:
    units = movable_units(problem)
    n = problem.n_ops
    least = problem.op_device_time_s.min(axis=1)

    def ints(size: int, value: int) -> IntArray:
        return np.full(size, value, dtype=np.int32)

    return _Search(
        level=ints(1, 0), tried=ints(len(units.allowed), -1), device=ints(n, -1), choice=ints(n, 0),
        options=ints(n, 0), decisions=ints(1, 0), rank=ints(n, 0), best_device=ints(n, -1), best_rank=ints(n, 0),
        best=np.array([upper]), allowed=units.allowed, alike=alike_before(problem), unit_of_op=units.unit_of_op,
        least_s=least, head_s=np.zeros(n), tail_s=np.zeros(n),
    )  # fmt: skip


def alike_before(problem: Problem) -> IntArray:
    """[devices]: the device before it that is the same in everything, -1 if there is none."""
    before = np.full(problem.n_devices, -1, dtype=np.int32)
    for group in problem.cluster.device_groups():
        for i, j in pairwise(group):
            if np.array_equal(problem.allowed[:, i], problem.allowed[:, j]):
                before[j] = i
    return before


@njit(cache=True, nogil=True)
def _go_on(a: Arrays, s: _Search, max_segments: int, strict: bool, steps: int) -> bool:
    """Take ``steps`` steps; true if the search has come to its end."""
    n_units = s.tried.shape[0]
    segment = np.empty(s.device.shape[0], dtype=np.int32)
    for _ in range(steps):
        level = s.level[0]
        if level < 0:
            return True
        if level == n_units:
            if s.decisions[0] == 0 and max_segments > 0 and find_segments(a, s.device, segment) > max_segments:
                s.level[0] = n_units - 1
                continue
            _follow(a, s, strict)
            k = s.decisions[0]
            while k > 0 and s.choice[k - 1] + 1 >= s.options[k - 1]:
                k -= 1
            s.decisions[0] = k
            if k > 0:
                s.choice[k - 1] += 1
            else:
                s.level[0] = n_units - 1
        else:
            _next_device(a, s, level)
    return False


@njit(cache=True, nogil=True)
def _next_device(a: Arrays, s: _Search, level: int) -> None:
    """Put the unit of this level on its next device, or go back a level if there is none."""
    n_devices = a.device_kind.shape[0]
    d = s.tried[level] + 1
    while d < n_devices and not (s.allowed[level, d] and (s.alike[d] < 0 or _is_used(s, level, s.alike[d]))):
        d += 1
    at = d if d < n_devices else -1
    s.tried[level] = at
    for v in range(s.device.shape[0]):
        if s.unit_of_op[v] == level:
            s.device[v] = at
    if at < 0:
        s.level[0] = level - 1
    elif _partial_bound(a, s) < s.best[0]:
        s.level[0] = level + 1
        s.decisions[0] = 0


@njit(cache=True, nogil=True)
def _is_used(s: _Search, level: int, d: int) -> bool:
    return bool((s.tried[:level] == d).any())


@njit(cache=True, nogil=True)
def _partial_bound(a: Arrays, s: _Search) -> float:
    """No completion of the present placement ends earlier: paths with the copies that are certain, and loads.

    The load of a device counts from the earliest moment that any of a set of its ops can start to the least time
    needed behind them. Leaves ``head_s`` and ``tail_s`` as the present placement has them.
    """
    n, n_devices = s.device.shape[0], a.device_kind.shape[0]
    head, tail = s.head_s, s.tail_s
    bound, work = 0.0, 0.0
    for v in range(n):
        d = s.device[v]
        head[v] = 0.0
        for i in range(a.input_ptr[v], a.input_ptr[v + 1]):
            t = a.input_tensor[i]
            u = a.tensor_producer[t]
            head[v] = max(head[v], head[u] + _took(a, s, u) + _certain_copy(a, s, t, u, v))
        took = _took(a, s, v)
        work += took
        bound = max(bound, head[v] + took)
    for u in range(n - 1, -1, -1):
        tail[u] = 0.0
        for t in range(a.tensor_ptr[u], a.tensor_ptr[u + 1]):
            for i in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                v = a.consumer_op[i]
                tail[u] = max(tail[u], _certain_copy(a, s, t, u, v) + _took(a, s, v) + tail[v])
    for first in range(n):
        d = s.device[first]
        if d < 0:
            continue
        load, behind = 0.0, np.inf
        for v in range(n):
            if s.device[v] == d and head[v] >= head[first]:
                load += a.op_time_s[v, a.device_kind[d]]
                behind = min(behind, tail[v])
        bound = max(bound, head[first] + load + behind)
    return max(bound, work / n_devices)


@njit(cache=True, nogil=True, inline="always")
def _took(a: Arrays, s: _Search, v: int) -> float:
    return s.least_s[v] if s.device[v] < 0 else a.op_time_s[v, a.device_kind[s.device[v]]]


@njit(cache=True, nogil=True, inline="always")
def _certain_copy(a: Arrays, s: _Search, t: int, u: int, v: int) -> float:
    return copy_time_s(a, t, s.device[u], s.device[v]) if s.device[u] >= 0 and s.device[v] >= 0 else 0.0


@njit(cache=True, nogil=True)
def _follow(a: Arrays, s: _Search, strict: bool) -> None:
    """Run the placement by the fixed decisions and first choices after them, until it ends or cannot be the best."""
    n, n_devices = s.device.shape[0], a.device_kind.shape[0]
    ready_s, free_s, end_s = np.zeros(n), np.zeros(2 * n_devices), np.full(n_devices, np.inf)
    running, pending = np.full(n_devices, -1), a.input_ptr[1:] - a.input_ptr[:-1]
    started, candidates = np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.int32)
    work_left_s = np.zeros(n_devices)
    for v in range(n):
        work_left_s[s.device[v]] += a.op_time_s[v, a.device_kind[s.device[v]]]
    fixed, made, n_started, now = s.decisions[0], 0, 0, 0.0
    while True:
        for d in range(n_devices):
            if running[d] >= 0:
                continue
            count = 0
            for v in range(n):
                if s.device[v] == d and not started[v] and pending[v] == 0 and ready_s[v] <= now:
                    candidates[count] = v
                    count += 1
            if count == 0:
                continue
            pick = 0
            if count > 1:
                if made >= fixed:
                    s.choice[made], s.options[made] = 0, count
                pick = s.choice[made]
                made += 1
            v = candidates[pick]
            took = a.op_time_s[v, a.device_kind[d]]
            if now + max(work_left_s[d], took + s.tail_s[v]) >= s.best[0]:
                s.decisions[0] = made
                return
            work_left_s[d] -= took
            started[v] = True
            s.rank[v] = n_started
            n_started += 1
            running[d] = v
            end_s[d] = now + took
        step_s = np.inf
        for d in range(n_devices):
            step_s = min(step_s, end_s[d])
        for v in range(n):
            if pending[v] == 0 and not started[v] and ready_s[v] > now:
                step_s = min(step_s, ready_s[v])
        if step_s == np.inf:
            break
        now = step_s
        while True:
            at = -1
            for d in range(n_devices):
                if running[d] >= 0 and end_s[d] == now and (at < 0 or running[d] < running[at]):
                    at = d
            if at < 0:
                break
            _send(a, s.device, running[at], now, ready_s, pending, free_s)
            running[at] = -1
            end_s[at] = np.inf
    s.decisions[0] = made
    value, excess = np.array([now]), np.zeros(1)
    if strict:
        judge_latency(0, a, s.device.reshape(1, n), s.rank.astype(np.float64).reshape(1, n), value, excess)
    if excess[0] == 0.0 and value[0] < s.best[0]:
        s.best[0] = value[0]
        s.best_device[:] = s.device
        s.best_rank[:] = s.rank


@njit(cache=True, nogil=True)
def _send(a: Arrays, device: Any, u: int, now: float, ready_s: Any, pending: Any, free_s: Any) -> None:
    """Book the copies of an op that ends now and tell its consumers."""
    n_devices, at = a.device_kind.shape[0], device[u]
    arrival_s = np.empty(n_devices)
    for t in range(a.tensor_ptr[u], a.tensor_ptr[u + 1]):
        arrival_s[:] = -1.0
        arrival_s[at] = now
        in_host_s = -1.0
        for i in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
            v = a.consumer_op[i]
            d = device[v]
            if arrival_s[d] < 0.0 and a.direct[at, d] >= 0:
                arrival_s[d] = _book(a, t, a.direct[at, d], a.send_channel[at], a.receive_channel[d], now, free_s)
            elif arrival_s[d] < 0.0:
                if in_host_s < 0.0:
                    in_host_s = _book(a, t, a.to_host[at], a.send_channel[at], -1, now, free_s)
                arrival_s[d] = _book(a, t, a.from_host[d], -1, a.receive_channel[d], in_host_s, free_s)
            ready_s[v] = max(ready_s[v], arrival_s[d])
            pending[v] -= 1


@njit(cache=True, nogil=True)
def _book(a: Arrays, t: int, link: int, sender: int, receiver: int, now: float, free_s: Any) -> float:
    """End of a copy over a link (-1: none is needed), on the channels (-1: none) that it keeps busy."""
    took = a.copy_s[t, link] if link >= 0 else 0.0
    if took == 0.0:
        return now
    sends, receives = sender >= 0 and a.link_busy[link] & 1 > 0, receiver >= 0 and a.link_busy[link] & 2 > 0
    begin = now
    if sends:
        begin = max(begin, free_s[sender])
    if receives:
        begin = max(begin, free_s[receiver])
        free_s[receiver] = begin + took
    if sends:
        free_s[sender] = begin + took
    return begin + took
