"""Optimal contiguous pipeline (`dp`): exact search over all chains of ideals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from placewright.placers.pipeline.bisection import Incumbent, StopCheck, Task, minimise, new_task, stop_check
from placewright.placers.pipeline.lattice import Lattice, enumerate_ideals
from placewright.placers.pipeline.linear_orders import MAX_CUTS, best_along, best_chain
from placewright.placers.pipeline.stage_loads import Communication, Pipeline, Status, build_model
from placewright.placers.pipeline.units import Floats, Units, topological_order

MAX_IDEALS = 2_000_000
_MAX_STATE_BYTES = 512 * 2**20
_RESTARTS = 3
_PATIENCE = 50
_WORTHWHILE = 1e-5


def solve_ideals(
    units: Units,
    *,
    communication: Communication = "added",
    max_replicas: int = 1,
    sync_cost: Floats | None = None,
    max_ideals: int = MAX_IDEALS,
    seed: int = 0,
    deadline: float | None = None,
    should_stop: StopCheck | None = None,
    threads: int = 2,
) -> Pipeline:
    """Contiguous pipeline with the least largest stage load.

    A stage may use up to `max_replicas` devices of one kind; `sync_cost[u, k]` is what
    synchronising unit `u` between replicas of kind `k` costs. `deadline` is on the
    `time.monotonic` clock; it and `should_stop` are looked at several times a second.
    """
    model = build_model(units, communication, max_replicas, sync_cost)
    task = new_task(units, model, stop_check(deadline, should_stop))
    if task is None:
        return Pipeline("infeasible", np.inf, (), 0, 0)
    chain = best_chain(task, _RESTARTS, seed, threads)
    if task.is_restricted:
        return Pipeline("too_many_states", *chain.incumbent, 0, chain.visits)
    lattice = enumerate_ideals(units, max_ideals, task.stop)
    if not isinstance(lattice, Lattice):
        polished = _polish(task, np.random.default_rng(seed), chain.incumbent, threads)
        return Pipeline(lattice.reason, *polished, lattice.found, chain.visits)
    ideals = lattice.parent.size
    threads = _affordable_threads(task, ideals, threads)
    if threads == 0:
        return Pipeline("too_many_states", *chain.incumbent, ideals, chain.visits)
    polish = partial(_polish, task, np.random.default_rng(seed)) if units.memory_bytes.size <= MAX_CUTS else None
    with ThreadPoolExecutor(threads) as pool:
        best = minimise(
            model, lattice, task.vectors, task.prices, task.lower, chain.incumbent, task.stop,
            polish=polish, pool=pool, threads=threads,
        )  # fmt: skip
    status: Status = "optimal" if best.proven else "timeout"
    if best.proven and best.incumbent.value == np.inf:
        status = "infeasible"
    return Pipeline(status, *best.incumbent, ideals, chain.visits + best.visits)


def _polish(task: Task, generator: np.random.Generator, incumbent: Incumbent, threads: int = 1) -> Incumbent:
    """Move boundaries along random orders that agree with the incumbent's sequence of stages.

    A search of the lattice costs as much as hundreds of these short ones.
    """
    links = task.units.successor_ptr, task.units.successor
    count = task.units.memory_bytes.size
    stage_of_unit = np.empty(count, np.int64)
    failures = 0
    with ThreadPoolExecutor(threads) as pool:
        while failures < _PATIENCE and incumbent.stages and not task.stop():
            for number, stage in enumerate(incumbent.stages):
                stage_of_unit[stage.units] = number
            orders = [topological_order(*links, generator.random(count), True) for _ in range(threads)]
            orders = [order[np.argsort(stage_of_unit[order], kind="stable")] for order in orders]
            along = pool.map(partial(best_along, task), orders, [incumbent] * threads)
            found = [minimum.incumbent for minimum in along]
            best = min(found, key=lambda f: f.value)
            failures = 0 if best.value < incumbent.value * (1 - _WORTHWHILE) else failures + threads
            incumbent = best
    return incumbent


def _affordable_threads(task: Task, ideals: int, threads: int) -> int:
    """Each thread keeps a bit set per ideal, and one more is shared; 0 if even that is too much."""
    bytes_per_set = ideals * task.vectors.option_allowed.shape[1] * 8
    return max(0, min(threads, int(_MAX_STATE_BYTES // bytes_per_set) - 1))
