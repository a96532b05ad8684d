"""What a target value forces: exact reductions by minimum cuts.

For one device kind, the least load of a device whose set holds unit `a` and lacks unit `b` is a minimum
cut: loads are a sum of times plus a submodular boundary cost. When it exceeds the target, every device of that
kind that holds `a` also holds `b`. If that is so on every kind that can hold `a`, the two share a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.placers.pipeline.not_contiguous.units import Communication, FloatArray, IntArray, Units

RELATIVE_SAFETY = 1e-9  # a cut must exceed the target by this much to count


class Implications(NamedTuple):
    """Facts about every assignment in which each device's load is at most the target."""

    least_load: FloatArray  # [U, K] least load of a device of the kind that holds the unit (at most ~target is exact)
    allowed: NDArray[np.bool_]  # [U, K]
    pairs: list[IntArray]  # per kind [P, 2]: a on a device of the kind => b on it too
    merged: IntArray  # [U] group of units that must share a device


class _Network(NamedTuple):
    ptr: IntArray
    head: IntArray
    reverse: IntArray
    capacity: FloatArray
    sink: int


def _network(units: Units, kind: int, count_compute: bool) -> _Network:
    """Nodes: units, two helpers per tensor of three or more units, the sink. Unit-to-sink arcs carry times."""
    usable = np.isfinite(units.forward_time[:, kind] + units.backward_time[:, kind])
    work = units.forward_time[:, kind] + units.backward_time[:, kind]
    arcs: list[tuple[int, int, float]] = []
    free = units.unit_count
    into, out = units.tensor_in[:, kind].tolist(), units.tensor_out[:, kind].tolist()
    for tensor in range(units.tensor_count):
        if into[tensor] <= 0 and out[tensor] <= 0:
            continue
        home, *others = units.tensor_unit[units.tensor_ptr[tensor] : units.tensor_ptr[tensor + 1]].tolist()
        if len(others) == 1:
            arcs += [(home, others[0], out[tensor]), (others[0], home, into[tensor])]
            continue
        arcs += [(home, free, out[tensor]), (free + 1, home, into[tensor])]
        arcs += [(free, other, np.inf) for other in others] + [(other, free + 1, np.inf) for other in others]
        free += 2
    times = np.where(usable, work if count_compute else 0.0, np.inf)
    arcs += [(unit, free, float(times[unit])) for unit in range(units.unit_count)]
    return _pack(arcs, free + 1)


def _pack(arcs: list[tuple[int, int, float]], nodes: int) -> _Network:
    tail = np.array([a[0] for a in arcs] + [a[1] for a in arcs], dtype=np.int32)
    head = np.array([a[1] for a in arcs] + [a[0] for a in arcs], dtype=np.int32)
    capacity = np.array([a[2] for a in arcs] + [0.0] * len(arcs))
    order = np.argsort(tail, kind="stable")
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    mate = np.concatenate([np.arange(len(arcs)) + len(arcs), np.arange(len(arcs))])
    ptr = np.searchsorted(tail[order], np.arange(nodes + 1)).astype(np.int32)
    return _Network(ptr, head[order], place[mate[order]], capacity[order], nodes - 1)


def find_implications(
    units: Units,
    target: float,
    communication: Communication = "added",
    *,
    seconds: float = 10.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Implications:
    """All facts for one target, tested on units that share a tensor. Stopping early only finds fewer of them.

    Valid for both objectives: a device's total load is at most the value under either.
    """
    deadline = time.perf_counter() + seconds
    limit = target * (1 + RELATIVE_SAFETY)
    kinds = len(units.kind_count)
    least = np.zeros((units.unit_count, kinds))
    neighbours = _neighbours(units)
    pairs: list[IntArray] = []
    for kind in range(kinds):
        found: list[tuple[int, int]] = []
        # Overlapped loads are maxima: a boundary cost alone above the target forces as much as it can.
        facts = _core.not_contiguous.PairFacts(*_network(units, kind, communication == "added"))
        for unit in range(units.unit_count):
            if units.kind_count[kind] == 0:
                least[unit, kind] = np.inf
                continue
            if time.perf_counter() > deadline or should_stop():
                break
            others = neighbours[unit]
            forced = np.empty(len(others), dtype=np.bool_)
            least[unit, kind] = facts.ask(unit, others, limit, forced)
            found += [(unit, int(other)) for other in others[forced]]
        pairs.append(np.array(found, dtype=np.int32).reshape(-1, 2))
    own = units.forward_time + units.backward_time
    least = np.maximum(least, own)
    least[units.memory_bytes[:, None] > units.kind_memory[None, :] * (1 + 1e-12)] = np.inf
    allowed = least <= limit
    return Implications(least, allowed, pairs, _must_share(units.unit_count, allowed, pairs))


def _neighbours(units: Units) -> list[IntArray]:
    sets: list[set[int]] = [set() for _ in range(units.unit_count)]
    for tensor in range(units.tensor_count):
        members = units.tensor_unit[units.tensor_ptr[tensor] : units.tensor_ptr[tensor + 1]].tolist()
        if len(members) > 64:  # a shared input: pairs of its readers are many and say little
            continue
        for member in members:
            sets[member].update(members)
    return [np.array(sorted(near - {unit}), dtype=np.int32) for unit, near in enumerate(sets)]


def _must_share(unit_count: int, allowed: NDArray[np.bool_], pairs: list[IntArray]) -> IntArray:
    """Unite a and b when a implies b on every kind that may hold a."""
    votes: dict[tuple[int, int], int] = {}
    for kind, found in enumerate(pairs):
        for a, b in found.tolist():
            if allowed[a, kind]:
                votes[a, b] = votes.get((a, b), 0) + 1
    needed = allowed.sum(axis=1)
    root = list(range(unit_count))

    def find(unit: int) -> int:
        while root[unit] != unit:
            root[unit] = root[root[unit]]
            unit = root[unit]
        return unit

    for (a, b), count in votes.items():
        if count == needed[a]:
            root[find(a)] = find(b)
    _, group = np.unique([find(unit) for unit in range(unit_count)], return_inverse=True)
    return group.astype(np.int32)
