"""``greedy``: fill one accelerator after another in topological order, up to its memory; the rest goes to the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate import evaluate_many
from placewright.placers.base import Found, Placer
from placewright.placers.pipeline.units import Ints, Units, build_units, topological_order
from placewright.placers.pipeline.view import pipeline_view
from placewright.problem import Problem


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

    def warm_up(self, problem: Problem) -> None:
        build_units(pipeline_view(problem).ops, merge_trivial=False)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        rows = greedy_placements(problem, self.orders, seed)
        if not len(rows):
            return Found(None, note="the operators do not fit in any of the orders tried")
        result = evaluate_many(problem, rows)
        values = np.where(result.is_valid, result.value, np.inf)
        best = int(values.argmin())
        if np.isinf(values[best]):
            return Found(None, evaluations=len(rows), note="no greedy fill is valid")
        return Found(rows[best], evaluations=len(rows))


def greedy_placements(problem: Problem, orders: int, seed: int) -> NDArray[np.int32]:
    """[orders that worked, ops] of devices, valid or not; the stack order comes first."""
    units, unit_of_op = build_units(pipeline_view(problem).ops, merge_trivial=False)
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(orders):
        n = len(units.memory_bytes)
        priority = np.zeros(n) if i < 2 else rng.random(n)
        order = topological_order(units.successor_ptr, units.successor, priority, i % 2 == 0)
        row = _fill(problem, units, unit_of_op, order)
        if row is not None:
            rows.append(row[unit_of_op])
    return np.array(rows, dtype=np.int32).reshape(len(rows), problem.n_ops)


def _fill(problem: Problem, units: Units, unit_of_op: Ints, order: Ints) -> NDArray[np.int32] | None:
    n_units = len(units.memory_bytes)
    time = np.zeros((n_units, problem.n_devices))
    np.add.at(time, unit_of_op, problem.op_device_time_s)
    limit = problem.arrays.memory_limit_bytes
    used = np.zeros(problem.n_devices)
    is_host = problem.arrays.is_host
    accelerators, hosts = np.flatnonzero(~is_host).tolist(), np.flatnonzero(is_host).tolist()
    placed = np.full(n_units, -1, dtype=np.int32)
    at, is_open = 0, False
    for u in order.tolist():
        size = units.memory_bytes[u]

        def takes(d: int, u: int = u, size: float = size) -> bool:
            return bool(np.isfinite(time[u, d]) and used[d] + size <= limit[d])

        if is_open and not takes(accelerators[at]):
            at, is_open = at + 1, False
        choice = accelerators[at] if at < len(accelerators) and takes(accelerators[at]) else -1
        if choice >= 0:
            is_open = True
        else:
            others = [d for d in (*hosts, *accelerators) if takes(d)]
            if not others:
                return None
            choice = others[0]
        placed[u] = choice
        used[choice] += size
    return placed
