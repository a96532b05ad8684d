"""What has to be remembered of an ideal: the units in it that are still to be read, and how their times interact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.graph import FloatArray
from placewright.placers.calls.relaxation import Ints, Relaxed
from placewright.placers.calls.stopping import stop_flag
from placewright.placers.pipeline.lattice import Lattice

WIDEST = 62  # units that one ideal may have to remember, one bit each


class Frontiers(NamedTuple):
    """Per ideal its frontier: slots ``ptr[i]`` to ``ptr[i + 1]``, units rising.

    ``tail_s``: least time from the end of the slot's unit to the end of everything. Whatever reads the slot's unit
    later cannot start before the latest of the slots in one of the slot's ``waits`` (bit sets of slots of the same
    ideal): its time may be raised to the least of these without changing anything.
    """

    ptr: Ints
    unit: NDArray[np.int32]
    tail_s: FloatArray
    wait_ptr: Ints  # [slots + 1]
    waits: NDArray[np.uint64]

    @property
    def widest(self) -> int:
        return int(np.diff(self.ptr).max(initial=0))


def find_frontiers(
    relaxed: Relaxed, lattice: Lattice, edge_tail: FloatArray, should_stop: Callable[[], bool]
) -> Frontiers | None:
    """The frontiers of all ideals; ``None`` if one is too wide or the time is over."""
    n_units, n_ideals = len(relaxed.host_time_s), len(lattice.parent)
    ancestor = np.zeros((n_units, n_units), dtype=np.bool_)
    _close(relaxed.successor_ptr, relaxed.successor, ancestor)
    slots, waits = max(1024, 4 * n_ideals), max(1024, 6 * n_ideals)
    while True:
        ptr, unit = np.zeros(n_ideals + 1, dtype=np.int64), np.empty(slots, dtype=np.int32)
        tail, wait_ptr = np.empty(slots), np.zeros(slots + 1, dtype=np.int64)
        wait = np.empty(waits, dtype=np.uint64)
        with stop_flag(should_stop) as flag:
            used = _fill(
                flag, lattice.parent, lattice.last_unit, relaxed.successor_ptr, relaxed.successor, ancestor, edge_tail,
                WIDEST, ptr, unit, tail, wait_ptr, wait,
            )  # fmt: skip
        if used == -1:
            return None
        if used >= 0:
            n = int(ptr[-1])
            return Frontiers(ptr, unit[:n], tail[:n], wait_ptr[: n + 1], wait[:used])
        slots, waits = 2 * slots, 2 * waits


@njit(cache=True, nogil=True)
def _close(successor_ptr: Any, successor: Any, ancestor: Any) -> None:
    """``ancestor[u, v]``: a path leads from u to v."""
    for u in range(ancestor.shape[0] - 1, -1, -1):
        for edge in range(successor_ptr[u], successor_ptr[u + 1]):
            v = successor[edge]
            ancestor[u, v] = True
            for w in range(v + 1, ancestor.shape[0]):
                ancestor[u, w] |= ancestor[v, w]


@njit(cache=True, nogil=True)
def _fill(
    flag: Any, parent: Any, last_unit: Any, successor_ptr: Any, successor: Any, ancestor: Any, edge_tail: Any,
    widest: int, ptr: Any, unit: Any, tail: Any, wait_ptr: Any, wait: Any,
) -> int:  # fmt: skip
    """Return the number of wait sets; -1 if a frontier is too wide or ``flag`` is set, -2 if an array is too small."""
    n_units = ancestor.shape[0]
    inside = np.zeros(n_units, dtype=np.bool_)
    one = np.uint64(1)
    n_waits = 0
    for ideal in range(parent.shape[0]):
        if flag[0]:
            return -1
        inside[:] = False
        i = ideal
        while i > 0:
            inside[last_unit[i]] = True
            i = parent[i]
        first = ptr[ideal]
        end = first
        for u in range(n_units):
            if not inside[u]:
                continue
            longest = -1.0
            for edge in range(successor_ptr[u], successor_ptr[u + 1]):
                if not inside[successor[edge]]:
                    longest = max(longest, edge_tail[edge])
            if longest < 0.0:
                continue
            if end - first == widest:
                return -1
            if end == unit.shape[0]:
                return -2
            unit[end] = u
            tail[end] = longest
            end += 1
        ptr[ideal + 1] = end
        for slot in range(first, end):
            u = unit[slot]
            begin = n_waits
            for edge in range(successor_ptr[u], successor_ptr[u + 1]):
                v = successor[edge]
                if inside[v]:
                    continue
                mask = np.uint64(0)
                for other in range(first, end):
                    if ancestor[unit[other], v]:
                        mask |= one << np.uint64(other - first)
                keep = True
                for i in range(begin, n_waits):
                    if wait[i] & mask == wait[i]:
                        keep = False
                if not keep:
                    continue
                kept = begin
                for i in range(begin, n_waits):
                    if wait[i] & mask != mask:
                        wait[kept] = wait[i]
                        kept += 1
                n_waits = kept
                if n_waits == wait.shape[0]:
                    return -2
                wait[n_waits] = mask
                n_waits += 1
            wait_ptr[slot + 1] = n_waits
    return n_waits
