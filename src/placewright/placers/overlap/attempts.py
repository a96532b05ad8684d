"""Turn a scheduling kernel into a valid placement: memory restarts, and the order that the evaluator is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate import evaluate, evaluate_many
from placewright.graph import BoolArray, FloatArray
from placewright.placers.base import Found
from placewright.placers.overlap.list_costs import list_costs
from placewright.problems import Problem

MOST_ATTEMPTS = 10


class Schedule(NamedTuple):
    """What a kernel plans."""

    device: NDArray[np.int32]  # [ops]
    start_s: FloatArray  # [ops]
    finish_s: FloatArray  # [ops]
    misfit: BoolArray  # [ops]: first ops of groups for which no device had room


Scheduler = Callable[[NDArray[np.int32], FloatArray], Schedule]
"""Schedules all ops, given the device of groups decided before (by first op, -1 = open) and memory limits."""


def empty_schedule(problem: Problem) -> Schedule:
    """Arrays for a kernel to fill."""
    n = problem.n_ops
    return Schedule(np.full(n, -1, dtype=np.int32), np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.bool_))


def search_with(problem: Problem, budget: Budget, schedule: Scheduler) -> Found:
    """Schedule; where the evaluator finds a memory limit broken, again with what was learnt, a few times.

    Devices over their limit get a smaller one by as much, groups that found no room are packed first next time, and
    the last attempt packs all groups before scheduling. The evaluator is asked with the plan's start order and with
    upward ranks as priorities; the better one is returned.
    """
    limits = problem.arrays.memory_limit_bytes
    allowance, misfit = limits.copy(), np.zeros(problem.n_ops, dtype=np.bool_)
    evaluations = 0
    for attempt in range(MOST_ATTEMPTS):
        last = attempt == MOST_ATTEMPTS - 1
        plan = schedule(_decided_before(problem, allowance, np.ones_like(misfit) if last else misfit), allowance)
        priorities = np.stack([_positions(plan.start_s, plan.finish_s), -list_costs(problem).upward_s])
        result = evaluate_many(problem, np.stack([plan.device] * 2), priorities)
        evaluations += 2
        values = np.where(result.is_valid, result.value, np.inf)
        best = int(values.argmin())
        if np.isfinite(values[best]):
            budget.report(float(values[best]), evaluations=evaluations)
            note = f"memory: valid in attempt {attempt + 1}" if attempt else ""
            return Found(plan.device, priority=priorities[best], evaluations=evaluations, note=note)
        excess = evaluate(problem, plan.device, priorities[0]).memory_bytes - limits
        if budget.expired() or excess.max() <= 0:
            break
        learnt = plan.misfit & ~misfit
        misfit |= learnt
        if not learnt.any() or attempt % 2:
            allowance = np.where(excess > 0, np.maximum(allowance - excess, 0.0), allowance)
    return Found(None, evaluations=evaluations, note=f"no schedule within the limits in {attempt + 1} attempts")


def _positions(start_s: FloatArray, finish_s: FloatArray) -> FloatArray:
    """Position of each op in the order of starts; at the same moment, what ends first goes first."""
    order = np.lexsort((np.arange(len(start_s)), finish_s, start_s))
    positions = np.empty(len(order))
    positions[order] = np.arange(len(order))
    return positions


def _decided_before(problem: Problem, allowance: FloatArray, first: BoolArray) -> NDArray[np.int32]:
    """[ops]: device of groups with one choice only and of those marked in ``first`` (largest first), -1 for others.

    A marked group goes where its ops take least time among the devices with room, else where there is most room.
    """
    costs = list_costs(problem)
    decided = np.full(problem.n_ops, -1, dtype=np.int32)
    is_first = problem.group_of_op == np.arange(problem.n_ops)
    possible = np.isfinite(costs.group_time_s) & is_first[:, None]
    only = possible.sum(axis=1) == 1
    decided[only] = possible[only].argmax(axis=1)
    room = allowance - np.bincount(decided[only], costs.group_bytes[only], problem.n_devices)
    marked = np.flatnonzero(first & is_first & ~only)
    load_s = np.zeros(problem.n_devices)
    for g in marked[np.argsort(-costs.group_bytes[marked], kind="stable")].tolist():
        fits = possible[g] & (costs.group_bytes[g] <= room)
        after_s = load_s + costs.group_time_s[g]
        d = int(
            np.where(fits, after_s, np.inf).argmin() if fits.any() else np.where(possible[g], room, -np.inf).argmax()
        )
        decided[g] = d
        room[d] -= costs.group_bytes[g]
        load_s[d] = after_s[d]
    return decided
