"""Proven lower bounds on the largest device load, for any problem and both objectives.

Under "gpipe" (sum of two maxima) a device's forward plus backward load is at most the value, and overlapped
loads only count the larger of compute and communication, so every bound below works on folded directions.
Contiguity only restricts assignments further, so the bounds hold for contiguous problems too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import highspy
import numpy as np

from placewright.placers.pipeline.not_contiguous.column_generation import ColumnGeneration
from placewright.placers.pipeline.not_contiguous.implications import find_implications
from placewright.placers.pipeline.not_contiguous.programme_rows import new_highs
from placewright.placers.pipeline.not_contiguous.units import (
    Communication,
    FloatArray,
    IntArray,
    Units,
    fold_directions,
)

LARGEST_LP_ENTRIES = 400_000
LARGEST_COLUMN_UNITS = 3_000
# Gaps to prove in turn, in goal gaps: prices that prove one are a start for the next.
LADDER = (10.0, 7.0, 5.0, 3.5, 2.5, 1.8, 1.3, 1.0)
ATTEMPT_SHARE, RETRIES = 0.3, 3  # of the time left, for one target; how often to return to one that was given up
PROOF_MARGIN = 1e-8  # a disproved target counts as a bound a hair below it


def work_bound(units: Units, *, seconds: float = 20.0) -> float:
    """Fractional assignment of work and memory to kinds, communication left out; inf if nothing fits.

    The value returned is computed from kind weights alone, so it is a bound whatever the solver's accuracy.
    """
    work = units.forward_time + units.backward_time
    live = units.kind_count > 0
    if not np.isfinite(work[:, live]).any(axis=1).all():
        return float("inf")
    work = np.where(live[None, :], work, np.inf)
    if work.size <= LARGEST_LP_ENTRIES:
        rent, levy = _fractional_duals(units, work, seconds)
    else:
        rent, levy = np.where(live, 1.0, 0.0), np.zeros(len(live))
    best = 0.0
    speed = 1.0 / np.maximum(np.where(np.isfinite(work), work, 0.0).sum(axis=0), 1e-300)
    none = np.zeros(len(live))
    for weight, tax in ((rent, levy), (rent, none), (live.astype(float), none), (speed * live, none)):
        best = max(best, _weighted_work(units, work, weight, tax))
    return best


def _weighted_work(units: Units, work: FloatArray, rent: FloatArray, levy: FloatArray) -> float:
    """Bound from non-negative kind weights: sum over units of the cheapest weighted time, less the memory term."""
    total = float((units.kind_count * rent).sum())
    if total <= 0:
        return 0.0
    memory = np.where(np.isfinite(units.kind_memory), units.kind_memory, 0.0)
    tax = np.where(np.isfinite(units.kind_memory), levy, 0.0)
    with np.errstate(invalid="ignore"):
        cost = np.where(np.isfinite(work), work * rent, np.inf) + units.memory_bytes[:, None] * tax
    return float((cost.min(axis=1).sum() - (tax * memory * units.kind_count).sum()) / total)


def _fractional_duals(units: Units, work: FloatArray, seconds: float) -> tuple[FloatArray, FloatArray]:
    """Duals of the load and memory rows of the fractional assignment."""
    count, kinds = work.shape
    scale = float(np.where(np.isfinite(work), work, np.inf).min(axis=1).sum()) or 1.0
    bytes_scale = float(units.memory_bytes.sum()) or 1.0
    unit, kind = np.nonzero(np.isfinite(work))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(unit) + 1, count + 2 * kinds
    lp.col_cost_ = np.append(np.zeros(len(unit)), 1.0)
    lp.col_lower_ = np.zeros(len(unit) + 1)
    lp.col_upper_ = np.full(len(unit) + 1, highspy.kHighsInf)
    limit = units.kind_count * np.where(np.isfinite(units.kind_memory), units.kind_memory, 0.0) / bytes_scale
    limit = np.where(np.isfinite(units.kind_memory), limit, highspy.kHighsInf)
    lp.row_lower_ = np.concatenate([np.ones(count), np.full(2 * kinds, -highspy.kHighsInf)])
    lp.row_upper_ = np.concatenate([np.ones(count), np.zeros(kinds), limit])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.append(3 * np.arange(len(unit) + 1), 3 * len(unit) + kinds)
    rows = np.stack([unit, count + kind, count + kinds + kind], axis=1).ravel()
    values = np.stack([np.ones(len(unit)), work[unit, kind] / scale, units.memory_bytes[unit] / bytes_scale], axis=1)
    lp.a_matrix_.index_ = np.append(rows, count + np.arange(kinds))
    lp.a_matrix_.value_ = np.append(values.ravel(), -units.kind_count.astype(float))
    highs = new_highs(time_limit=seconds)
    highs.passModel(lp)
    highs.run()
    dual = -np.array(highs.getSolution().row_dual)
    if len(dual) < count + 2 * kinds:
        return (units.kind_count > 0).astype(float), np.zeros(kinds)
    rent = np.maximum(dual[count : count + kinds], 0.0)
    return rent, np.maximum(dual[count + kinds :], 0.0) * scale / bytes_scale


def unit_bound(
    units: Units,
    upper: float,
    communication: Communication = "added",
    *,
    seconds: float = 5.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> float:
    """The device that holds a unit has at least the unit's least load (a minimum cut), on its best kind."""
    if not units.unit_count:
        return 0.0
    facts = find_implications(units, upper, communication, seconds=seconds, should_stop=should_stop)
    return float(min(facts.least_load.min(axis=1).max(), upper))


def combinatorial_bound(
    units: Units,
    upper: float,
    communication: Communication = "added",
    *,
    seconds: float = 5.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> float:
    """The better of `work_bound` and `unit_bound`; takes seconds even on large problems."""
    if not units.unit_count:
        return 0.0
    folded = fold_directions(units)
    by_work = work_bound(folded, seconds=seconds)
    return max(by_work, unit_bound(folded, upper, communication, seconds=seconds, should_stop=should_stop))


def column_bound(
    units: Units,
    upper: Callable[[], float],
    lower: float,
    communication: Communication = "added",
    *,
    seconds: float,
    assignments: list[IntArray],
    goal_gap: float = 0.01,
    final_gap: float = 1e-4,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    on_bound: Callable[[float], None] = lambda bound: None,
) -> float:
    """Raise `lower` by disproving targets: first the one that proves `goal_gap`, then halving what is left.

    `upper` is asked again before every target, so another thread may improve it meanwhile.
    """
    began = time.perf_counter()
    deadline = began + seconds
    if units.unit_count > LARGEST_COLUMN_UNITS or units.unit_count == 0:
        return lower
    # The linear solver's tolerances are absolute, so loads are brought near 100.
    scale = 100.0 / max(upper(), 1e-300)
    folded = _scaled(fold_directions(units), scale)
    facts = find_implications(folded, upper() * scale, communication, seconds=0.1 * seconds, should_stop=should_stop)
    engine = ColumnGeneration(folded, communication == "overlapped", facts, seed, should_stop)
    for assignment in assignments:
        engine.add_assignment(assignment)
    ceiling, retries = np.inf, 0  # least target that could not be disproved
    while time.perf_counter() < deadline and not should_stop():
        value = upper()
        if value <= lower * (1 + final_gap):
            break
        target = _next_target(value, lower, ceiling, goal_gap, final_gap)
        if target is None:
            break
        patience = max(2.0, ATTEMPT_SHARE * (deadline - time.perf_counter()))
        if engine.disprove(target * scale, min(deadline, time.perf_counter() + patience)):
            lower = max(lower, target * (1 - PROOF_MARGIN))
            on_bound(lower)
            if ceiling <= lower * (1 + 0.3 * goal_gap) and retries < RETRIES:
                ceiling, retries = np.inf, retries + 1  # the prices have come nearer since
        else:
            ceiling = min(ceiling, target)
    return lower


def _next_target(value: float, lower: float, ceiling: float, goal_gap: float, final_gap: float) -> float | None:
    for rung in LADDER:
        goal = value / (1 + rung * goal_gap) * (1 + 1e-6)
        if lower * (1 + 1e-6) < goal < ceiling:
            return goal
    top = min(ceiling, value * (1 - 0.5 * final_gap))
    if top - lower <= 0.25 * final_gap * value:
        return None
    return lower + 0.5 * (top - lower)


def _scaled(units: Units, factor: float) -> Units:
    return units._replace(
        forward_time=units.forward_time * factor,
        backward_time=units.backward_time * factor,
        tensor_in=units.tensor_in * factor,
        tensor_out=units.tensor_out * factor,
    )
