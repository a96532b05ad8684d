"""The core's list schedulers, as :func:`~placewright.placers.overlap.attempts.search_with` can run them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.graph import FloatArray, IntArray
from placewright.placers.overlap.attempts import Schedule, Scheduler, empty_schedule
from placewright.placers.overlap.list_costs import list_costs
from placewright.problems import Problem, core_problem


def rank_scheduler(
    problem: Problem, rank: FloatArray, extra_s: FloatArray | None = None, preferred: IntArray | None = None
) -> Scheduler:
    """Take ops by greatest rank, each where it would end first; ``core/overlap/list_schedule.h`` has the rules."""
    lists = _list_scheduler(problem)
    extra_s = np.zeros((problem.n_ops, problem.n_devices)) if extra_s is None else extra_s
    preferred = np.full(problem.n_ops, -1, dtype=np.int32) if preferred is None else preferred

    def schedule(decided: NDArray[np.int32], limit_bytes: FloatArray) -> Schedule:
        plan = empty_schedule(problem)
        lists.by_rank(rank, extra_s, preferred, decided, limit_bytes, *plan)
        return plan

    return schedule


def start_scheduler(problem: Problem, favourite: IntArray | None = None) -> Scheduler:
    """Take what starts first; ``core/overlap/list_schedule.h`` has the rules."""
    lists, upward_s = _list_scheduler(problem), list_costs(problem).upward_s
    favourite = np.full(problem.n_ops, -1, dtype=np.int32) if favourite is None else favourite

    def schedule(decided: NDArray[np.int32], limit_bytes: FloatArray) -> Schedule:
        plan = empty_schedule(problem)
        lists.by_start(upward_s, favourite, decided, limit_bytes, *plan)
        return plan

    return schedule


def _list_scheduler(problem: Problem) -> _core.overlap.ListScheduler:
    costs = list_costs(problem)
    return _core.overlap.ListScheduler(core_problem(problem), costs.time_s, costs.group_time_s, costs.group_bytes)
