"""The best set for one device: maximise prices of units subject to the device's load and memory.

`SetSearch` finds good sets in milliseconds; `SetProgramme` bounds the best one. Both look at one device kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import highspy
import numpy as np
from numba import njit

from placewright.placers.pipeline.not_contiguous.programme_rows import INF, Rows, new_highs
from placewright.placers.pipeline.not_contiguous.units import BoolArray, FloatArray, IntArray, Units


class SetProblem(NamedTuple):
    """One kind's costs, as the kernel reads them."""

    time: FloatArray  # [U], inf = never
    memory: FloatArray  # [U]
    unit_ptr: IntArray
    unit_tensor: IntArray
    tensor_ptr: IntArray
    tensor_unit: IntArray
    tensor_in: FloatArray  # [T]
    tensor_out: FloatArray  # [T]
    memory_limit: float
    overlapped: bool


def set_problem(units: Units, kind: int, overlapped: bool) -> SetProblem:
    """`units` must be folded."""
    tensor_of_entry = np.repeat(np.arange(units.tensor_count, dtype=np.int32), np.diff(units.tensor_ptr))
    order = np.argsort(units.tensor_unit, kind="stable")
    return SetProblem(
        np.ascontiguousarray(units.forward_time[:, kind]),
        units.memory_bytes,
        np.searchsorted(units.tensor_unit[order], np.arange(units.unit_count + 1)).astype(np.int32),
        tensor_of_entry[order],
        units.tensor_ptr,
        units.tensor_unit,
        np.ascontiguousarray(units.tensor_in[:, kind]),
        np.ascontiguousarray(units.tensor_out[:, kind]),
        float(units.kind_memory[kind]) * (1 + 1e-12),
        overlapped,
    )


@njit(cache=True, nogil=True)
def _toggle(
    problem: SetProblem, price: FloatArray, member: BoolArray, count: IntArray, totals: FloatArray, unit: int
) -> None:
    """Put the unit in or out. `totals` = [compute, communication, bytes, price]."""
    entering = not member[unit]
    sign = 1.0 if entering else -1.0
    totals[0] += sign * problem.time[unit]
    totals[2] += sign * problem.memory[unit]
    totals[3] += sign * price[unit]
    for entry in range(problem.unit_ptr[unit], problem.unit_ptr[unit + 1]):
        tensor = problem.unit_tensor[entry]
        size = problem.tensor_ptr[tensor + 1] - problem.tensor_ptr[tensor]
        producer = problem.tensor_unit[problem.tensor_ptr[tensor]]
        low = count[tensor] if entering else count[tensor] - 1  # members besides the unit
        if producer == unit:
            without = problem.tensor_in[tensor] if low > 0 else 0.0
            with_it = problem.tensor_out[tensor] if low + 1 < size else 0.0
        elif member[producer]:
            without = problem.tensor_out[tensor]
            with_it = problem.tensor_out[tensor] if low + 1 < size else 0.0
        else:
            without = problem.tensor_in[tensor] if low > 0 else 0.0
            with_it = problem.tensor_in[tensor]
        totals[1] += sign * (with_it - without)
        count[tensor] = low + 1 if entering else low
    member[unit] = entering


@njit(cache=True, nogil=True)
def _rebuild(problem: SetProblem, price: FloatArray, member: BoolArray, count: IntArray, totals: FloatArray) -> None:
    wanted = member.copy()
    member[:] = False
    count[:] = 0
    totals[:] = 0.0
    for unit in range(len(member)):
        if wanted[unit]:
            _toggle(problem, price, member, count, totals, unit)


@njit(cache=True, nogil=True)
def _score(totals: FloatArray, limit: float, memory_limit: float, overlapped: bool, penalty: float) -> float:
    load = max(totals[0], totals[1]) if overlapped else totals[0] + totals[1]
    score = totals[3]
    if load > limit:
        score -= penalty * (load - limit)
    if totals[2] > memory_limit:
        score -= penalty * limit * (totals[2] - memory_limit) / memory_limit
    return score


@njit(cache=True, nogil=True)
def search_set(
    problem: SetProblem, price: FloatArray, limit: float, member: BoolArray, seed: int, iterations: int, penalty: float
) -> float:
    """Anneal `member` in place towards the best admissible set; returns its price (0 = the empty set)."""
    np.random.seed(seed)
    units = len(member)
    count = np.zeros(len(problem.tensor_ptr) - 1, dtype=np.int32)
    totals = np.zeros(4)
    _rebuild(problem, price, member, count, totals)
    best, best_price = np.zeros(units, dtype=np.bool_), 0.0
    trail = np.empty(units, dtype=np.int32)
    seen = np.full(units, -1, dtype=np.int64)
    score = _score(totals, limit, problem.memory_limit, problem.overlapped, penalty)
    hot = 0.02 * np.abs(price).sum() + 1e-12
    for step in range(iterations):
        temperature = hot * 0.001 ** (step / iterations)
        if step % 20000 == 19999:
            _rebuild(problem, price, member, count, totals)
        size = 1
        trail[0] = np.random.randint(units)
        if problem.time[trail[0]] == np.inf:
            continue
        seen[trail[0]] = step
        reach = 1 if step % 2 else 1 + np.random.randint(40)
        side, head = member[trail[0]], 0
        while head < size and size < reach:
            for entry in range(problem.unit_ptr[trail[head]], problem.unit_ptr[trail[head] + 1]):
                tensor = problem.unit_tensor[entry]
                for place in range(problem.tensor_ptr[tensor], problem.tensor_ptr[tensor + 1]):
                    other = problem.tensor_unit[place]
                    fresh = seen[other] != step and member[other] == side and problem.time[other] < np.inf
                    if fresh and size < reach:
                        seen[other] = step
                        trail[size] = other
                        size += 1
            head += 1
        for i in range(size):
            _toggle(problem, price, member, count, totals, trail[i])
        proposed = _score(totals, limit, problem.memory_limit, problem.overlapped, penalty)
        if proposed >= score or np.random.random() < np.exp((proposed - score) / temperature):
            score = proposed
            load = max(totals[0], totals[1]) if problem.overlapped else totals[0] + totals[1]
            if totals[3] > best_price + 1e-12 and load <= limit and totals[2] <= problem.memory_limit:
                best_price = totals[3]
                best[:] = member
            continue
        for i in range(size - 1, -1, -1):
            _toggle(problem, price, member, count, totals, trail[i])
    member[:] = best
    return best_price


def set_load(problem: SetProblem, member: BoolArray) -> float:
    """Load of a set, from scratch."""
    copy, totals = member.copy(), np.zeros(4)
    _rebuild(problem, np.zeros(len(member)), copy, np.zeros(len(problem.tensor_in), dtype=np.int32), totals)
    return float(max(totals[0], totals[1]) if problem.overlapped else totals[0] + totals[1])


class SetBound(NamedTuple):
    """An upper bound on the best price, and the best set met."""

    bound: float
    member: BoolArray | None
    price: float


class SetProgramme:
    """Exact pricing by a mixed-integer programme; prices and the load limit change, the matrix stays."""

    def __init__(self, problem: SetProblem, implied: IntArray, allowed: BoolArray) -> None:
        """`implied` [P, 2]: a in the set => b in it (valid for every limit used later)."""
        self.problem = problem
        self.unit_count = len(problem.time)
        self.highs = new_highs(mip_rel_gap=1e-6)
        self.highs.passModel(self._model(implied, allowed & np.isfinite(problem.time)))
        self.highs.cbMipInterrupt.subscribe(self._on_interrupt)
        self.highs.cbMipImprovingSolution.subscribe(self._on_improvement)
        self._give_up: Callable[[float, float], bool] = lambda primal, dual: False
        self._bound = np.inf
        self._member: BoolArray | None = None

    def _model(self, implied: IntArray, usable: BoolArray) -> highspy.HighsLp:
        problem, count = self.problem, self.unit_count
        moving = np.flatnonzero((problem.tensor_in > 0) | (problem.tensor_out > 0))
        columns = count + 2 * len(moving)
        rows = Rows()
        compute = [(unit, float(problem.time[unit])) for unit in np.flatnonzero(usable).tolist()]
        moved: list[tuple[int, float]] = []
        for place, tensor in enumerate(moving.tolist()):
            into, out = count + 2 * place, count + 2 * place + 1
            moved += [(into, float(problem.tensor_in[tensor])), (out, float(problem.tensor_out[tensor]))]
            home, *others = problem.tensor_unit[problem.tensor_ptr[tensor] : problem.tensor_ptr[tensor + 1]].tolist()
            for other in others:
                rows.add([(into, 1.0), (other, -1.0), (home, 1.0)], 0.0, INF)
                rows.add([(out, 1.0), (home, -1.0), (other, 1.0)], 0.0, INF)
        for a, b in implied.tolist():
            rows.add([(a, 1.0), (b, -1.0)], -INF, 0.0)
        if np.isfinite(problem.memory_limit) and problem.memory.sum() > problem.memory_limit:
            scale = problem.memory_limit
            rows.add([(unit, float(size / scale)) for unit, size in enumerate(problem.memory)], -INF, 1.0)
        loads = [compute, moved] if problem.overlapped else [compute + moved]
        self.load_rows = [rows.add(entries, -INF, INF) for entries in loads]
        upper = np.append(usable.astype(float), np.ones(columns - count))
        return rows.model(np.zeros(columns), upper, np.arange(columns) < count)

    def _on_interrupt(self, event: highspy.HighsCallbackEvent) -> None:
        # An interrupted solve does not report its bound and set, so both are noted on the way.
        data = event.data_out
        self._bound = min(self._bound, -data.mip_dual_bound)
        # The flag outlives the solve it stopped, so it is also set back.
        event.interrupt(self._give_up(-data.mip_primal_bound, -data.mip_dual_bound))

    def _on_improvement(self, event: highspy.HighsCallbackEvent) -> None:
        self._member = np.array(event.data_out.mip_solution)[: self.unit_count] > 0.5

    def solve(
        self, price: FloatArray, limit: float, seconds: float, give_up: Callable[[float, float], bool]
    ) -> SetBound:
        """`give_up(primal, dual)` is polled; whenever the solve ends, `bound` is a proven upper bound."""
        highs = self.highs
        highs.clearSolver()
        highs.changeColsCost(self.unit_count, np.arange(self.unit_count, dtype=np.int32), -price)
        for row in self.load_rows:
            highs.changeRowBounds(row, -INF, limit)
        highs.setOptionValue("time_limit", highs.getRunTime() + max(0.01, seconds))
        self._give_up, self._bound, self._member = give_up, float(np.maximum(price, 0.0).sum()), None
        highs.run()
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            self._bound = min(self._bound, -highs.getInfo().mip_dual_bound)
            self._member = np.array(highs.getSolution().col_value[: self.unit_count]) > 0.5
        member = self._member
        return SetBound(self._bound, member, float(price[member].sum()) if member is not None else -np.inf)
