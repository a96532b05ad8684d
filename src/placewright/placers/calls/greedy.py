"""``greedy``: fill one accelerator after another in topological order, up to its memory; the rest goes to the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.budget import Budget
from placewright.placers.base import Found, Placer, best_of
from placewright.placers.pipeline.units import build_units, topological_order
from placewright.placers.pipeline.view import pipeline_view
from placewright.problems import Problem


class GreedyPlacer(Placer):
    """The greedy of Tarnawski et al. over several topological orders: depth first, breadth first, then random ones.

    A block too big for an accelerator, or one that may not be there, goes to the host and ends the accelerator before
    it. Where no host device takes a block, any accelerator with room does.
    """

    name = "greedy"
    summary = "fill accelerators in topological order up to their memory, the rest on the host"
    executions = ("calls",)

    def __init__(self, orders: int = 16) -> None:
        self.orders = orders

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        rows = greedy_placements(problem, self.orders, seed, budget.expired)
        if not len(rows):
            return Found(None, note="the operators do not fit in any of the orders tried")
        return best_of(problem, rows, "no greedy fill is valid")


def greedy_placements(
    problem: Problem, orders: int, seed: int, should_stop: Callable[[], bool] = lambda: False
) -> NDArray[np.int32]:
    """[orders that worked, ops] of devices, valid or not; the stack order comes first, and is tried in any case."""
    units, unit_of_op = build_units(pipeline_view(problem).ops, merge_trivial=False)
    n = len(units.memory_bytes)
    time_s = np.zeros((n, problem.n_devices))
    np.add.at(time_s, unit_of_op, problem.op_device_time_s)
    a, allowed = problem.arrays, np.isfinite(time_s)
    rng = np.random.default_rng(seed)
    rows: list[NDArray[np.int32]] = []
    for i in range(orders):
        if i > 0 and should_stop():
            break
        priority = np.zeros(n) if i < 2 else rng.random(n)
        order = topological_order(units.successor_ptr, units.successor, priority, i % 2 == 0)
        placed = np.empty(n, dtype=np.int32)
        if _core.calls.fill_greedily(order, allowed, units.memory_bytes, a.memory_limit_bytes, a.is_host, placed):
            rows.append(placed[unit_of_op])
    return np.array(rows, dtype=np.int32).reshape(len(rows), problem.n_ops)
