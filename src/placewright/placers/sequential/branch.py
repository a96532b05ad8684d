"""Branch and bound over ops in running order: exact for small problems, with segments, limits and rules.

What is decided costs its times, its copies, and the overheads along the path that changes device most; what is not
decided yet costs at least the best labelling of that part alone (found part by part, from the end).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import FloatArray, IntArray
from placewright.placers.judges.sequential import find_segments, overhead_total
from placewright.placers.sequential.labelling import Energy, energy_of, sub_energy
from placewright.placers.sequential.lagrangian import PlacedOnce
from placewright.placers.sequential.large_moves import Stop, two_way_cut
from placewright.placers.sequential.local_moves import tensor_cost
from placewright.placers.units import movable_units
from placewright.problems import Problem

NODES_PER_CALL = 50_000
DUAL_STEPS = 40  # for the best labelling of a part, more than two devices
SLACK = 1e-12  # what rounding may differ by between sums in another order


class Searched(NamedTuple):
    """The best placement below the given value, if there is one; ``is_complete`` if nothing better can exist."""

    device_of_op: IntArray | None
    value: float
    is_complete: bool
    nodes: int


def branch_and_bound(problem: Problem, upper: float, should_stop: Stop) -> Searched:
    """Search all placements cheaper than ``upper``."""
    energy, units = energy_of(problem), movable_units(problem)
    rest = _rest_bounds(energy, units.unit_of_op, should_stop)
    a, n, n_devices = problem.arrays, problem.n_ops, problem.n_devices
    best = np.full(n, -1, dtype=np.int32)
    numbers = np.array([upper, 0.0])  # best value, nodes
    state = _new_state(n, energy)
    # Likely devices first: a good placement early saves most.
    preference = np.argsort(energy.time_s, axis=1, kind="stable").astype(np.int32)
    is_complete = False
    while not is_complete:
        is_complete = bool(
            _search(
                a, units.unit_of_op, energy.time_s, energy.memory_bytes, energy.home, energy.copy_s, energy.direct,
                energy.to_host, energy.from_host, energy.touch_ptr, energy.touch, preference, rest,
                problem.max_segments or n, *state, best, numbers, NODES_PER_CALL,
            )
        )  # fmt: skip
        if should_stop():
            break
    device = best if best[0] >= 0 else None
    assert device is None or (device < n_devices).all()
    return Searched(device, float(numbers[0]), is_complete, int(numbers[1]))


def _rest_bounds(energy: Energy, unit_of_op: IntArray, should_stop: Stop) -> FloatArray:
    """[ops + 1]: a bound on the labelling of the units that no op before has decided."""
    n = len(unit_of_op)
    _, first_op = np.unique(unit_of_op, return_index=True)
    rest = np.zeros(n + 1)
    for v in range(n - 1, -1, -1):
        if first_op[unit_of_op[v]] != v:
            rest[v] = rest[v + 1]
            continue
        part = sub_energy(energy, first_op >= v)
        least = part.time_s.min(axis=1)
        rest[v] = max(rest[v + 1], float(least.sum()))
        if should_stop() or not len(part.home):
            continue
        if part.n_devices == 2:
            bound = two_way_cut(part, 0, 1).bound
        elif part.n_devices > 2:
            once = PlacedOnce(part, np.full(part.n_devices, np.inf))
            upper = float(part.time_s.min(axis=1).sum() + part.copy_s.max(axis=1).sum() * 2)
            bound = once.ascend(DUAL_STEPS, upper, should_stop, lambda value: None)
        else:
            bound = 0.0
        rest[v] = max(rest[v], bound * (1 - SLACK))
    return rest


def _new_state(n: int, energy: Energy) -> tuple[Any, ...]:
    """(choice per op, device of unit, op that decided it, readers, cost before, path overhead, path length, depth)."""
    choice = np.full(n, -1, dtype=np.int32)
    label = np.full(energy.n_units, -1, dtype=np.int32)
    decider = np.full(energy.n_units, -1, dtype=np.int32)
    readers = np.zeros((len(energy.home), energy.n_devices), dtype=np.int32)
    used = np.zeros(energy.n_devices)
    cost = np.zeros(n + 1)
    path = np.zeros((2, n))
    widest = np.zeros((2, n + 1))
    return choice, label, decider, readers, used, cost, path, widest, np.zeros(1, dtype=np.int64)


@njit(cache=True, nogil=True)
def _unit_cost(
    u: int, d: int, sign: int, home: Any, copy_s: Any, direct: Any, to_host: Any, from_host: Any, touch_ptr: Any,
    touch: Any, label: Any, readers: Any,
) -> float:  # fmt: skip
    """Copies that deciding unit u on d adds, given what is decided; counts it as a reader (sign 1) or no more (-1)."""
    added = 0.0
    for k in range(touch_ptr[u], touch_ptr[u + 1]):
        t = touch[k]
        if home[t] == u:
            if sign > 0:
                added += tensor_cost(t, d, copy_s, direct, to_host, from_host, readers)
            continue
        s = label[home[t]]
        if sign > 0 and s >= 0:
            added -= tensor_cost(t, s, copy_s, direct, to_host, from_host, readers)
        readers[t, d] += sign
        if sign > 0 and s >= 0:
            added += tensor_cost(t, s, copy_s, direct, to_host, from_host, readers)
    return added


@njit(cache=True, nogil=True)
def _search(
    a: Any, unit_of_op: Any, time_s: Any, memory: Any, home: Any, copy_s: Any, direct: Any, to_host: Any,
    from_host: Any, touch_ptr: Any, touch: Any, preference: Any, rest: Any, max_segments: int,
    choice: Any, label: Any, decider: Any, readers: Any, used: Any, cost: Any, path: Any, widest: Any, depth: Any,
    best: Any, numbers: Any, nodes: int,
) -> bool:  # fmt: skip
    """Depth first, resumable. Returns True when all is searched."""
    n, n_devices = unit_of_op.shape[0], time_s.shape[1]
    overhead, limit = a.segment_overhead_s, a.memory_limit_bytes
    with_segments = overhead.max() > 0.0 or max_segments < n
    device, segment = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    per_device = np.empty(n_devices)
    v = depth[0]
    while nodes > 0:
        if v < 0:
            return True
        u = unit_of_op[v]
        if choice[v] >= 0 and decider[u] == v:  # take back what was tried last
            d = label[u]
            _unit_cost(u, d, -1, home, copy_s, direct, to_host, from_host, touch_ptr, touch, label, readers)
            used[d] -= memory[u]
            label[u], decider[u] = -1, -1
        choice[v] += 1
        is_forced = decider[u] >= 0
        if choice[v] >= (1 if is_forced else n_devices):
            choice[v] = -1
            v -= 1
            continue
        nodes -= 1
        numbers[1] += 1
        d = label[u] if is_forced else preference[u, choice[v]]
        cost[v + 1] = cost[v]
        if not is_forced:
            if np.isinf(time_s[u, d]) or used[d] + memory[u] > limit[d]:
                continue
            cost[v + 1] += time_s[u, d] + _unit_cost(
                u, d, 1, home, copy_s, direct, to_host, from_host, touch_ptr, touch, label, readers
            )
            label[u], decider[u] = d, v
            used[d] += memory[u]
        path[0, v], path[1, v] = overhead[d], 1.0
        for i in range(a.input_ptr[v], a.input_ptr[v + 1]):
            p = a.tensor_producer[a.input_tensor[i]]
            changes = label[unit_of_op[p]] != d
            path[0, v] = max(path[0, v], path[0, p] + (overhead[d] if changes else 0.0))
            path[1, v] = max(path[1, v], path[1, p] + (1.0 if changes else 0.0))
        widest[0, v + 1] = max(widest[0, v], path[0, v])
        widest[1, v + 1] = max(widest[1, v], path[1, v])
        if cost[v + 1] + widest[0, v + 1] + rest[v + 1] >= numbers[0] * (1 - SLACK):
            continue
        if widest[1, v + 1] > max_segments:
            continue
        if v + 1 < n:
            v += 1
            continue
        for w in range(n):
            device[w] = label[unit_of_op[w]]
        total = cost[n]
        if with_segments:
            count = find_segments(a, device, segment)
            if count > max_segments:
                continue
            total += overhead_total(a, device, segment, count, per_device)
        if total < numbers[0]:
            numbers[0] = total
            best[:] = device
    depth[0] = v
    return False
