"""What learned policies ask again and again."""

import numpy
import numpy.typing

import placewright._core


class Scales:
    """Groups and their blocks at several scales."""

    def __init__(self, edges: numpy.typing.NDArray[numpy.int64], allowed: numpy.typing.NDArray[numpy.bool_], member_ptr: numpy.typing.NDArray[numpy.int32], first_ptr: numpy.typing.NDArray[numpy.int64], member: numpy.typing.NDArray[numpy.int32], block_of_group: numpy.typing.NDArray[numpy.int32]) -> None: ...

    def mutate(self, parents: numpy.typing.NDArray[numpy.int32], seed: int, children: numpy.typing.NDArray[numpy.int32]) -> None:
        """
        Write copies of placements, the best one first, with a few blocks of any scale moved.
        """

def unite_blocks(pairs: numpy.typing.NDArray[numpy.int64], time_s: numpy.typing.NDArray[numpy.float64], memory_bytes: numpy.typing.NDArray[numpy.float64], most_s: float, most_bytes: float, label: numpy.typing.NDArray[numpy.int64]) -> None:
    """
    Unite groups along pairs in order while the limits hold; write the least group of each group's block.
    """

def fractal_dimensions(ptr: numpy.typing.NDArray[numpy.int64], neighbour: numpy.typing.NDArray[numpy.int64], most_hops: int, out: numpy.typing.NDArray[numpy.float64]) -> None:
    """Write the slope of log N(r) against log r for each node."""

def longest_paths_left(problem: placewright._core.Problem, device_of_op: numpy.typing.NDArray[numpy.int32], out: numpy.typing.NDArray[numpy.float64]) -> None:
    """
    Write the longest path from each op's start to the end of the model, as placed.
    """

def repair_memory(allowed: numpy.typing.NDArray[numpy.bool_], memory_bytes: numpy.typing.NDArray[numpy.float64], limit_bytes: numpy.typing.NDArray[numpy.float64], device_of_group: numpy.typing.NDArray[numpy.int32]) -> None:
    """Move groups off over-full devices, placement by placement."""
