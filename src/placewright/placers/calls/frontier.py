"""What has to be remembered of an ideal: the units in it that are still to be read, and how their times interact."""

from __future__ import annotations

from collections.abc import Callable

from placewright import _core
from placewright.graph import FloatArray
from placewright.placers.calls.relaxation import Relaxed, core_relaxed
from placewright.placers.pipeline.lattice import Lattice


def find_frontiers(
    relaxed: Relaxed, lattice: Lattice, edge_tail: FloatArray, should_stop: Callable[[], bool]
) -> _core.calls.Frontiers | None:
    """The frontiers of all ideals; ``None`` if one is too wide or the time is over."""
    return _core.calls.find_frontiers(core_relaxed(relaxed), core_ideals(lattice), edge_tail, should_stop)


def core_ideals(lattice: Lattice) -> _core.calls.Ideals:
    """The lattice as the core sees it."""
    return _core.calls.Ideals(lattice._asdict())
