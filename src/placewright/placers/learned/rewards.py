"""Where rewards come from: an evaluator, or real execution with a file of what was measured already."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.evaluate import evaluate_many
from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.problems import Problem, core_problem

MEMORY_PENALTY = 4.0  # values per share of all bytes that is beyond the limits


class Judged(NamedTuple):
    """One entry per placement. ``score_s``, which policies learn by, is the value, worse where memory is exceeded."""

    value: FloatArray
    is_valid: BoolArray
    score_s: FloatArray


class Rewards(Protocol):
    """Judges placements, and counts how many it has judged; ``has_order``: the order of ready ops can be chosen."""

    evaluations: int
    has_order: bool

    def judge(self, rows: IntArray, rank_s: FloatArray | None = None) -> Judged:
        """Judge placements [batch, ops]; where order matters, ready ops with larger ``rank_s`` [batch, ops] go first.

        Without, it is the longest way left.
        """

    def order_of(self, device_of_op: IntArray) -> FloatArray | None:
        """The priorities that a placement is judged with if no ranks are given; ``None``: first come, first served."""


class SimulatedRewards:
    """Rewards by the problem's own execution model.

    With ``by_rank``, ready ops under ``overlap`` run by the longest way that is left after them in this placement.
    """

    def __init__(self, problem: Problem, *, by_rank: bool = True) -> None:
        self.problem, self.evaluations = problem, 0
        self.has_order = by_rank and problem.execution == "overlap"

    def judge(self, rows: IntArray, rank_s: FloatArray | None = None) -> Judged:
        self.evaluations += len(rows)
        if self.has_order and rank_s is None:
            rank_s = ways_left(self.problem, rows)
        result = evaluate_many(self.problem, rows, None if rank_s is None else -rank_s)
        total = max(float(self.problem.memory_bytes.sum() + self.problem.arrays.live_bytes.sum()), 1.0)
        score = result.value * (1 + MEMORY_PENALTY * result.excess_bytes / total)
        return Judged(result.value, result.is_valid, score)

    def order_of(self, device_of_op: IntArray) -> FloatArray | None:
        return -ways_left(self.problem, device_of_op[None])[0] if self.has_order else None


class MeasuredRewards:
    """Rewards by running placements for real: the median of ``repeats`` runs after ``warm_up`` ones.

    ``live`` is the model in a runtime. What ``memo`` knows is not run again, but counts as an evaluation all the same,
    so that an interrupted search takes the same way again. ``should_stop`` is asked before each run.
    """

    def __init__(
        self, problem: Problem, live: Any, memo: Any, *, repeats: int = 5, warm_up: int = 2,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        from placewright.transfer import transfer_placement

        self.problem, self.evaluations, self.measured, self.has_order = problem, 0, 0, False
        self._live, self._memo = live, memo
        self._repeats, self._warm_up, self._should_stop = repeats, warm_up, should_stop
        numbers = np.arange(problem.n_ops, dtype=np.int32)
        self._op_in_problem = transfer_placement(numbers, problem.graph, live.graph).device_of_op

    def judge(self, rows: IntArray, rank_s: FloatArray | None = None) -> Judged:
        faults = evaluate_many(self.problem, rows)
        value = np.array(
            [self._seconds(row) if ok else math.inf for row, ok in zip(rows, faults.is_valid, strict=True)]
        )
        self.evaluations += len(rows)
        valid = faults.is_valid & np.isfinite(value)
        return Judged(value, valid, value)

    def order_of(self, device_of_op: IntArray) -> FloatArray | None:
        return None

    def confirmed(self, rows: IntArray, single: IntArray, repeats: int = 20) -> tuple[IntArray, float]:
        """Run the best candidates [rows, ops] and single devices [devices, ops] again, in turns, and choose.

        The least of many noisy times is too good to be true. A candidate wins only if it is faster than the best
        single device beyond noise. Returns the placement and its median time.
        """
        from placewright.execute.measure import SETTLING_RUNS, compare, measure_in_turns

        executors: dict[str, Any] = {}
        try:
            for i, row in enumerate([*single, *rows]):
                executors[str(i)] = self._live.start(self._devices(row), self.problem.cluster, None)
            inputs = self._live.inputs
            variants = {name: lambda run=run: run(inputs) for name, run in executors.items()}
            timings = measure_in_turns(variants, repeats, self._warm_up, settling_runs=SETTLING_RUNS)
        finally:
            for executor in executors.values():
                executor.close()
        every = [timings[str(i)] for i in range(len(timings))]
        best = min(range(len(every)), key=lambda i: every[i].median_s)
        if len(single) and best >= len(single):
            alone = min(range(len(single)), key=lambda i: every[i].median_s)
            best = best if compare(every[best], every[alone]).low > 0 else alone
        return np.concatenate([single, rows])[best], every[best].median_s

    def _devices(self, row: IntArray) -> dict[str, str]:
        from placewright.execute.live import devices_by_name

        return devices_by_name(self._live.graph, row[self._op_in_problem].tolist(), self.problem.cluster)

    def _seconds(self, row: IntArray) -> float:
        from placewright.execute.memo import Measurement, placement_key

        devices = self._devices(row)
        key = placement_key(devices)
        known = self._memo.find(key)
        if known is None:
            if self._should_stop():
                return math.inf
            try:
                known = Measurement(self._run(devices))
            except Exception as error:  # a runtime may refuse a placement in any way it likes
                known = Measurement((), f"{type(error).__name__}: {error}")
            self._memo.add(key, known)
            self.measured += 1
        return math.inf if known.failure or not known.samples_s else float(np.median(known.samples_s))

    def _run(self, devices: dict[str, str]) -> tuple[float, ...]:
        import time

        executor = self._live.start(devices, self.problem.cluster, None)
        try:
            for _ in range(self._warm_up):
                executor(self._live.inputs)
            samples = []
            for _ in range(self._repeats):
                began = time.perf_counter()
                executor(self._live.inputs)
                samples.append(time.perf_counter() - began)
            return tuple(samples)
        finally:
            executor.close()


def ways_left(problem: Problem, rows: IntArray) -> FloatArray:
    """[batch, ops]: longest path from an op's start to the end of the model, times and copies as placed."""
    out = np.empty(rows.shape)
    _core.learned.longest_paths_left(core_problem(problem), np.ascontiguousarray(rows, dtype=np.int32), out)
    return out


def copy_seconds(problem: Problem, tensor: NDArray[Any], source: NDArray[Any], target: NDArray[Any]) -> FloatArray:
    """Seconds to bring tensors from devices to others, alone on the links; arguments are broadcast together."""
    a = problem.arrays
    seconds = np.concatenate([a.copy_s, np.zeros((len(a.copy_s), 1))], axis=1)  # leg -1 costs nothing
    direct = a.direct[source, target]
    through_host = seconds[tensor, a.to_host[source]] + seconds[tensor, a.from_host[target]]
    return np.where(source == target, 0.0, np.where(direct >= 0, seconds[tensor, direct], through_host))


def single_device_rows(allowed: NDArray[np.bool_]) -> IntArray:
    """[devices, groups]: everything on each device, with groups that it does not take on the first that does."""
    n_devices = allowed.shape[1]
    elsewhere = allowed.argmax(axis=1)
    rows = np.where(allowed.T, np.arange(n_devices)[:, None], elsewhere[None])
    return rows.astype(np.int32)
