"""The kernels as schedulers that :func:`~placewright.placers.overlap.attempts.search_with` can run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.graph import FloatArray, IntArray
from placewright.placers.base import Placer
from placewright.placers.overlap.attempts import Schedule, Scheduler, empty_schedule
from placewright.placers.overlap.by_rank import schedule_by_rank
from placewright.placers.overlap.by_start import schedule_by_start
from placewright.placers.overlap.list_costs import list_costs
from placewright.problems import Problem


def rank_scheduler(
    problem: Problem, rank: FloatArray, extra_s: FloatArray | None = None, preferred: IntArray | None = None
) -> Scheduler:
    """Take ops by greatest rank; see :func:`~placewright.placers.overlap.by_rank.schedule_by_rank`."""
    costs = list_costs(problem)
    extra_s = np.zeros(costs.time_s.shape) if extra_s is None else extra_s
    preferred = np.full(problem.n_ops, -1, dtype=np.int32) if preferred is None else preferred

    def schedule(decided: NDArray[np.int32], limit_bytes: FloatArray) -> Schedule:
        plan = empty_schedule(problem)
        schedule_by_rank(
            costs.arrays, costs.time_s, costs.group_time_s, costs.group_bytes, rank, extra_s, preferred,
            decided, limit_bytes, *plan,
        )  # fmt: skip
        return plan

    return schedule


def start_scheduler(problem: Problem, favourite: IntArray | None = None) -> Scheduler:
    """Take what starts first; see :func:`~placewright.placers.overlap.by_start.schedule_by_start`."""
    costs = list_costs(problem)
    favourite = np.full(problem.n_ops, -1, dtype=np.int32) if favourite is None else favourite

    def schedule(decided: NDArray[np.int32], limit_bytes: FloatArray) -> Schedule:
        plan = empty_schedule(problem)
        schedule_by_start(
            costs.arrays, costs.time_s, costs.group_time_s, costs.group_bytes, costs.upward_s, favourite,
            decided, limit_bytes, *plan,
        )  # fmt: skip
        return plan

    return schedule


def warm_up_with(placer: Placer) -> None:
    """Compile by placing a tiny problem."""
    from placewright.api import load

    placer.search(load("zoo:chain?ops=3", cluster="p100x2"), Budget(60.0), 0)
