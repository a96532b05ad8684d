"""The core's judges: one placement at a time, and what they note of it. Their rules are in ``core/judge``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.graph import FloatArray, IntArray, sums_by_index
from placewright.problems import Problem, core_problem, once_per_problem

_NO_PRIORITY = np.zeros(0)


@once_per_problem
def judge_of(problem: Problem) -> _core.Judge:
    """The judge of a problem, by its execution model and its wishes."""
    return _core.Judge(
        core_problem(problem),
        problem.execution,
        problem.max_segments or 0,
        problem.contiguous,
        problem.communication == "overlapped",
        problem.schedule == "gpipe",
        problem.arrays.order_source,
        problem.arrays.order_target,
    )


def find_segments(problem: Problem, device: NDArray[np.int32]) -> tuple[int, IntArray]:
    """How many segments there are, and the number of each op's, in running order."""
    segment = np.empty(problem.n_ops, dtype=np.int32)
    return judge_of(problem).find_segments(np.ascontiguousarray(device, dtype=np.int32), segment), segment


def find_pieces(problem: Problem, device: NDArray[np.int32]) -> tuple[int, IntArray]:
    """How many calls there are under ``calls``, and the number of each op's; host ops have one of their own."""
    group = np.empty(problem.n_ops, dtype=np.int32)
    return judge_of(problem).find_pieces(np.ascontiguousarray(device, dtype=np.int32), group), group


def resident_bytes(problem: Problem, device: NDArray[np.int32]) -> FloatArray:
    """[devices]: what the ops of each device hold all along."""
    return sums_by_index(device, problem.memory_bytes, problem.n_devices)


def memory_matters(problem: Problem) -> bool:
    """False if no placement at all could exceed a limit: everything together fits the smallest memory."""
    a = problem.arrays
    return bool(a.memory_bytes.sum() + a.live_bytes.sum() > a.memory_limit_bytes.min())


class Record(NamedTuple):
    """What happened when under ``overlap``. Entries of ``copies`` and ``up_legs`` without a copy are NaN."""

    start_s: FloatArray  # [ops]
    end_s: FloatArray  # [ops]
    copies: FloatArray  # [tensors, devices, 2]: start and end at the receiving device
    up_legs: FloatArray  # [tensors, 2]: start and end of the copy up to host memory

    def flat(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The arrays as the core takes them."""
        tensors, devices, _ = self.copies.shape
        return self.start_s, self.end_s, self.copies.reshape(tensors, 2 * devices), self.up_legs


def simulated(problem: Problem, device: NDArray[np.int32], priority: FloatArray | None) -> tuple[float, Record]:
    """Run the event-driven model once and keep who did what when."""
    n_tensors = problem.graph.n_tensors
    record = Record(
        np.empty(problem.n_ops),
        np.empty(problem.n_ops),
        np.full((n_tensors, problem.n_devices, 2), np.nan),
        np.full((n_tensors, 2), np.nan),
    )
    order = _NO_PRIORITY if priority is None else np.ascontiguousarray(priority, dtype=np.float64)
    return judge_of(problem).simulate(np.ascontiguousarray(device, dtype=np.int32), order, *record.flat()), record


def live_intervals(problem: Problem, device: NDArray[np.int32], record: Record, value_s: float) -> FloatArray:
    """(device, start, end, bytes) of every tensor on every device that holds it."""
    rows = np.empty((problem.graph.n_edges + problem.graph.n_tensors, 4))
    return rows[: judge_of(problem).live_intervals(device, *record.flat(), value_s, rows)]


def peak_bytes(problem: Problem, device: NDArray[np.int32], record: Record, value_s: float) -> FloatArray:
    """[devices]: the largest resident and live bytes."""
    peaks = np.empty(problem.n_devices)
    judge_of(problem).peaks(device, *record.flat(), value_s, resident_bytes(problem, device), peaks)
    return peaks
