"""Contiguous pipelines: ideals, and searches over them."""

from collections.abc import Callable

import numpy
import numpy.typing


class LoadModel:
    """Views of a load model's arrays, which it keeps alive."""

    def __init__(self, fields: dict[str, object]) -> None: ...

class Lattice:
    """Views of a lattice's arrays, which it keeps alive."""

    def __init__(self, parent: numpy.typing.NDArray[numpy.int32], last_unit: numpy.typing.NDArray[numpy.int32], edge_ptr: numpy.typing.NDArray[numpy.int64], edge_unit: numpy.typing.NDArray[numpy.int32], edge_target: numpy.typing.NDArray[numpy.int32]) -> None: ...

class IdealEnumeration:
    """All ideals of a precedence relation, level by level."""

    def __init__(self, successor_ptr: numpy.typing.NDArray[numpy.int64], successor: numpy.typing.NDArray[numpy.int64]) -> None: ...

    def run(self, most: int, should_stop: Callable[[], bool] | None) -> str:
        """
        Add levels until all units are in: "whole", or why not: "too_many_ideals", "timeout".
        """

    @property
    def n_ideals(self) -> int:
        """Of whole levels."""

    @property
    def n_edges(self) -> int: ...

    @property
    def n_levels(self) -> int: ...

    def write(self, parent: numpy.typing.NDArray[numpy.int32], last_unit: numpy.typing.NDArray[numpy.int32], edge_ptr: numpy.typing.NDArray[numpy.int64], edge_unit: numpy.typing.NDArray[numpy.int32], edge_target: numpy.typing.NDArray[numpy.int32], level_ptr: numpy.typing.NDArray[numpy.int64]) -> None:
        """Write the lattice."""

class ThresholdSearch:
    """Is there a pipeline whose stages all stay within a threshold?"""

    def __init__(self, model: LoadModel, lattice: Lattice, n_vectors: int, option_shift: numpy.typing.NDArray[numpy.int64], option_allowed: numpy.typing.NDArray[numpy.uint64], hopeful: numpy.typing.NDArray[numpy.uint64], threshold_s: float, n_threads: int) -> None: ...

    def expand(self, thread: int, first: int, end: int, step: int, should_stop: Callable[[], bool] | None) -> tuple[int, bool]:
        """
        Expand every step-th ideal of a stretch; return the stages looked at, and whether it was stopped.
        """

    def trace(self, stage_of_unit: numpy.typing.NDArray[numpy.int32], option_of_stage: numpy.typing.NDArray[numpy.int32]) -> int | None:
        """
        Write the pipeline that was found and return its number of stages, None if there is none.
        """

def stage_load(model: LoadModel, kind: int, replicas: int, units: numpy.typing.NDArray[numpy.int64]) -> float:
    """
    Load of a stage, computed from scratch; infinite if it does not fit the kind's memory.
    """

def weigh(time_share: numpy.typing.NDArray[numpy.float64], memory_share: numpy.typing.NDArray[numpy.float64], start: numpy.typing.NDArray[numpy.float64], rounds: int, best: numpy.typing.NDArray[numpy.float64]) -> None:
    """
    Write the best prices of time and memory that raising those of overused kinds meets.
    """

def clear_unaffordable(lattice: Lattice, unit_cost: numpy.typing.NDArray[numpy.float64], order: numpy.typing.NDArray[numpy.int64], worth: numpy.typing.NDArray[numpy.float64], masks: numpy.typing.NDArray[numpy.uint64], should_stop: Callable[[], bool] | None) -> bool:
    """
    Clear the vectors that cannot pay for the units outside an ideal; false if it was stopped.
    """

def topological_order(successor_ptr: numpy.typing.NDArray[numpy.int64], successor: numpy.typing.NDArray[numpy.int64], priority: numpy.typing.NDArray[numpy.float64], is_depth_first: bool, order: numpy.typing.NDArray[numpy.int64]) -> None:
    """Write the units in their order."""

def merge_leaves(forward_s: numpy.typing.NDArray[numpy.float64], backward_s: numpy.typing.NDArray[numpy.float64], touches_backward: numpy.typing.NDArray[numpy.bool_], degree: numpy.typing.NDArray[numpy.int64], neighbour_xor: numpy.typing.NDArray[numpy.int64], negligible_s: float, merged_into: numpy.typing.NDArray[numpy.int64]) -> None:
    """
    Write what negligible classes on one edge are merged into; changes times, degrees and neighbours.
    """

def compare_touches(ptr: numpy.typing.NDArray[numpy.int64], touched: numpy.typing.NDArray[numpy.int64], producer: numpy.typing.NDArray[numpy.int64], is_backward: numpy.typing.NDArray[numpy.bool_], other: numpy.typing.NDArray[numpy.int64], same: numpy.typing.NDArray[numpy.bool_]) -> None:
    """Write for each tensor whether it has the same touches as another one."""
