"""
Placewright's hot loops, compiled ahead of time. Inputs are checked in Python; see core/README.md.
"""

import numpy
import numpy.typing

from placewright._core import (
    calls as calls,
    learned as learned,
    not_contiguous as not_contiguous,
    overlap as overlap,
    pipeline as pipeline,
    sequential as sequential
)


def compiler() -> str:
    """What the core was compiled with."""

class Problem:
    """Views of a problem's arrays, which it keeps alive."""

    def __init__(self, arrays: dict[str, object]) -> None: ...

    @property
    def n_ops(self) -> int: ...

    @property
    def n_tensors(self) -> int: ...

    @property
    def n_devices(self) -> int: ...

class Judge:
    """Judges placements of one problem under its execution model."""

    def __init__(self, problem: Problem, execution: str, most_segments: int, is_contiguous: bool, is_overlapped: bool, is_split: bool, order_source: numpy.typing.NDArray[numpy.int32], order_target: numpy.typing.NDArray[numpy.int32]) -> None: ...

    def judge_many(self, device_of_op: numpy.typing.NDArray[numpy.int32], priority: numpy.typing.NDArray[numpy.float64], first: int, last: int, value: numpy.typing.NDArray[numpy.float64], excess_bytes: numpy.typing.NDArray[numpy.float64], is_valid: numpy.typing.NDArray[numpy.bool_]) -> None:
        """Judge placements first to last; write the last three arrays."""

    def simulate(self, device_of_op: numpy.typing.NDArray[numpy.int32], priority: numpy.typing.NDArray[numpy.float64], start_s: numpy.typing.NDArray[numpy.float64], end_s: numpy.typing.NDArray[numpy.float64], copies: numpy.typing.NDArray[numpy.float64], up_legs: numpy.typing.NDArray[numpy.float64]) -> float:
        """
        Run one placement under `overlap`; return its value and write what happened when.
        """

    def peaks(self, device_of_op: numpy.typing.NDArray[numpy.int32], start_s: numpy.typing.NDArray[numpy.float64], end_s: numpy.typing.NDArray[numpy.float64], copies: numpy.typing.NDArray[numpy.float64], up_legs: numpy.typing.NDArray[numpy.float64], value_s: float, resident: numpy.typing.NDArray[numpy.float64], out: numpy.typing.NDArray[numpy.float64]) -> None:
        """
        Write the largest resident and live bytes of each device, by what `simulate` wrote.
        """

    def live_intervals(self, device_of_op: numpy.typing.NDArray[numpy.int32], start_s: numpy.typing.NDArray[numpy.float64], end_s: numpy.typing.NDArray[numpy.float64], copies: numpy.typing.NDArray[numpy.float64], up_legs: numpy.typing.NDArray[numpy.float64], value_s: float, out: numpy.typing.NDArray[numpy.float64]) -> int:
        """
        Write (device, start, end, bytes) of every tensor on every device that holds it; return how many.
        """

    def find_segments(self, device_of_op: numpy.typing.NDArray[numpy.int32], segment: numpy.typing.NDArray[numpy.int32]) -> int:
        """Write segment numbers in running order; return how many there are."""

    def overheads(self, device_of_op: numpy.typing.NDArray[numpy.int32], segment: numpy.typing.NDArray[numpy.int32], n_segments: int, per_device: numpy.typing.NDArray[numpy.float64]) -> float:
        """
        Return the seconds of all segment overheads, and write each device's share.
        """

    def copies_total(self, device_of_op: numpy.typing.NDArray[numpy.int32], per_device: numpy.typing.NDArray[numpy.float64]) -> float:
        """
        Return the seconds of all copies under `sequential`, and write each device's share.
        """

    def find_pieces(self, device_of_op: numpy.typing.NDArray[numpy.int32], group: numpy.typing.NDArray[numpy.int32]) -> int:
        """Write the call that each op is in; return how many there are."""

    def run_groups(self, device_of_op: numpy.typing.NDArray[numpy.int32], group: numpy.typing.NDArray[numpy.int32], n_groups: int, start_s: numpy.typing.NDArray[numpy.float64], in_s: numpy.typing.NDArray[numpy.float64], compute_s: numpy.typing.NDArray[numpy.float64], out_s: numpy.typing.NDArray[numpy.float64]) -> float:
        """Return the value under `calls`, and write what each call takes."""

    def loads(self, device_of_op: numpy.typing.NDArray[numpy.int32], compute_s: numpy.typing.NDArray[numpy.float64], copies_s: numpy.typing.NDArray[numpy.float64]) -> None:
        """
        Write the seconds of each device under `pipeline`, forward and backward.
        """

    def largest_load(self, compute_s: numpy.typing.NDArray[numpy.float64], copies_s: numpy.typing.NDArray[numpy.float64]) -> float:
        """Return the value under `pipeline` of the seconds that `loads` wrote."""

    def stages_form_chain(self, device_of_op: numpy.typing.NDArray[numpy.int32]) -> bool:
        """Return whether no edge runs backwards between stages."""
