"""Latency under `overlap`: list schedulers."""

import numpy
import numpy.typing

import placewright._core


class ListScheduler:
    """List schedulers of one problem."""

    def __init__(self, problem: placewright._core.Problem, time_s: numpy.typing.NDArray[numpy.float64], group_time_s: numpy.typing.NDArray[numpy.float64], group_bytes: numpy.typing.NDArray[numpy.float64]) -> None: ...

    def by_rank(self, rank: numpy.typing.NDArray[numpy.float64], extra_s: numpy.typing.NDArray[numpy.float64], preferred: numpy.typing.NDArray[numpy.int32], device_of_group: numpy.typing.NDArray[numpy.int32], limit_bytes: numpy.typing.NDArray[numpy.float64], device: numpy.typing.NDArray[numpy.int32], start_s: numpy.typing.NDArray[numpy.float64], finish_s: numpy.typing.NDArray[numpy.float64], misfit: numpy.typing.NDArray[numpy.bool_]) -> None:
        """
        Place ops in the order of a rank, each where it would end first; write the last four arrays.
        """

    def by_start(self, rank: numpy.typing.NDArray[numpy.float64], favourite: numpy.typing.NDArray[numpy.int32], device_of_group: numpy.typing.NDArray[numpy.int32], limit_bytes: numpy.typing.NDArray[numpy.float64], device: numpy.typing.NDArray[numpy.int32], start_s: numpy.typing.NDArray[numpy.float64], finish_s: numpy.typing.NDArray[numpy.float64], misfit: numpy.typing.NDArray[numpy.bool_]) -> None:
        """Place what can start first; write the last four arrays."""

class BusyLines:
    """Busy times of devices and channels with the gaps between them."""

    def __init__(self, n_lines: int, n_bookings: int) -> None: ...

    def first_gap(self, line: int, ready_s: float, length_s: float) -> float: ...

    def first_common_gap(self, one: int, other: int, ready_s: float, length_s: float) -> float: ...

    def occupy(self, line: int, start_s: float, finish_s: float) -> None: ...

def upward_ranks(problem: placewright._core.Problem, mean_time_s: numpy.typing.NDArray[numpy.float64], mean_copy_s: numpy.typing.NDArray[numpy.float64], out: numpy.typing.NDArray[numpy.float64]) -> None:
    """
    Write the mean time from each op's start to the end of everything after it.
    """

def downward_ranks(problem: placewright._core.Problem, mean_time_s: numpy.typing.NDArray[numpy.float64], mean_copy_s: numpy.typing.NDArray[numpy.float64], out: numpy.typing.NDArray[numpy.float64]) -> None:
    """Write the longest path from the beginning to each op's start."""

def optimistic_costs(problem: placewright._core.Problem, time_s: numpy.typing.NDArray[numpy.float64], mean_copy_s: numpy.typing.NDArray[numpy.float64], out: numpy.typing.NDArray[numpy.float64]) -> None:
    """
    Write what is left after each op ends on each device, if each later op has its best device.
    """
