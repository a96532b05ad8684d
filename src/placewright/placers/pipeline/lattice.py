"""The lattice of ideals (predecessor-closed sets of units) and its covering edges.

Units are numbered topologically, so removing the largest unit of an ideal leaves an ideal: every
ideal but the empty one has a canonical parent. Generating ideals from their parents, cardinality
by cardinality, produces each exactly once, without sets to hash or compare. The other covering
edges follow from two known ones: with `m` the largest unit of `I = P + m` and `v < m` ready in `I`,
`I + v = (P + v) + m`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numba import njit

from placewright.placers.pipeline.units import Ints, compressed_rows

Indices = npt.NDArray[np.int32]


class Precedence(Protocol):
    """Units numbered topologically, and what follows each."""

    @property
    def successor_ptr(self) -> Ints: ...

    @property
    def successor(self) -> Ints: ...


class Lattice(NamedTuple):
    """Ideals by rising cardinality; number 0 is the empty set, the last one holds all units."""

    parent: Indices  # [N] the ideal without its last unit; -1 for the empty set
    last_unit: Indices  # [N] unit added to the parent; -1 for the empty set
    edge_ptr: Ints  # [N + 1]
    edge_unit: Indices  # ready units of each ideal, rising in unit number
    edge_target: Indices  # the ideal with that unit added
    level_ptr: Ints  # [U + 2] ideals of cardinality c are level_ptr[c]..level_ptr[c + 1]


class GaveUp(NamedTuple):
    """Enumeration was given up after `found` ideals."""

    reason: Literal["too_many_ideals", "timeout"]
    found: int


def chain_lattice(count: int) -> Lattice:
    """Lattice of `count` units that can only be taken in the order of their numbers."""
    numbers = np.arange(count + 1, dtype=np.int32)
    edge_ptr = np.minimum(np.arange(count + 2), count)
    return Lattice(numbers - 1, numbers - 1, edge_ptr, numbers[:-1], numbers[1:], np.arange(count + 2))


def enumerate_ideals(units: Precedence, max_ideals: int, should_stop: Callable[[], bool]) -> Lattice | GaveUp:
    """All ideals of the precedence relation, unless there are more than `max_ideals`."""
    count = units.successor_ptr.size - 1
    predecessor_ptr, predecessor = _reversed_rows(units.successor_ptr, units.successor)
    sources = np.flatnonzero(np.diff(predecessor_ptr) == 0)
    growing = _Growing(sources)
    level_ptr = [0, 1]
    members = np.zeros((1, count // 64 + 1), np.uint64)
    for _ in range(count):
        first, end = level_ptr[-2], level_ptr[-1]
        children, edges = _count_children(
            first, end, growing.last_unit, growing.edge_ptr, growing.edge_unit, units.successor_ptr
        )
        if end + children > max_ideals:
            return GaveUp("too_many_ideals", end)
        if should_stop():
            return GaveUp("timeout", end)
        growing.reserve(end + children, edges)
        members = _grow_level(
            first, end, children, members, growing.parent, growing.last_unit, growing.edge_ptr,
            growing.edge_unit, growing.edge_target, units.successor_ptr, units.successor,
            predecessor_ptr, predecessor,
        )  # fmt: skip
        level_ptr.append(end + children)
    return growing.finish(np.array(level_ptr, np.int64))


def _reversed_rows(ptr: Ints, value: Ints) -> tuple[Ints, Ints]:
    rows = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    return compressed_rows(value, rows, ptr.size - 1)


class _Growing:
    """The arrays of a lattice under construction, enlarged by doubling."""

    def __init__(self, sources: Ints) -> None:
        self.parent = np.full(1024, -1, np.int32)
        self.last_unit = np.full(1024, -1, np.int32)
        self.edge_ptr = np.zeros(1025, np.int64)
        self.edge_unit = np.zeros(max(4096, sources.size), np.int32)
        self.edge_target = np.zeros_like(self.edge_unit)
        self.edge_unit[: sources.size] = sources
        self.edge_ptr[1] = sources.size

    def reserve(self, ideals: int, edges: int) -> None:
        self.parent = _enlarged(self.parent, ideals)
        self.last_unit = _enlarged(self.last_unit, ideals)
        self.edge_ptr = _enlarged(self.edge_ptr, ideals + 1)
        self.edge_unit = _enlarged(self.edge_unit, edges)
        self.edge_target = _enlarged(self.edge_target, edges)

    def finish(self, level_ptr: Ints) -> Lattice:
        ideals = int(level_ptr[-1])
        edges = int(self.edge_ptr[ideals])
        return Lattice(
            self.parent[:ideals], self.last_unit[:ideals], self.edge_ptr[: ideals + 1],
            self.edge_unit[:edges], self.edge_target[:edges], level_ptr,
        )  # fmt: skip


def _enlarged(array: npt.NDArray, size: int) -> npt.NDArray:  # type: ignore[type-arg]
    if array.size >= size:
        return array
    larger = np.empty(max(size, array.size * 3 // 2), array.dtype)
    larger[: array.size] = array
    return larger


@njit(cache=True, nogil=True)
def _count_children(first, end, last_unit, edge_ptr, edge_unit, successor_ptr):  # type: ignore[no-untyped-def]
    """Number of ideals on the next level, and an upper bound on all edges up to there."""
    children = 0
    edges = edge_ptr[end]
    for ideal in range(first, end):
        degree = edge_ptr[ideal + 1] - edge_ptr[ideal]
        for edge in range(edge_ptr[ideal], edge_ptr[ideal + 1]):
            unit = edge_unit[edge]
            if unit > last_unit[ideal]:
                children += 1
                edges += degree - 1 + successor_ptr[unit + 1] - successor_ptr[unit]
    return children, edges


@njit(cache=True, nogil=True)
def _grow_level(  # type: ignore[no-untyped-def]
    first, end, children, members, parent, last_unit, edge_ptr, edge_unit, edge_target,
    successor_ptr, successor, predecessor_ptr, predecessor,
):  # fmt: skip
    """Create the next level and complete the edges into it; return its member bits."""
    child_members = np.empty((children, members.shape[1]), np.uint64)
    child = end
    for ideal in range(first, end):
        for edge in range(edge_ptr[ideal], edge_ptr[ideal + 1]):
            unit = edge_unit[edge]
            if unit > last_unit[ideal]:
                parent[child] = ideal
                last_unit[child] = unit
                edge_target[edge] = child
                bits = child_members[child - end]
                bits[:] = members[ideal - first]
                bits[unit >> 6] |= np.uint64(1) << np.uint64(unit & 63)
                _list_ready(
                    child, ideal, unit, bits, edge_ptr, edge_unit,
                    successor_ptr, successor, predecessor_ptr, predecessor,
                )  # fmt: skip
                child += 1
    for ideal in range(first, end):
        largest = last_unit[ideal]
        for edge in range(edge_ptr[ideal], edge_ptr[ideal + 1]):
            unit = edge_unit[edge]
            if unit < largest:
                sibling = edge_target[find_edge(edge_ptr, edge_unit, parent[ideal], unit)]
                edge_target[edge] = edge_target[find_edge(edge_ptr, edge_unit, sibling, largest)]
    return child_members


@njit(cache=True, nogil=True)
def find_edge(edge_ptr, edge_unit, ideal, unit):  # type: ignore[no-untyped-def]
    """The edge that adds ``unit`` to ``ideal``; it must exist."""
    edge = edge_ptr[ideal]
    while edge_unit[edge] != unit:
        edge += 1
    return edge


@njit(cache=True, nogil=True)
def _list_ready(  # type: ignore[no-untyped-def]
    child, ideal, added, bits, edge_ptr, edge_unit,
    successor_ptr, successor, predecessor_ptr, predecessor,
):  # fmt: skip
    """Ready units of `child` = `ideal` + `added`: those of the parent and the newly freed ones."""
    start = edge_ptr[child]
    end = start
    for edge in range(edge_ptr[ideal], edge_ptr[ideal + 1]):
        if edge_unit[edge] != added:
            edge_unit[end] = edge_unit[edge]
            end += 1
    for slot in range(successor_ptr[added], successor_ptr[added + 1]):
        unit = successor[slot]
        if not _holds_all(bits, predecessor, predecessor_ptr[unit], predecessor_ptr[unit + 1]):
            continue
        place = end
        while place > start and edge_unit[place - 1] > unit:
            edge_unit[place] = edge_unit[place - 1]
            place -= 1
        edge_unit[place] = unit
        end += 1
    edge_ptr[child + 1] = end


@njit(cache=True, nogil=True)
def _holds_all(bits, units, first, end):  # type: ignore[no-untyped-def]
    for slot in range(first, end):
        unit = units[slot]
        if (bits[unit >> 6] >> np.uint64(unit & 63)) & np.uint64(1) == 0:
            return False
    return True
