"""Exact pricing on narrow graphs: a walk over the units that remembers only the frontier of open tensors.

Units are decided one by one (in the set or not). What the past means for the future is, per tensor with both
decided and undecided units, one digit. On layered networks few tensors are open at once, so the distinct frontiers
can be listed. They give, for any price of load, the best completion of every frontier; with these bounds a
label search for the best set within the load limit visits little more than the optimal path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.placers.pipeline.not_contiguous.pricing import SetProblem
from placewright.placers.pipeline.not_contiguous.units import BoolArray, FloatArray, IntArray

DIGIT_BITS = 3
MAX_SLOTS = 63 // DIGIT_BITS
# Digits of an open tensor: decided units all in, all out, paid for, or mixed with the producer undecided.
ALL_IN, ALL_OUT, SETTLED, MIXED = 1, 2, 3, 4
MULTIPLIER_STEPS = (0.6, 0.85, 0.95, 1.0, 1.05, 1.2, 1.6)


class Frontiers(NamedTuple):
    """All reachable frontiers, step by step, and where each decision leads."""

    order: IntArray  # [U] units in the order of decision
    ptr: NDArray[np.int64]  # [U + 2] states before step i are ptr[i] .. ptr[i + 1] - 1
    child: IntArray  # [2, states] next state when the unit stays out / goes in
    cost: FloatArray  # [2, states] communication paid by that decision


class _Event(NamedTuple):
    """What deciding one unit does to one tensor."""

    slot: int
    is_producer: bool
    producer_decided: bool
    closes: bool
    cost_in: float
    cost_out: float


def build_frontiers(
    problem: SetProblem, max_states: int = 4_000_000, should_stop: Callable[[], bool] = lambda: False
) -> Frontiers | None:
    """None when the graph is too wide for the listing, or when stopped."""
    order = _narrow_order(problem, should_stop)
    events = None if order is None else _schedule(problem, order)
    if order is None or events is None:
        return None
    usable = np.isfinite(problem.time)
    keys = np.zeros(1, dtype=np.int64)
    ptr, children, costs = [0, 1], [], []
    for step, unit in enumerate(order.tolist()):
        after, paid = zip(*(_decide(keys, events[step], inside) for inside in (False, True)), strict=True)
        both = np.concatenate(after) if usable[unit] else after[0]
        keys, place = np.unique(both, return_inverse=True)
        out_place = place[: len(after[0])]
        in_place = place[len(after[0]) :] if usable[unit] else np.full(len(after[0]), -1)
        children.append(np.stack([out_place + ptr[-1], np.where(in_place < 0, -1, in_place + ptr[-1])]))
        costs.append(np.stack(paid))
        ptr.append(ptr[-1] + len(keys))
        if ptr[-1] > max_states or should_stop():
            return None
    child = np.concatenate(children, axis=1).astype(np.int32)
    return Frontiers(order, np.array(ptr, dtype=np.int64), child, np.concatenate(costs, axis=1))


def _narrow_order(problem: SetProblem, should_stop: Callable[[], bool]) -> IntArray | None:
    """Greedy: next comes the unit that leaves the fewest tensors open, by first-come order among equals."""
    units = len(problem.time)
    undecided = np.diff(problem.tensor_ptr).astype(np.int64)
    is_open = np.zeros(len(undecided), dtype=bool)
    done = np.zeros(units, dtype=bool)
    touched = {0} if units else set()
    order = np.empty(units, dtype=np.int32)
    cursor = 0
    for step in range(units):
        if should_stop():
            return None
        while cursor < units and done[cursor]:
            cursor += 1
        candidates = [unit for unit in touched if not done[unit]] or [cursor]
        best = min(candidates, key=lambda unit: (_opened(problem, unit, undecided, is_open), unit))
        done[best] = True
        touched.discard(best)
        order[step] = best
        for tensor in problem.unit_tensor[problem.unit_ptr[best] : problem.unit_ptr[best + 1]]:
            undecided[tensor] -= 1
            is_open[tensor] = undecided[tensor] > 0
            members = problem.tensor_unit[problem.tensor_ptr[tensor] : problem.tensor_ptr[tensor + 1]]
            touched.update(int(unit) for unit in members if not done[unit])
    return order


def _opened(problem: SetProblem, unit: int, undecided: NDArray[np.int64], is_open: BoolArray) -> int:
    change = 0
    for tensor in problem.unit_tensor[problem.unit_ptr[unit] : problem.unit_ptr[unit + 1]]:
        change += int(undecided[tensor] > 1 and not is_open[tensor]) - int(undecided[tensor] == 1 and is_open[tensor])
    return change


def _schedule(problem: SetProblem, order: IntArray) -> list[list[_Event]] | None:
    """Per step, the tensors of its unit with the slots they hold while open."""
    left = np.diff(problem.tensor_ptr).astype(np.int64)
    slot_of: dict[int, int] = {}
    free = list(range(MAX_SLOTS - 1, -1, -1))
    decided = np.zeros(len(order), dtype=bool)
    steps: list[list[_Event]] = []
    for unit in order.tolist():
        events = []
        for tensor in problem.unit_tensor[problem.unit_ptr[unit] : problem.unit_ptr[unit + 1]].tolist():
            cost_in, cost_out = float(problem.tensor_in[tensor]), float(problem.tensor_out[tensor])
            if cost_in <= 0 and cost_out <= 0:
                continue
            if tensor not in slot_of:
                if not free:
                    return None
                slot_of[tensor] = free.pop()
            left[tensor] -= 1
            producer = int(problem.tensor_unit[problem.tensor_ptr[tensor]])
            closes = bool(left[tensor] == 0)
            events.append(_Event(slot_of[tensor], producer == unit, bool(decided[producer]), closes, cost_in, cost_out))
        # Slots become free only after the step: all its events read the frontier before it.
        free.extend(event.slot for event in events if event.closes)
        decided[unit] = True
        steps.append(events)
    return steps


def _decide(keys: NDArray[np.int64], events: list[_Event], inside: bool) -> tuple[NDArray[np.int64], FloatArray]:
    """The frontiers after one decision, and what it costs, for all frontiers at once."""
    after, paid = keys.copy(), np.zeros(len(keys))
    for event in events:
        shift = DIGIT_BITS * event.slot
        digit = (keys >> shift) & 7
        same, other = (ALL_IN, ALL_OUT) if inside else (ALL_OUT, ALL_IN)
        clash, mixed = digit == other, digit == MIXED
        new = np.where(digit == 0, same, digit)
        if event.is_producer:
            price = event.cost_out if inside else event.cost_in
            paid[clash | mixed] += price
            new[clash | mixed] = SETTLED
        elif event.producer_decided:
            # The producer is where all decided units are: in the set when they are in.
            paid[clash] += event.cost_in if inside else event.cost_out
            new[clash] = SETTLED
        else:
            new[clash] = MIXED
        after &= ~(np.int64(7) << shift)
        if not event.closes:
            after |= new << shift
    return after, paid


class FrontierAnswer(NamedTuple):
    """An upper bound on the price of any set within the limit; the best set when the search was complete."""

    bound: float
    member: BoolArray | None  # None: no set beats the floor, or the search was cut short
    complete: bool


def best_set(
    frontiers: Frontiers,
    problem: SetProblem,
    price: FloatArray,
    limit: float,
    floor: float,
    tolerance: float = 0.0,
    max_labels: int = 3_000_000,
    should_stop: Callable[[], bool] = lambda: False,
) -> FrontierAnswer:
    """The best set of price above `floor` with load at most `limit`. Memory is not looked at.

    Sets that beat the floor by less than `tolerance` may be missed; the bound allows for them.
    """
    time = np.where(np.isfinite(problem.time), problem.time, 0.0)
    core = _core.not_contiguous.Frontiers(frontiers.order, frontiers.ptr, frontiers.child, frontiers.cost)

    def bound_at(multiplier: float, completions: FloatArray) -> float:
        return core.best_completions(time, price, multiplier, completions) + multiplier * limit

    work = np.empty(len(frontiers.cost[0]) + int(frontiers.ptr[-1] - frontiers.ptr[-2]))
    middle = _least_bound(lambda multiplier: bound_at(multiplier, work), time, price, limit)
    multipliers = np.array([middle * step for step in MULTIPLIER_STEPS])
    completions = np.empty((len(multipliers), len(work)))
    bounds = [bound_at(multiplier, completions[k]) for k, multiplier in enumerate(multipliers.tolist())]
    safety = 1e-9 * float(np.abs(price).sum())
    ceiling = min(bounds) + safety
    if ceiling <= floor + tolerance:
        return FrontierAnswer(max(ceiling, floor), None, True)
    slack_limit = limit * (1 + 1e-9)
    blur = 0.5 * max(tolerance, 0.0)
    member = np.zeros(len(frontiers.order), dtype=np.bool_)
    is_complete, bound, worth = core.best_set(
        time, price, multipliers, completions, slack_limit, floor + blur - safety, blur, max_labels, member, should_stop
    )
    if not is_complete:
        return FrontierAnswer(ceiling, None, False)
    return FrontierAnswer(min(ceiling, bound + 2 * safety), member if worth > floor else None, True)


def _least_bound(bound_at: Callable[[float], float], time: FloatArray, price: FloatArray, limit: float) -> float:
    """The price of load with the least bound, which is convex in it: golden-section search."""
    low, high = 0.0, 4.0 * float(np.max(np.abs(price) / np.maximum(time, 1e-9 * time.mean() + 1e-300), initial=0.0))
    total = float(np.maximum(price, 0.0).sum())
    high = min(high, 20.0 * total / limit)
    ratio = (np.sqrt(5.0) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = bound_at(a), bound_at(b)
    for _ in range(24):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = bound_at(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = bound_at(b)
    return (low + high) / 2
