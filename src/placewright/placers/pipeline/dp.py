"""``dp``: the optimal contiguous pipeline, by search over chains of ideals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate.batch import cpu_count
from placewright.evaluate.checking import Fault
from placewright.graph import FloatArray
from placewright.placers.base import Found, Placer
from placewright.placers.pipeline.ideals import solve_ideals
from placewright.placers.pipeline.stage_loads import Pipeline
from placewright.placers.pipeline.units import Units, build_units
from placewright.placers.pipeline.view import PipelineView, pipeline_view, staffed
from placewright.problems import Problem

MAX_IDEALS = 4_000_000
MAX_COVERING_EDGES = 40_000_000  # ideals times ways to grow them: what a few hundred MiB hold
ANY_TIME = 5e-324  # the least number above zero: only ops that take no time at all are merged away


class DpPlacer(Placer):
    """Exact for contiguous pipelines whose copies go through host memory, inference and training (``1f1b``).

    Elsewhere its pipeline is a good valid one, and its optimum a bound where that holds: with direct links (cheapest
    copies are charged) and under ``gpipe`` (max FW + max BW is never less than max(FW + BW)), not without contiguity.
    """

    name = "dp"
    summary = "optimal contiguous pipeline: dynamic programme over ideals"
    executions = ("pipeline",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        view = pipeline_view(problem)
        lossless = problem.memory_cannot_bind
        # Merging ops without time into their neighbour moves their bytes, too: exact only where memory cannot bind.
        units, unit_of_op = build_units(view.ops, merge_trivial=lossless, trivial_time=ANY_TIME)
        pipeline = self._solve(problem, view, units, unit_of_op, budget, seed)
        if pipeline.status == "too_many_ideals" and not lossless:
            units, unit_of_op = build_units(view.ops, merge_trivial=True)
            pipeline = self._solve(problem, view, units, unit_of_op, budget, seed)._replace(status="feasible")
        return self._found(problem, view, pipeline, unit_of_op)

    def _solve(
        self,
        problem: Problem,
        view: PipelineView,
        units: Units,
        unit_of_op: NDArray[np.int64],
        budget: Budget,
        seed: int,
    ) -> Pipeline:
        return solve_ideals(
            units,
            communication=problem.communication,
            max_replicas=problem.max_replicas,
            sync_cost=sync_per_unit(view, unit_of_op),
            max_ideals=min(MAX_IDEALS, MAX_COVERING_EDGES // _width(units)),
            seed=seed,
            should_stop=budget.expired,
            threads=cpu_count(),
        )

    def _found(self, problem: Problem, view: PipelineView, pipeline: Pipeline, unit_of_op: NDArray[np.int64]) -> Found:
        proof = f"{pipeline.status} over {pipeline.ideals:,} ideals, {pipeline.pairs_visited:,} pairs visited"
        if pipeline.status == "infeasible" and problem.contiguous:
            text = f"no packing exists: no chain of stages fits the devices' memories (proven by search: {proof})"
            return Found(None, infeasible=(Fault("no-packing", text),), note=proof)
        if not pipeline.stages:
            return Found(None, note=proof)
        device, replicas = staffed(view, pipeline.stages, unit_of_op, problem.n_devices)
        proven = pipeline.status == "optimal" and problem.contiguous
        return Found(
            device,
            bound=pipeline.value if proven else None,
            replicas=replicas if problem.max_replicas > 1 else None,
            evaluations=pipeline.pairs_visited,
            note=proof,
        )


def _width(units: Units) -> int:
    """The largest number of units equally far from the start: about how many ways an ideal can grow."""
    level = np.zeros(len(units.memory_bytes), dtype=np.int64)
    ptr, successor = units.successor_ptr.tolist(), units.successor
    for u in range(len(level)):  # units are numbered in a topological order
        after = successor[ptr[u] : ptr[u + 1]]
        level[after] = np.maximum(level[after], level[u] + 1)
    return int(np.bincount(level).max(initial=1))


def sync_per_unit(view: PipelineView, unit_of_op: NDArray[np.int64]) -> FloatArray | None:
    """Sum the weight-exchange times of a unit's ops."""
    if view.sync_s is None:
        return None
    total = np.zeros((int(unit_of_op.max()) + 1, view.sync_s.shape[1]))
    np.add.at(total, unit_of_op, view.sync_s)
    return total
