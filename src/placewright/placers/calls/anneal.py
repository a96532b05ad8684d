"""Annealing for calls: groups, connected parts of a device and what lies behind a cut move from device to device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.placers.calls.groups import Groups
from placewright.placers.calls.stopping import stop_flag
from placewright.placers.judges.calls import find_pieces, run_groups
from placewright.placers.judges.sequential import find_segments
from placewright.placers.units import whole_units
from placewright.problems import Problem

ANY_NUMBER = 2**30


class Annealed(NamedTuple):
    """``device_of_op`` is the best placement seen; ``is_valid`` says whether it keeps all limits."""

    device_of_op: NDArray[np.int32]
    value: float
    is_valid: bool
    steps: int


def anneal(
    problem: Problem,
    groups: Groups,
    start: NDArray[np.int32],
    steps: int,
    heat: float,
    seed: int,
    slots: int | None,
    should_stop: Callable[[], bool],
) -> Annealed:
    """Search from ``start``; ``heat`` is the first temperature as a share of the value."""
    device = np.empty(len(groups.size_bytes), dtype=np.int32)
    device[groups.of_op] = whole_units(problem, start)
    best = np.empty(problem.n_ops, dtype=np.int32)
    with stop_flag(should_stop) as flag:
        value, penalty, done = _run(
            problem.arrays, flag, device, groups.of_op, groups.op_ptr, groups.op, groups.neighbour_ptr,
            groups.neighbour, groups.allowed, groups.size_bytes, groups.limit_bytes, steps, heat, seed,
            problem.max_segments or ANY_NUMBER, slots or ANY_NUMBER, best,
        )  # fmt: skip
    return Annealed(best, float(value), penalty == 0.0 and np.isfinite(value), int(done))


@njit(cache=True, nogil=True)
def _judge(a: Any, device: Any, used: Any, limit: Any, max_segments: int, slots: int, scratch: Any) -> Any:
    """Value, and how badly limits are broken (0: not at all)."""
    group, times = scratch
    n = find_pieces(a, device, group)
    value = run_groups(a, device, group, n, times[0, :n], times[1, :n], times[2, :n], times[3, :n])
    penalty = 0.0
    for d in range(limit.shape[0]):
        if used[d] > limit[d]:
            penalty += 1.0 + (used[d] - limit[d]) / max(limit[d], 1.0)
    if slots < ANY_NUMBER:
        penalty += _pieces_beyond(a, device, group, n, slots)
    if max_segments < ANY_NUMBER:
        penalty += max(0, find_segments(a, device, group) - max_segments)
    return value, penalty


@njit(cache=True, nogil=True)
def _pieces_beyond(a: Any, device: Any, group: Any, n_groups: int, slots: int) -> int:
    """Number of pieces above ``slots`` per accelerator."""
    home = np.empty(n_groups, dtype=np.int64)
    for v in range(device.shape[0]):
        home[group[v]] = device[v]
    pieces = np.zeros(a.device_kind.shape[0], dtype=np.int64)
    for g in range(n_groups):
        pieces[home[g]] += 1
    beyond = 0
    for d in range(pieces.shape[0]):
        if not a.is_host[d]:
            beyond += max(0, pieces[d] - slots)
    return beyond


@njit(cache=True, nogil=True)
def _run(
    a: Any, flag: Any, device: Any, of_op: Any, op_ptr: Any, op: Any, neighbour_ptr: Any, neighbour: Any,
    allowed: Any, size: Any, limit: Any, steps: int, heat: float, seed: int, max_segments: int, slots: int, best: Any,
) -> Any:  # fmt: skip
    np.random.seed(seed)
    n_groups, n_devices, n_ops = device.shape[0], limit.shape[0], of_op.shape[0]
    of_device = np.empty(n_ops, dtype=np.int32)
    for v in range(n_ops):
        of_device[v] = device[of_op[v]]
    used = np.zeros(n_devices)
    for g in range(n_groups):
        used[device[g]] += size[g]
    scratch = (np.empty(n_ops, dtype=np.int32), np.empty((4, n_ops)))
    value, penalty = _judge(a, of_device, used, limit, max_segments, slots, scratch)
    best[:] = of_device
    best_value, best_penalty = value, penalty
    # An exchange moves two, whatever the number of groups.
    moved, before = np.empty(max(2, n_groups), dtype=np.int64), np.empty(max(2, n_groups), dtype=np.int32)
    mark = np.full(n_groups, -1, dtype=np.int64)
    weight = 1.0
    done = 0
    for step in range(steps):
        if flag[0]:
            break
        if value < np.inf:
            weight = max(weight, value)
        g = np.random.randint(n_groups)
        home = device[g]
        target = np.random.randint(n_devices)
        degree = neighbour_ptr[g + 1] - neighbour_ptr[g]
        if degree > 0 and np.random.random() < 0.6:
            target = device[neighbour[neighbour_ptr[g] + np.random.randint(degree)]]
        kind = np.random.random()
        n_moved = 0
        if kind < 0.45:
            moved[0] = g
            n_moved = 1
        elif kind < 0.75:  # a connected part of the device around g
            most = 2 + int(np.exp(np.random.random() * np.log(max(2.0, float(n_groups)))))
            moved[0] = g
            mark[g] = step
            n_moved, at = 1, 0
            while at < n_moved and n_moved < most:
                for j in range(neighbour_ptr[moved[at]], neighbour_ptr[moved[at] + 1]):
                    h = neighbour[j]
                    if mark[h] != step and device[h] == home and n_moved < most:
                        mark[h] = step
                        moved[n_moved] = h
                        n_moved += 1
                at += 1
        elif kind < 0.9:  # what the device holds before or behind g
            behind = np.random.random() < 0.5
            for h in range(n_groups):
                if device[h] == home and (h >= g if behind else h <= g):
                    moved[n_moved] = h
                    n_moved += 1
        else:  # an exchange with another group
            h = np.random.randint(n_groups)
            target = device[h]
            moved[0], moved[1] = g, h
            n_moved = 2
        if target == home:
            continue
        possible = True
        for i in range(n_moved):
            to = home if kind >= 0.9 and i == 1 else target
            if not allowed[moved[i], to]:
                possible = False
        if not possible:
            continue
        for i in range(n_moved):
            to = home if kind >= 0.9 and i == 1 else target
            before[i] = device[moved[i]]
            _put(moved[i], to, device, of_device, op_ptr, op, used, size)
        too_full = penalty == 0.0 and (used[target] > limit[target] or used[home] > limit[home])
        accepted = False
        if not too_full:
            done += 1
            new_value, new_penalty = _judge(a, of_device, used, limit, max_segments, slots, scratch)
            if new_penalty < penalty or (new_penalty == penalty and new_value <= value):
                accepted = True
            elif new_value < np.inf and value < np.inf and heat > 0.0:
                worse = (new_value - value) / weight + (new_penalty - penalty)
                cold = heat * (1.0 - step / steps) ** 2 + 1e-9
                accepted = np.random.random() < np.exp(-worse / cold)
            if accepted:
                value, penalty = new_value, new_penalty
                if penalty < best_penalty or (penalty == best_penalty and value < best_value):
                    best[:] = of_device
                    best_value, best_penalty = value, penalty
        if not accepted:
            for i in range(n_moved - 1, -1, -1):
                _put(moved[i], before[i], device, of_device, op_ptr, op, used, size)
    return best_value, best_penalty, done


@njit(cache=True, nogil=True)
def _put(g: int, to: int, device: Any, of_device: Any, op_ptr: Any, op: Any, used: Any, size: Any) -> None:
    used[device[g]] -= size[g]
    used[to] += size[g]
    device[g] = to
    for j in range(op_ptr[g], op_ptr[g + 1]):
        of_device[op[j]] = to
