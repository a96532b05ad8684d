"""Is there a pipeline whose stages all stay within a threshold? `core/pipeline/thresholds.h` says how it is found."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placewright import _core
from placewright.placers.pipeline.bounds import Prices, suffix_masks
from placewright.placers.pipeline.lattice import Lattice
from placewright.placers.pipeline.stage_loads import LoadModel, Stage
from placewright.placers.pipeline.vectors import Vectors

_PARALLEL_VISITS = 20_000


class Reach(NamedTuple):
    """Outcome of one threshold search."""

    stages: list[Stage] | None  # None: no pipeline within the threshold, or stopped
    visits: int
    stopped: bool


def search(
    model: LoadModel,
    lattice: Lattice,
    vectors: Vectors,
    prices: Prices,
    threshold: float,
    should_stop: Callable[[], bool],
    pool: ThreadPoolExecutor | None = None,
    threads: int = 1,
) -> Reach:
    """Find a pipeline with all loads at most `threshold`, or prove that there is none."""
    hopeful = suffix_masks(lattice, prices, vectors.remaining, threshold, should_stop)
    if hopeful is None or should_stop():
        return Reach(None, 0, True)
    in_core = _core.pipeline.ThresholdSearch(
        model.in_core(), lattice.in_core(), vectors.used.shape[0], vectors.option_shift, vectors.option_allowed,
        hopeful, threshold, threads,
    )  # fmt: skip
    if pool is None or threads == 1:
        visits, stopped = in_core.expand(0, 0, lattice.parent.size, 1, should_stop)
    else:
        visits, stopped = _expand_levels(in_core, lattice.level_ptr.tolist(), should_stop, pool, threads)
    stages = _traced(in_core, model)
    return Reach(stages, visits, stopped and stages is None)


def _expand_levels(
    in_core: _core.pipeline.ThresholdSearch,
    level_ptr: list[int],
    should_stop: Callable[[], bool],
    pool: ThreadPoolExecutor,
    threads: int,
) -> tuple[int, bool]:
    """Expand all ideals with threads, level by level: ideals of one cardinality do not feed each other."""
    total, level_visits, is_over = 0, 0, False

    def should_end() -> bool:
        nonlocal is_over
        try:
            is_over = is_over or should_stop()
        except BaseException:
            is_over = True  # for the other threads; the one that raises ends anyway
            raise
        return is_over

    for first, end in pairwise(level_ptr):
        # Handing out work costs more than a level with few visits.
        active = threads if level_visits > _PARALLEL_VISITS and end - first > 1 else 1
        if active == 1:
            level_visits, stopped = in_core.expand(0, first, end, 1, should_stop)
        else:
            jobs = [pool.submit(in_core.expand, i, first + i, end, active, should_end) for i in range(active)]
            try:
                results = [job.result() for job in jobs]
            except BaseException:  # an interruption, most likely
                is_over = True
                raise
            level_visits, stopped = sum(v for v, _ in results), any(s for _, s in results)
        total += level_visits
        if stopped:
            return total, True
    return total, False


def _traced(in_core: _core.pipeline.ThresholdSearch, model: LoadModel) -> list[Stage] | None:
    """The pipeline that a search has found, if it has."""
    stage_of_unit, option = np.empty((2, model.memory.size), np.int32)
    count = in_core.trace(stage_of_unit, option)
    if count is None:
        return None
    return [
        Stage(int(model.option_kind[o]), int(model.option_replicas[o]), np.flatnonzero(stage_of_unit == number))
        for number, o in enumerate(option[:count].tolist())
    ]
