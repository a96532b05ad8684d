"""``dpl``: the best pipeline along each of several topological orders, the best of all taken."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.evaluate.batch import cpu_count
from placewright.placers.base import Found, Placer
from placewright.placers.pipeline.dp import sync_per_unit
from placewright.placers.pipeline.linear_orders import solve_linear
from placewright.placers.pipeline.units import build_units
from placewright.placers.pipeline.view import pipeline_view, staffed
from placewright.problems import Problem


class DplPlacer(Placer):
    """Depth-first, breadth-first, frontier-aware and random orders; near linear in the number of ops."""

    name = "dpl"
    summary = "best contiguous pipeline along several topological orders"
    executions = ("pipeline",)

    def __init__(self, restarts: int = 8) -> None:
        self.restarts = restarts

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        view = pipeline_view(problem)
        units, unit_of_op = build_units(view.ops)
        pipeline = solve_linear(
            units,
            communication=problem.communication,
            max_replicas=problem.max_replicas,
            sync_cost=sync_per_unit(view, unit_of_op),
            restarts=self.restarts,
            seed=seed,
            should_stop=budget.expired,
            threads=cpu_count(),
        )
        if not pipeline.stages:
            return Found(None, note=f"no order found ({pipeline.status})")
        device, replicas = staffed(view, pipeline.stages, unit_of_op, problem.n_devices)
        return Found(
            device, replicas=replicas if problem.max_replicas > 1 else None, evaluations=pipeline.pairs_visited
        )
