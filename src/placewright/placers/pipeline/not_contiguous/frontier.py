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
from numba import njit
from numpy.typing import NDArray

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


@njit(cache=True, nogil=True)
def _completions(
    order: IntArray,
    ptr: NDArray[np.int64],
    child: IntArray,
    cost: FloatArray,
    time: FloatArray,
    price: FloatArray,
    multiplier: float,
    best: FloatArray,
) -> float:
    """best[state] = largest (price - multiplier * load) still to be had from the state; returns the root's."""
    steps = len(order)
    best[ptr[steps] : ptr[steps + 1]] = 0.0
    for step in range(steps - 1, -1, -1):
        unit = order[step]
        gain = price[unit] - multiplier * time[unit]
        for state in range(ptr[step], ptr[step + 1]):
            value = best[child[0, state]] - multiplier * cost[0, state]
            if child[1, state] >= 0:
                value = max(value, best[child[1, state]] - multiplier * cost[1, state] + gain)
            best[state] = value
    return best[0]


@njit(cache=True, nogil=True)
def _extend(
    state: IntArray,
    load: FloatArray,
    worth: FloatArray,
    hope: FloatArray,
    child: IntArray,
    cost: FloatArray,
    unit_time: float,
    unit_price: float,
    limit: float,
    multipliers: FloatArray,
    completions: FloatArray,
    floor: float,
    blur: float,
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray, BoolArray]:
    """Decide one unit for every label: the labels after it that are within the limit, may beat `floor` and are not
    dominated, with the label each came from and whether the unit went in.

    A label that is no lighter than another of its state, and worth at most `blur` more, is merged into that one, whose
    `hope` then covers both: worth <= hope <= worth + blur, however many merges there are on the way.
    """
    count = len(state)
    new_state = np.empty(2 * count, dtype=np.int32)
    new_load = np.empty(2 * count)
    new_worth = np.empty(2 * count)
    new_hope = np.empty(2 * count)
    source = np.empty(2 * count, dtype=np.int32)
    choice = np.empty(2 * count, dtype=np.bool_)
    made = 0
    for i in range(count):
        for side in range(2):
            target = child[side, state[i]]
            if target < 0:
                continue
            total = load[i] + cost[side, state[i]] + (unit_time if side else 0.0)
            gained = unit_price if side else 0.0
            value = hope[i] + gained
            alive = total <= limit
            for k in range(len(multipliers)):
                if not alive:
                    break
                alive = value + completions[k, target] + multipliers[k] * (limit - total) > floor
            if alive:
                new_state[made], new_load[made] = target, total
                new_worth[made], new_hope[made] = worth[i] + gained, value
                source[made], choice[made] = i, side == 1
                made += 1
    by_load = np.argsort(new_load[:made], kind="mergesort")
    by_state = np.argsort(new_state[:made][by_load], kind="mergesort")
    rank = by_load[by_state]
    kept = 0
    keep = np.empty(made, dtype=np.int64)
    for place in range(made):
        i = rank[place]
        if kept and new_state[keep[kept - 1]] == new_state[i] and new_hope[i] <= new_worth[keep[kept - 1]] + blur:
            new_hope[keep[kept - 1]] = max(new_hope[keep[kept - 1]], new_hope[i])
            continue
        keep[kept] = i
        kept += 1
    keep = keep[:kept]
    return new_state[keep], new_load[keep], new_worth[keep], new_hope[keep], source[keep], choice[keep]


def _best_labels(
    frontiers: Frontiers,
    time: FloatArray,
    price: FloatArray,
    limit: float,
    multipliers: FloatArray,
    completions: FloatArray,
    floor: float,
    blur: float,
    max_labels: int,
    should_stop: Callable[[], bool],
) -> tuple[bool, float, float, BoolArray]:
    """(complete, bound, worth, set): nothing with price above `floor` is worth more than the bound, which is at most
    `blur` above the worth of the set found.
    """
    member = np.zeros(len(frontiers.order), dtype=np.bool_)
    state, load, worth, hope = np.zeros(1, dtype=np.int32), np.zeros(1), np.zeros(1), np.zeros(1)
    history: list[tuple[IntArray, BoolArray]] = []
    used = 0
    for unit in frontiers.order.tolist():
        state, load, worth, hope, source, choice = _extend(
            state, load, worth, hope, frontiers.child, frontiers.cost,
            time[unit], price[unit], limit, multipliers, completions, floor, blur,
        )  # fmt: skip
        history.append((source, choice))
        used += len(state)
        if len(state) == 0:
            return True, floor, -np.inf, member
        if used > max_labels or should_stop():
            return False, np.inf, -np.inf, member
    label = int(np.argmax(worth))
    best = float(worth[label])
    for unit, (source, choice) in zip(reversed(frontiers.order.tolist()), reversed(history), strict=True):
        member[unit] = choice[label]
        label = int(source[label])
    return True, max(floor, float(hope.max())), best, member


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

    def bound_at(multiplier: float, completions: FloatArray) -> float:
        root = _completions(
            frontiers.order, frontiers.ptr, frontiers.child, frontiers.cost, time, price, multiplier, completions
        )
        return root + multiplier * limit

    work = np.empty(len(frontiers.cost[0]) + int(frontiers.ptr[-1] - frontiers.ptr[-2]))
    middle = _least_bound(lambda multiplier: bound_at(multiplier, work), time, price, limit)
    multipliers = np.array([middle * step for step in MULTIPLIER_STEPS])
    completions = np.empty((len(multipliers), len(work)))
    bounds = [bound_at(multiplier, completions[k]) for k, multiplier in enumerate(multipliers)]
    safety = 1e-9 * float(np.abs(price).sum())
    ceiling = min(bounds) + safety
    if ceiling <= floor + tolerance:
        return FrontierAnswer(max(ceiling, floor), None, True)
    slack_limit = limit * (1 + 1e-9)
    blur = 0.5 * max(tolerance, 0.0)
    complete, bound, worth, member = _best_labels(
        frontiers,
        time,
        price,
        slack_limit,
        multipliers,
        completions,
        floor + blur - safety,
        blur,
        max_labels,
        should_stop,
    )
    if not complete:
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
