"""Placements that keep within the limits, whatever they cost: for when no search has met a valid one."""

from __future__ import annotations

from itertools import islice, permutations

import numpy as np
from numpy.typing import NDArray

from placewright.placers.base import Found, best_of
from placewright.placers.units import Units, movable_units
from placewright.problems import Problem

_MOST_ORDERS = 120  # of the devices; five have so many


def pack(problem: Problem, seed: int) -> Found:
    """Fill devices in many orders, in three ways; the best valid placement is returned, if there is one.

    Along the graph a unit is never put before its inputs' devices, so that stages form a chain and calls no cycle:
    where memory does not bind, an order of devices that allows a chain gives one. Else the largest units come first,
    each to the first device with room or to the one with the most room.
    """
    units = movable_units(problem)
    room = np.array([d.memory_bytes for d in problem.cluster.devices])
    largest_first = np.argsort(-units.memory_bytes, kind="stable")
    before = _units_before(problem, units)
    rows = [_with_most_room(units, room, largest_first)]
    for order in _orders(problem.n_devices, seed):
        rows += [_along_the_graph(units, room, before, order), _first_fit(units, room, largest_first, order)]
    found = [row for row in rows if row is not None]
    if not found:
        return Found(None, note="no packing was found")
    return best_of(problem, np.unique(found, axis=0)[:, units.unit_of_op], "no packing is valid")


def _orders(n_devices: int, seed: int) -> list[NDArray[np.intp]]:
    if n_devices <= 5:
        return [np.array(order, dtype=np.intp) for order in islice(permutations(range(n_devices)), _MOST_ORDERS)]
    rng = np.random.default_rng(seed)
    return [rng.permutation(n_devices) for _ in range(_MOST_ORDERS)]


def _units_before(problem: Problem, units: Units) -> list[list[int]]:
    """For every unit the units that it may not come before."""
    a = problem.arrays
    source, target = units.unit_of_op[a.order_source], units.unit_of_op[a.order_target]
    before: list[list[int]] = [[] for _ in units.memory_bytes]
    for u, v in zip(source.tolist(), target.tolist(), strict=True):
        if u < v:  # units are in an order along the graph; an edge against it is between groups that were not fused
            before[v].append(u)
    return before


def _along_the_graph(
    units: Units, room: NDArray[np.float64], before: list[list[int]], order: NDArray[np.intp]
) -> NDArray[np.int32] | None:
    left, place = room.copy(), np.zeros(len(before), dtype=np.int64)
    for unit, size in enumerate(units.memory_bytes.tolist()):
        first = max((int(place[u]) for u in before[unit]), default=0)
        fitting = [i for i in range(first, len(order)) if units.allowed[unit, order[i]] and left[order[i]] >= size]
        if not fitting:
            return None
        place[unit] = fitting[0]
        left[order[fitting[0]]] -= size
    return order[place].astype(np.int32)


def _first_fit(
    units: Units, room: NDArray[np.float64], sequence: NDArray[np.intp], order: NDArray[np.intp]
) -> NDArray[np.int32] | None:
    left, row = room.copy(), np.empty(len(sequence), dtype=np.int32)
    for unit in sequence.tolist():
        fitting = order[units.allowed[unit, order] & (left[order] >= units.memory_bytes[unit])]
        if not len(fitting):
            return None
        row[unit] = fitting[0]
        left[fitting[0]] -= units.memory_bytes[unit]
    return row


def _with_most_room(units: Units, room: NDArray[np.float64], sequence: NDArray[np.intp]) -> NDArray[np.int32] | None:
    left, row = room.copy(), np.empty(len(sequence), dtype=np.int32)
    for unit in sequence.tolist():
        row[unit] = np.where(units.allowed[unit], left, -np.inf).argmax()
        if left[row[unit]] < units.memory_bytes[unit]:
            return None
        left[row[unit]] -= units.memory_bytes[unit]
    return row
