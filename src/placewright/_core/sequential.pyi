"""Latency under `sequential`: labellings and minimum cuts."""

from collections.abc import Callable
from typing import Final

import numpy
import numpy.typing

import placewright._core


class MinimumCut:
    """A minimum cut, found in one run or in several."""

    def __init__(self, tail: numpy.typing.NDArray[numpy.int32], head: numpy.typing.NDArray[numpy.int32], forward: numpy.typing.NDArray[numpy.float64], backward: numpy.typing.NDArray[numpy.float64], from_source: numpy.typing.NDArray[numpy.float64], to_sink: numpy.typing.NDArray[numpy.float64]) -> None: ...

    ENDLESS: Final[float] = ...
    """A capacity that no cut may pay."""

    def run(self, should_stop: Callable[[], bool] | None = None) -> bool:
        """
        Go on from where the last run ended; true if the cut is least, which it is unless it was stopped.
        """

    @property
    def bound(self) -> float:
        """Of all cuts, from below; the cut's own after a whole run."""

    def write_sink_side(self, goes: numpy.typing.NDArray[numpy.bool_]) -> None:
        """Write which nodes are at the sink's side."""

class Energy:
    """Views of an energy's arrays, which it keeps alive."""

    def __init__(self, time_s: numpy.typing.NDArray[numpy.float64], memory_bytes: numpy.typing.NDArray[numpy.float64], home: numpy.typing.NDArray[numpy.int32], reader_ptr: numpy.typing.NDArray[numpy.int32], reader: numpy.typing.NDArray[numpy.int32], copy_s: numpy.typing.NDArray[numpy.float64], direct: numpy.typing.NDArray[numpy.int32], to_host: numpy.typing.NDArray[numpy.int32], from_host: numpy.typing.NDArray[numpy.int32], touch_ptr: numpy.typing.NDArray[numpy.int32], touch: numpy.typing.NDArray[numpy.int32]) -> None: ...

class DeviceShare:
    """What a device's set of units costs in copies."""

    def __init__(self, energy: Energy, leaving_s: numpy.typing.NDArray[numpy.float64], entering_s: numpy.typing.NDArray[numpy.float64]) -> None: ...

    def cheapest_set(self, cost_s: numpy.typing.NDArray[numpy.float64], is_taken: numpy.typing.NDArray[numpy.bool_], should_stop: Callable[[], bool] | None = None) -> float:
        """
        Write the cheapest set at these costs of units; return what it costs, from below.
        """

class MovableLabels:
    """A labelling that changes by moves of single units."""

    def __init__(self, energy: Energy, label: numpy.typing.NDArray[numpy.int32], limit_bytes: numpy.typing.NDArray[numpy.float64]) -> None: ...

    def descend(self, should_stop: Callable[[], bool] | None = None) -> None:
        """
        Move units while that helps; no device gets fuller by it than it may be.
        """

    def repair(self, price: float, should_stop: Callable[[], bool] | None = None) -> bool:
        """
        Move units until all limits are kept, at rising prices per byte beyond them; whether they are.
        """

    def change_of_move(self, unit: int, to: int) -> float:
        """What the value changes by if a unit moves."""

    def write_label(self, out: numpy.typing.NDArray[numpy.int32]) -> None:
        """Write the device of each unit."""

def labelling_value(energy: Energy, unary_s: numpy.typing.NDArray[numpy.float64], label: numpy.typing.NDArray[numpy.int32]) -> float:
    """Return the seconds of all units and copies."""

def fuse(energy: Energy, unary_s: numpy.typing.NDArray[numpy.float64], first: numpy.typing.NDArray[numpy.int32], second: numpy.typing.NDArray[numpy.int32], before: numpy.typing.NDArray[numpy.int32], after: numpy.typing.NDArray[numpy.int32], label: numpy.typing.NDArray[numpy.int32], should_stop: Callable[[], bool] | None = None) -> tuple[float, bool]:
    """
    Write the best fusion of two labellings; return a bound on all of them, and whether it is proven.
    """

def worst_path(problem: placewright._core.Problem, device_of_op: numpy.typing.NDArray[numpy.int32], segment_s: numpy.typing.NDArray[numpy.float64], edges: numpy.typing.NDArray[numpy.int32]) -> tuple[int, int]:
    """
    Write the edges of the path whose segments cost most; return their number and its first op.
    """

def mark_what_follows(before: numpy.typing.NDArray[numpy.int32], after: numpy.typing.NDArray[numpy.int32], marked: numpy.typing.NDArray[numpy.bool_]) -> None:
    """Mark everything that marked units lead to."""

def mark_what_precedes(before: numpy.typing.NDArray[numpy.int32], after: numpy.typing.NDArray[numpy.int32], marked: numpy.typing.NDArray[numpy.bool_]) -> None:
    """Mark everything that leads to marked units."""

def mark_undominated(state: numpy.typing.NDArray[numpy.int32], memory_bytes: numpy.typing.NDArray[numpy.float64], is_kept: numpy.typing.NDArray[numpy.bool_], should_stop: Callable[[], bool] | None = None) -> None:
    """
    Write which labels no label before them beats; labels are ordered by state and by cost.
    """
