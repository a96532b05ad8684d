"""Best pipeline along single topological orders (`dpl`): fast, not optimal over all orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from placewright.placers.pipeline.bisection import (
    NOTHING,
    TOLERANCE,
    Incumbent,
    Minimum,
    StopCheck,
    Task,
    better,
    minimise,
    new_task,
    stop_check,
)
from placewright.placers.pipeline.coarse import focus_cuts, merge_segments, spread_cuts
from placewright.placers.pipeline.lattice import chain_lattice
from placewright.placers.pipeline.stage_loads import Communication, Pipeline, Stage, Status, build_model, permute_model
from placewright.placers.pipeline.units import Floats, Ints, Units, topological_order

MAX_CUTS = 1_500
_REFINEMENTS = 2
_COARSE_GAP = 1e-4
_COARSE_MARGIN = 1.01


def solve_linear(
    units: Units,
    *,
    communication: Communication = "added",
    max_replicas: int = 1,
    sync_cost: Floats | None = None,
    restarts: int = 8,
    seed: int = 0,
    deadline: float | None = None,
    should_stop: StopCheck | None = None,
    threads: int = 2,
) -> Pipeline:
    """Best contiguous pipeline along any of several topological orders.

    Tries fixed depth-first, breadth-first and frontier-aware orders, then `restarts` random
    depth-first ones. Exact along each order of up to `MAX_CUTS` units; on longer ones boundaries
    are searched coarsely, then refined. `deadline` is on the `time.monotonic` clock.
    """
    model = build_model(units, communication, max_replicas, sync_cost)
    task = new_task(units, model, stop_check(deadline, should_stop))
    if task is None:
        return Pipeline("infeasible", np.inf, (), 0, 0)
    found = best_chain(task, restarts, seed, threads)
    status: Status = "feasible" if found.proven else "timeout"
    if found.proven and not found.incumbent.stages and units.memory_bytes.size > 0:
        status = "not_found"
    return Pipeline(status, *found.incumbent, units.memory_bytes.size + 1, found.visits)


def best_chain(task: Task, restarts: int, seed: int, threads: int) -> Minimum:
    """Best pipeline over all orders; `proven` if every order was searched to the end.

    Orders run in batches and start from the best of earlier batches, so that the outcome does not
    depend on which thread is faster.
    """
    best, visits, complete = NOTHING, 0, True
    orders = candidate_orders(task.units, restarts, seed)
    with ThreadPoolExecutor(threads) as pool:
        while batch := [order for _, order in zip(range(threads), orders, strict=False)]:
            jobs = [pool.submit(best_along, task, order, best) for order in batch]
            for found in [job.result() for job in jobs]:
                best = better(best, found.incumbent)
                visits += found.visits
                complete = complete and found.proven
            if not complete or best.value <= task.lower * (1 + TOLERANCE):
                break
    return Minimum(best, visits, complete)


def candidate_orders(units: Units, restarts: int, seed: int) -> Iterator[Ints]:
    """Topological orders worth trying, the generally good ones first."""
    count = units.memory_bytes.size
    links = units.successor_ptr, units.successor
    yield topological_order(*links, np.zeros(count), True)
    yield topological_order(*links, -_frontier_growth(units), True)
    yield topological_order(*links, np.zeros(count), False)
    yield topological_order(*links, -np.arange(count, dtype=np.float64), True)
    yield topological_order(*links, -units.memory_bytes.astype(np.float64), True)
    generator = np.random.default_rng(seed)
    for _ in range(restarts):
        yield topological_order(*links, generator.random(count), True)


def _frontier_growth(units: Units) -> Floats:
    """Cost of the tensors a unit produces minus its share of those it consumes."""
    consumers = np.repeat(np.diff(units.tensor_ptr) - 1, np.diff(units.tensor_ptr))
    cost = np.repeat(units.tensor_in.sum(axis=1), np.diff(units.tensor_ptr))
    is_producer = np.zeros(cost.size, np.bool_)
    is_producer[units.tensor_ptr[:-1]] = True
    signed = np.where(is_producer, cost, -cost / consumers)
    return np.bincount(units.tensor_unit, signed, units.memory_bytes.size).astype(np.float64)


def best_along(task: Task, order: Ints, incumbent: Incumbent) -> Minimum:
    """Best pipeline along one order, or the incumbent; merely a good one for very long orders."""
    if order.size > MAX_CUTS:
        return _best_coarsely(task, order, incumbent)
    along = permute_model(task.model, order)
    costs = task.prices._replace(unit_cost=np.ascontiguousarray(task.prices.unit_cost[:, order]))
    lattice = chain_lattice(order.size)
    found = minimise(along, lattice, task.vectors, costs, task.lower, incumbent, task.stop)
    if found.incumbent is incumbent:
        return found
    stages = [stage._replace(units=np.sort(order[stage.units])) for stage in found.incumbent.stages]
    return found._replace(incumbent=Incumbent(found.incumbent.value, stages))


def _best_coarsely(task: Task, order: Ints, incumbent: Incumbent) -> Minimum:
    """Boundaries at a few positions first, then at all positions near the best ones."""
    cuts = spread_cuts(task.units, order, task.prices.unit_cost.sum(axis=0), MAX_CUTS)
    # Refinement gains a little, so an order may start out a little behind.
    start = Incumbent(incumbent.value * _COARSE_MARGIN, ())
    visits = 0
    for _ in range(_REFINEMENTS + 1):
        found = _best_with_cuts(task, order, cuts, start)
        visits += found.visits
        start = found.incumbent
        if not found.proven or not start.stages:
            break
        cuts = focus_cuts(cuts, order, [stage.units for stage in start.stages], MAX_CUTS)
    return Minimum(better(incumbent, start) if start.stages else incumbent, visits, found.proven)


def _best_with_cuts(task: Task, order: Ints, cuts: Ints, incumbent: Incumbent) -> Minimum:
    merged, segment = merge_segments(task.units, task.model, order, cuts)
    costs = np.array([np.bincount(segment, row, cuts.size + 1) for row in task.prices.unit_cost])
    prices = task.prices._replace(unit_cost=costs)
    found = minimise(
        merged, chain_lattice(cuts.size + 1), task.vectors, prices, task.lower, incumbent,
        task.stop, gap=_COARSE_GAP,
    )  # fmt: skip
    if found.incumbent is incumbent:
        return found
    stages = _expand_segments(found.incumbent.stages, segment)
    return found._replace(incumbent=Incumbent(found.incumbent.value, stages))


def _expand_segments(stages: Sequence[Stage], segment_of_unit: Ints) -> list[Stage]:
    stage_of_segment = np.empty(int(segment_of_unit.max()) + 1, np.int64)
    for number, stage in enumerate(stages):
        stage_of_segment[stage.units] = number
    stage_of_unit = stage_of_segment[segment_of_unit]
    return [stage._replace(units=np.flatnonzero(stage_of_unit == number)) for number, stage in enumerate(stages)]
