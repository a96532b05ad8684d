"""Latency under `calls`: bounds of a relaxed problem, and a greedy."""

from collections.abc import Callable

import numpy
import numpy.typing


class Relaxed:
    """Views of a relaxed problem's arrays, which it keeps alive."""

    def __init__(self, arrays: dict[str, object]) -> None: ...

class Ideals:
    """Views of a lattice's arrays, which it keeps alive."""

    def __init__(self, arrays: dict[str, object]) -> None: ...

class Frontiers:
    """Per ideal, the units in it that are still to be read."""

    @property
    def widest(self) -> int:
        """Units of the widest frontier."""

    def slots(self, ideal: int) -> list[tuple[int, float, list[int]]]:
        """Units of an ideal's frontier with their tails and waits."""

class LabelSolution:
    """Groups of units in the order in which they can be run."""

    @property
    def value(self) -> float: ...

    @property
    def groups(self) -> list[tuple[list[int], bool]]:
        """Units, and whether they run on the host."""

class LabelAnswer:
    """A bound, and a solution where it can be told."""

    @property
    def bound(self) -> float: ...

    @property
    def solution(self) -> LabelSolution | None: ...

    @property
    def is_finished(self) -> bool: ...

    @property
    def is_blended(self) -> bool: ...

    @property
    def n_visits(self) -> int: ...

def find_tails(relaxed: Relaxed, edge_s: numpy.typing.NDArray[numpy.float64], start_s: numpy.typing.NDArray[numpy.float64], open_s: numpy.typing.NDArray[numpy.float64], should_stop: Callable[[], bool] | None) -> None:
    """Write least times to the end of everything."""

def find_frontiers(relaxed: Relaxed, ideals: Ideals, edge_s: numpy.typing.NDArray[numpy.float64], should_stop: Callable[[], bool] | None) -> Frontiers | None:
    """
    The frontiers of all ideals; None if one is too wide or the time is over.
    """

def solve_labels(relaxed: Relaxed, ideals: Ideals, frontiers: Frontiers, open_s: numpy.typing.NDArray[numpy.float64], cutoff: float, width: int, ration: tuple[float, numpy.typing.NDArray[numpy.float64], float] | None, should_stop: Callable[[], bool] | None) -> LabelAnswer:
    """
    Bound the relaxed problem, and solve it if `width` labels per ideal are enough.
    """

def fill_greedily(order: numpy.typing.NDArray[numpy.int64], allowed: numpy.typing.NDArray[numpy.bool_], memory_bytes: numpy.typing.NDArray[numpy.float64], limit_bytes: numpy.typing.NDArray[numpy.float64], is_host: numpy.typing.NDArray[numpy.bool_], device_of_unit: numpy.typing.NDArray[numpy.int32]) -> bool:
    """Write the device of each unit; False if one fits nowhere."""
