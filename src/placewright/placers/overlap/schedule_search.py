"""Search from above, constraint solving from below, for ``overlap``: the driver of ``cpsat``.

None of the reductions keeps the optimum under ``overlap`` (merged ops lose their copies' moments and their order), and
so none keeps a bound; all of this works on the problem itself.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate import evaluate_many
from placewright.evaluate.batch import cpu_count
from placewright.evaluate.judging import simulated
from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.placers.child_solver import ChildSolver
from placewright.placers.overlap.schedule_model import Settings, instance_of, packed
from placewright.placers.search.chains import Point, rank_of
from placewright.problems import Problem

MODULE = "placewright.placers.overlap.schedule_model"
_POLL_S = 0.02
_NEIGHBOURHOOD = 40  # ops that are free at a time
_NEIGHBOURHOOD_S = 4.0
_DETERMINISTIC_S = 0.5  # of solver time, where the budget counts evaluations


class Incumbent(NamedTuple):
    """The best valid placement so far, with the evaluator's value, and the best proven bound."""

    point: Point
    value: float
    bound: float


def solve_whole(problem: Problem, incumbent: Incumbent, budget: Budget, seed: int) -> Incumbent:
    """The whole problem in one model; its bound holds for every placement and order.

    An infinite bound is the proof that there is no valid placement.
    """
    incumbent, status = _solve(problem, incumbent, np.ones(problem.n_ops, dtype=np.bool_), budget, seed)
    if status == "infeasible" and math.isinf(incumbent.value):
        return incumbent._replace(bound=math.inf)
    return incumbent


def improve_parts(problem: Problem, incumbent: Incumbent, budget: Budget, seed: int) -> Incumbent:
    """Large neighbourhoods: free a part of the graph, solve it with the rest fixed, keep what the evaluator likes."""
    rng = np.random.default_rng(seed)
    rounds = 0
    while not budget.expired() and not (budget.evaluations and rounds >= 2):
        rounds += 1
        free = _part(problem, incumbent, rng)
        if not free.any():
            continue
        incumbent, status = _solve(problem, incumbent, free, budget.part(_NEIGHBOURHOOD_S), seed + rounds)
        if status == "ended early":
            break
    return incumbent


def _part(problem: Problem, incumbent: Incumbent, rng: np.random.Generator) -> BoolArray:
    """Ops of a time window, of two devices in one, or around one op."""
    start_s = start_times(problem, incumbent.point)
    device, n = incumbent.point.device_of_op, problem.n_ops
    by_start = np.argsort(start_s, kind="stable")
    kind = int(rng.integers(0, 3))
    if kind == 2:
        chosen = _around(problem, int(rng.integers(0, n)))
    else:
        pool = by_start
        if kind == 1 and problem.n_devices > 2:
            pair = rng.choice(problem.n_devices, 2, replace=False)
            pool = by_start[np.isin(device[by_start], pair)]
        first = int(rng.integers(0, max(1, len(pool) - _NEIGHBOURHOOD + 1)))
        chosen = pool[first : first + _NEIGHBOURHOOD].tolist()
    free = np.zeros(n, dtype=np.bool_)
    free[chosen] = True
    # A group moves as a whole or not at all.
    whole = np.ones(n, dtype=np.bool_)
    np.logical_and.at(whole, problem.group_of_op, free)
    return np.asarray(whole[problem.group_of_op])


def _around(problem: Problem, seed_op: int) -> list[int]:
    g = problem.graph
    seen, queue = {seed_op}, [seed_op]
    for v in queue:
        producers = g.tensor_producer[g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]]]
        consumers = g.consumer_op[g.consumer_ptr[g.tensor_ptr[v]] : g.consumer_ptr[g.tensor_ptr[v + 1]]]
        for w in [*producers.tolist(), *consumers.tolist()]:
            if w not in seen and len(seen) < _NEIGHBOURHOOD:
                seen.add(w)
                queue.append(w)
    return queue


def start_times(problem: Problem, point: Point) -> FloatArray:
    """When each op starts by the evaluator's rules."""
    return simulated(problem, point.device_of_op, point.priority)[1].start_s


def _solve(problem: Problem, incumbent: Incumbent, free: BoolArray, budget: Budget, seed: int) -> tuple[Incumbent, str]:
    """The better incumbent, and how the solver ended: ``ended early`` if it did so by itself, for want of memory."""
    start_s = start_times(problem, incumbent.point)
    is_whole = bool(free.all())  # the bound of a part proves nothing: the rest might do better elsewhere
    fixed_work = bool(budget.evaluations)
    settings = Settings(
        upper=incumbent.value if math.isfinite(incumbent.value) else _everything_s(problem),
        seconds=budget.remaining_s(),
        workers=1 if fixed_work else cpu_count(),
        seed=seed % 2**31,
        deterministic_s=_DETERMINISTIC_S if fixed_work else 0.0,
    )
    child = ChildSolver(MODULE, packed(instance_of(problem, incumbent.point.device_of_op, start_s, free), settings))
    status = "unknown"
    try:
        while not child.finished and not budget.expired():
            time.sleep(_POLL_S)
            for line in child.lines():
                if line["name"] == "solution":
                    device = np.array(line["device"], dtype=np.int32)
                    incumbent = _judged(problem, incumbent, device, np.array(line["start"], dtype=np.float64))
                    budget.report(incumbent.value, incumbent.bound)
                elif line["name"] == "bound" and is_whole and line["bound"] > incumbent.bound:
                    incumbent = incumbent._replace(bound=float(line["bound"]))
                    budget.report(incumbent.value, incumbent.bound)
                elif line["name"] == "done":
                    status = line.get("status", "ended early")
                    break
    finally:
        child.close()
    return incumbent, status


def _everything_s(problem: Problem) -> float:
    """No run of the evaluator takes longer: something is always under way, each op and each copy once."""
    times = problem.op_device_time_s
    copies = problem.tensor_copy_s.max(axis=1, initial=0.0)
    return float(np.where(np.isfinite(times), times, 0.0).max(axis=1).sum() + 2 * problem.n_devices * copies.sum())


def _judged(problem: Problem, incumbent: Incumbent, device: NDArray[np.int32], start: FloatArray) -> Incumbent:
    """The better of the incumbent and a solution, under the solution's order and first come, first served."""
    n = problem.n_ops
    rank: IntArray = np.empty(n, dtype=np.int32)
    rank[np.lexsort((np.arange(n), start))] = np.arange(n, dtype=np.int32)
    orders = np.array([rank, rank_of(problem, device, None)], dtype=np.float64)
    result = evaluate_many(problem, np.array([device, device]), orders)
    values = np.where(result.is_valid, result.value, math.inf)
    best = int(values.argmin())
    if values[best] < incumbent.value:
        return Incumbent(Point(device, orders[best]), float(values[best]), incumbent.bound)
    return incumbent
