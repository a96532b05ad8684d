"""Distributions over devices, taught by the best of their samples; what they find is annealed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate import evaluate_many, lower_bound
from placewright.graph import FloatArray, IntArray
from placewright.placers.base import Found
from placewright.placers.search.chains import Point, anneal_from
from placewright.placers.units import movable_units, whole_units
from placewright.problems import Problem, once_per_problem

SAMPLING_SHARE = {"overlap": 0.5, "sequential": 0.7, "calls": 0.3}  # of the time; the rest is for annealing
MOST_SAMPLED_OPS, NEAR_THE_BOUND = 4000, 1.2  # where samples help under ``overlap``: value of the best start over bound
ELITE, SMOOTHING = 0.1, 0.3  # share of the samples that teach, and how much they count against what was known
START_TRUST = 0.9  # probability of the starts' devices at first
LEAST_CHANCE = 0.02  # shared by all devices a unit may be on, so that none is forgotten
PENALTY = 4.0  # of memory beyond the limits, in values per share of all bytes
DEFAULT_ROUNDS = 200  # without progress for so many rounds the sampling ends
_BATCH_CELLS = 1_000_000  # ops x placements in a round, at most
_BATCH = 128
_PATIENCE = 1.3  # times what the same number of rounds took before


def sample_and_anneal(problem: Problem, starts: list[tuple[Point, float]], budget: Budget, seed: int) -> Found:
    """Sample placements, keep the best tenth, move the distributions towards them; then anneal the best.

    ``starts`` come with their values, best first, and are part of the first samples. The order of the ops stays that
    of the best start until it is annealed. With ``budget.evaluations`` the result depends on the seed alone.
    """
    best = _sample(problem, starts, budget, seed)
    left = max(1, budget.evaluations - best.evaluations) if budget.evaluations else None
    others = [point for point, _ in starts] if problem.execution == "calls" else []  # sampling often leads astray there
    rest = budget.part(budget.remaining_s())
    rest.evaluations = left
    annealed = anneal_from(problem, [best.point, *others], rest, seed)
    evaluations = best.evaluations + annealed.evaluations
    if annealed.best is not None and annealed.value < best.value:
        best = _Best(annealed.best, annealed.value, evaluations)
    if math.isinf(best.value):
        return Found(None, evaluations=evaluations, note="no valid placement was met")
    return Found(best.point.device_of_op, priority=best.point.priority, evaluations=evaluations)


def samples_help(problem: Problem, start_value: float) -> bool:
    """Whether sampling before annealing does better than annealing alone, the best start given.

    Under ``calls`` it does. Under ``overlap`` it does where devices limit the value more than copies do, so that list
    schedules are near the bound already, and the graph is small enough for some hundred rounds of samples.
    """
    if problem.execution == "overlap":
        return problem.n_ops <= MOST_SAMPLED_OPS and start_value <= NEAR_THE_BOUND * lower_bound(problem)
    return problem.execution == "calls"


class _Best(NamedTuple):
    point: Point
    value: float
    evaluations: int


def _sample(problem: Problem, starts: list[tuple[Point, float]], budget: Budget, seed: int) -> _Best:
    starts = [(point._replace(device_of_op=whole_units(problem, point.device_of_op)), value) for point, value in starts]
    units = movable_units(problem)
    rng = np.random.default_rng(seed)
    n_units, n_devices = units.allowed.shape
    first_op = np.unique(units.unit_of_op, return_index=True)[1]
    size = int(np.clip(_BATCH_CELLS // problem.n_ops, 8, _BATCH))
    share = SAMPLING_SHARE[problem.execution]
    wanted = share * budget.evaluations if budget.evaluations else math.inf
    seconds = share * budget.remaining_s()
    key = (len(starts), round(math.log2(max(seconds, 1e-9))))
    known = {} if budget.evaluations else _known_rounds(problem)
    most_rounds = known.get(key, math.inf)
    until = budget.part(seconds * (_PATIENCE if key in known else 1.0))
    point, value = starts[0]
    chance = _first_chances(units.allowed, [p.device_of_op[first_op] for p, _ in starts])
    kept: IntArray = np.array([p.device_of_op[first_op] for p, _ in starts[: size // 2]], dtype=np.int32)
    done, rounds, stale = 0, 0, 0
    while rounds < most_rounds and done < wanted and stale < DEFAULT_ROUNDS and n_devices > 1 and not until.expired():
        steps = chance.cumsum(axis=1)
        drawn = (rng.random((size, n_units, 1), dtype=np.float32) > steps[None, :, :-1]).sum(axis=2).astype(np.int32)
        rows = np.concatenate([kept, _within(units.allowed, drawn)])
        devices = rows[:, units.unit_of_op]
        result = evaluate_many(problem, devices, point.priority)
        done += len(rows)
        stale += 1
        rounds += 1
        valid = np.where(result.is_valid, result.value, np.inf)
        best = int(valid.argmin())
        if valid[best] < value:
            point, value, stale = Point(devices[best], point.priority), float(valid[best]), 0
            budget.report(value, evaluations=done)
        score = result.value * (1 + PENALTY * _excess_share(problem, result.excess_bytes))
        elite = np.argsort(np.where(result.is_valid, score, score * 1.05), kind="stable")[: max(2, int(ELITE * size))]
        kept = rows[elite[: max(1, len(elite) // 4)]]
        seen = np.zeros_like(chance)
        for row in rows[elite]:
            seen[np.arange(n_units), row] += 1 / len(elite)
        chance = _floored(units.allowed, (1 - SMOOTHING) * chance + SMOOTHING * seen)
    known.setdefault(key, rounds)
    return _Best(point, value, done)


@once_per_problem
def _known_rounds(problem: Problem) -> dict[tuple[int, int], int]:
    """How many rounds were possible, by the number of starts and about how much time: later runs go as far."""
    return {}


def _first_chances(allowed: NDArray[np.bool_], starts: list[IntArray]) -> FloatArray:
    chance = allowed / allowed.sum(axis=1, keepdims=True) * (1 - START_TRUST)
    weight = 0.5 ** np.arange(1, len(starts) + 1)
    for share, row in zip(weight / weight.sum(), starts, strict=True):
        chance[np.arange(len(row)), row] += START_TRUST * share
    return chance / chance.sum(axis=1, keepdims=True)


def _floored(allowed: NDArray[np.bool_], chance: FloatArray) -> FloatArray:
    least = LEAST_CHANCE / len(allowed) ** 0.5
    even = allowed / allowed.sum(axis=1, keepdims=True)
    return (1 - least) * chance / chance.sum(axis=1, keepdims=True) + least * even


def _within(allowed: NDArray[np.bool_], drawn: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rounding at the ends of the cumulative chances must not lead to a device that is not allowed."""
    bad = ~allowed[np.arange(allowed.shape[0]), drawn]
    return np.where(bad, allowed.argmax(axis=1).astype(np.int32), drawn)


def _excess_share(problem: Problem, excess_bytes: FloatArray) -> FloatArray:
    total = float(problem.memory_bytes.sum() + problem.arrays.live_bytes.sum())
    return excess_bytes / max(total, 1.0)
