"""The lattice of ideals (predecessor-closed sets of units); `core/pipeline/lattice.h` says how it grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from placewright import _core
from placewright.placers.pipeline.units import Ints

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

    def in_core(self) -> _core.pipeline.Lattice:
        """As the compiled core sees it: views of these arrays."""
        return _core.pipeline.Lattice(self.parent, self.last_unit, self.edge_ptr, self.edge_unit, self.edge_target)


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
    growing = _core.pipeline.IdealEnumeration(units.successor_ptr, units.successor)
    end = "timeout" if should_stop() else growing.run(max_ideals, should_stop)
    ideals, edges = growing.n_ideals, growing.n_edges
    if end != "whole":
        return GaveUp("timeout" if end == "timeout" else "too_many_ideals", ideals)
    lattice = Lattice(
        np.empty(ideals, np.int32), np.empty(ideals, np.int32), np.empty(ideals + 1, np.int64),
        np.empty(edges, np.int32), np.empty(edges, np.int32), np.empty(growing.n_levels + 1, np.int64),
    )  # fmt: skip
    growing.write(*lattice)
    return lattice
