"""``chain``: exact for narrow graphs under ``sequential``, with memory limits: a decoder's blocks one after another.

Ops are taken in their order. A state is where everything stands that later ops still need: devices of groups with ops
or readers to come, and which devices the tensors in use have reached. Without memory limits the shortest way through
the states is the answer. With them a state keeps labels, pairs of cost and memory that no other beats in both. Prices
for memory (a Lagrangian relaxation) tell what each label will cost at least, so that few of them survive, and a first
pass with few labels finds what they have to beat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.budget import Budget
from placewright.evaluate.checking import Fault
from placewright.graph import FloatArray, sums_by_index
from placewright.placers.base import Found, Placer, best_single_device
from placewright.problems import Problem

MOST_STATES = 3000  # beyond these the worst are dropped, and with them a part of the proof
MOST_LABELS = (20, 300, 4000)  # per state, in one pass after the other until nothing has to be dropped
PRICINGS = 80  # at most
TICKS = 1e14  # that a lower bound of the answer has: sums of whole ticks are exact, so equal ways are seen as equal
IMPOSSIBLE = "no packing exists: no assignment fits the devices' memories (proven by dynamic programming)"
OUT_OF_TIME = "the budget ended before the dynamic programme did"
State = tuple[tuple[int, ...], tuple[int, ...]]  # devices of open groups, devices reached by open tensors as bits
Ints = NDArray[np.int64]


class ChainPlacer(Placer):
    """Dynamic programming over open groups; proves its answer unless too much had to be dropped."""

    name = "chain"
    summary = "exact for narrow graphs under 'sequential': dynamic programming with memory limits"
    executions = ("sequential",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        del seed
        return _Search(problem, budget).run()


class Step(NamedTuple):
    """All ways to place one op: from a state before it to one after it, ordered by the state before."""

    source: Ints  # [ways]
    target: Ints
    device: Ints
    cost: FloatArray  # [ways], in ticks
    memory_bytes: FloatArray  # [ways, tracked devices]: what is taken
    n_sources: int
    n_targets: int


class Prices(NamedTuple):
    """Prices of memory, and what is left to pay from each state at these prices at least."""

    per_byte: FloatArray  # [tracked devices], in ticks
    to_go: list[FloatArray]  # before each step and after the last: [states]
    paid: list[FloatArray]  # per step: [ways], with everything after it
    bound: float  # of every way within the limits


class Labels(NamedTuple):
    """Ways to the states after a step, ordered by state; none of a state's is better than another in everything."""

    state: Ints  # [labels]
    cost: FloatArray
    memory_bytes: FloatArray  # [labels, tracked devices]
    parent: Ints  # among the labels before
    device: Ints  # of the op that this step placed


class _Search:
    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        a, g = problem.arrays, problem.graph
        self.n_devices = problem.n_devices
        self.group = problem.group_of_op
        allowed = problem.allowed.copy()
        np.logical_and.at(allowed, self.group, problem.allowed)
        self.options = [np.flatnonzero(allowed[self.group[v]]).tolist() for v in range(problem.n_ops)]
        self.group_bytes = sums_by_index(self.group, problem.memory_bytes, problem.n_ops)
        limits = a.memory_limit_bytes
        self.tracked = np.flatnonzero(limits < problem.memory_bytes.sum()).tolist()
        self.limits = limits[self.tracked]
        times_s = problem.op_device_time_s
        least_s = np.where(np.isfinite(times_s), times_s, np.inf).min(axis=1)
        largest_s = float(times_s[np.isfinite(times_s)].max(initial=0.0)) or 1.0
        self.tick_s = (float(least_s.sum()) or largest_s) / TICKS
        self.time = np.round(times_s / self.tick_s)
        self.rest = np.concatenate([np.cumsum(np.round(least_s / self.tick_s)[::-1])[::-1], [0.0]])
        last_reader = np.array([int(c.max(initial=-1)) for c in np.split(g.consumer_op, g.consumer_ptr[1:-1])])
        self.last_reader = last_reader if g.n_tensors else np.zeros(0, dtype=np.int64)
        self.last_use = np.zeros(problem.n_ops, dtype=np.int64)  # of each group
        np.maximum.at(self.last_use, self.group, np.arange(problem.n_ops))
        for t, u in enumerate(g.tensor_producer.tolist()):
            root = self.group[u]
            self.last_use[root] = max(self.last_use[root], self.last_reader[t])
        self.maker = self.group[g.tensor_producer].tolist()  # group of each tensor's producer
        self.rounding = 0.5 * (problem.n_ops + len(g.consumer_op)) + 1  # ticks that a sum may be wrong by
        single = best_single_device(problem)
        self.upper = math.inf if single is None else single[1] / self.tick_s + self.rounding
        self.best: NDArray[np.int32] | None = None  # takes ``upper``, unless that is a single device's
        self.dropped = math.inf  # what takes part in a state or label that was dropped takes this at least

    def run(self) -> Found:
        steps = self._steps()
        if steps is None:
            return Found(None, note=OUT_OF_TIME)
        if not steps[-1].n_targets:
            return self._judged(self.dropped)
        prices = self._best_prices(steps)
        bound, dropped_states = min(prices.bound, self.dropped), self.dropped
        for most in MOST_LABELS if self.tracked else ():
            if bound >= self.upper - self.rounding:
                break
            self.dropped = dropped_states
            if not self._labelled(steps, prices, most):
                break  # no time for all of it: what was known before counts
            bound = max(bound, min(self.dropped, self.upper - self.rounding))
        return self._judged(bound)

    def _judged(self, bound: float) -> Found:
        """``bound`` is proven but for rounding; infinite if no way at all leads through the states."""
        from placewright.evaluate import check

        if math.isinf(bound) and math.isinf(self.upper):
            return Found(None, infeasible=(Fault("no-packing", IMPOSSIBLE),))
        is_exact = bound >= self.upper - self.rounding
        bound_s = (min(bound, self.upper) - 2 * self.rounding) * self.tick_s
        if self.best is None:
            rival = "was found" if math.isinf(self.upper) else "beats a single device"
            return Found(None, bound=bound_s, note=f"nothing within the memory limits {rival}")
        if check(self.problem, self.best):
            return Found(None, bound=bound_s, note="the best of all assignments breaks a limit of segments")
        note = "proven by dynamic programming" if is_exact else "states were dropped or time was short: not proven"
        return Found(self.best, bound=bound_s, evaluations=1, note=note)

    def _steps(self) -> list[Step] | None:
        """All states and ways between them, memory aside; ``None`` if the time does not allow it."""
        states: dict[State, float] = {((), ()): 0.0}
        self.open_groups: list[int] = []
        self.open_tensors: list[int] = []
        steps = []
        for v in range(self.problem.n_ops):
            if self.budget.expired():
                return None
            step, states = self._step(v, states)
            steps.append(step)
        return steps

    def _step(self, v: int, states: dict[State, float]) -> tuple[Step, dict[State, float]]:
        """Ways to place op ``v`` from ``states`` (with what it took to get there), and the states they lead to."""
        g, group = self.problem.graph, int(self.group[v])
        read = g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]].tolist()
        made = range(int(g.tensor_ptr[v]), int(g.tensor_ptr[v + 1]))
        position = {x: i for i, x in enumerate(self.open_groups)}
        slot = {t: i for i, t in enumerate(self.open_tensors)}
        new_groups = [x for x in dict.fromkeys([*self.open_groups, group]) if self.last_use[x] > v]
        new_tensors = [t for t in [*self.open_tensors, *made] if self.last_reader[t] > v]
        is_new = group not in position
        reached_with: dict[State, float] = {}
        ways: list[tuple[int, State, int, float]] = []
        for number, ((devices, reached), spent) in enumerate(states.items()):
            for d in self.options[v] if is_new else [devices[position[group]]]:
                cost = float(self.time[v, d])
                after = list(reached)
                for t in read:
                    source = devices[position[self.maker[t]]] if self.maker[t] in position else d
                    bits = reached[slot[t]]
                    if source != d and not bits >> d & 1:
                        cost += float(np.rint(self._copy_s(t, source, d, bits) / self.tick_s))
                        after[slot[t]] = bits | 1 << d
                if not spent + cost + self.rest[v + 1] <= self.upper:
                    continue
                where = {x: devices[i] for x, i in position.items()} | {group: d}
                bits_of = {t: after[i] for t, i in slot.items()}
                key: State = (
                    tuple(where[x] for x in new_groups),
                    tuple(bits_of.get(t, 0) for t in new_tensors),
                )
                reached_with[key] = min(spent + cost, reached_with.get(key, math.inf))
                ways.append((number, key, d, cost))
        self.open_groups, self.open_tensors = new_groups, new_tensors
        if len(reached_with) > MOST_STATES:
            order = sorted(reached_with, key=lambda k: reached_with[k])
            self.dropped = min(self.dropped, reached_with[order[MOST_STATES]] + self.rest[v + 1])
            reached_with = {key: reached_with[key] for key in order[:MOST_STATES]}
        number_of = {key: i for i, key in enumerate(reached_with)}
        ways = [way for way in ways if way[1] in number_of]
        device = np.array([way[2] for way in ways], dtype=np.int64)
        memory_bytes = np.zeros((len(ways), len(self.tracked)))
        if is_new:
            for column, d in enumerate(self.tracked):
                memory_bytes[device == d, column] = self.group_bytes[group]
        step = Step(
            source=np.array([way[0] for way in ways], dtype=np.int64),
            target=np.array([number_of[way[1]] for way in ways], dtype=np.int64),
            device=device,
            cost=np.array([way[3] for way in ways]),
            memory_bytes=memory_bytes,
            n_sources=len(states),
            n_targets=len(number_of),
        )
        return step, reached_with

    def _best_prices(self, steps: list[Step]) -> Prices:
        """Raise prices where the cheapest way takes too much, lower them where it leaves room; note what fits."""
        scale = max(1.0, float(self.problem.memory_bytes.sum()))
        per_byte = np.zeros(len(self.tracked))
        best, stride, since = None, 1.0, 0
        for _ in range(PRICINGS):
            prices = _prices(steps, per_byte, self.limits)
            if math.isinf(prices.bound):
                return prices
            best, since = (prices, 0) if best is None or prices.bound > best.bound else (best, since + 1)
            cost, device, taken = _cheapest_way(steps, prices)
            excess = (taken - self.limits) / scale
            if (excess <= 0).all():
                self._offer(cost, device)
            goal = min(self.upper, 1.05 * best.bound + 1)
            uphill = np.where((per_byte > 0) | (excess > 0), excess, 0.0)
            if not uphill.any() or best.bound >= self.upper - self.rounding or self.budget.expired():
                break
            if since >= 5:
                stride, since = stride / 2, 0
            per_byte = np.maximum(
                0.0, per_byte + stride * (goal - prices.bound) / float(uphill @ uphill) * uphill / scale
            )
        assert best is not None
        return best

    def _offer(self, cost: float, device: NDArray[np.int32]) -> None:
        if cost < self.upper:
            self.upper, self.best = cost, device

    def _labelled(self, steps: list[Step], prices: Prices, most: int) -> bool:
        """One pass over all ops with so many labels per state; whether time allowed it."""
        one = np.zeros(1, dtype=np.int64)
        labels = Labels(one, np.zeros(1), np.zeros((1, len(self.tracked))), one, one)
        history = []
        for number, step in enumerate(steps):
            if self.budget.expired():
                return False
            labels = self._extended(labels, step, prices, number + 1, most)
            history.append(labels)
        if not len(labels.cost):
            return True
        at = int(labels.cost.argmin())
        cost = float(labels.cost[at])
        device = np.empty(len(steps), dtype=np.int32)
        for v in range(len(steps) - 1, -1, -1):
            device[v] = history[v].device[at]
            at = int(history[v].parent[at])
        self._offer(cost, device)
        return True

    def _extended(self, labels: Labels, step: Step, prices: Prices, number: int, most: int) -> Labels:
        first = np.searchsorted(labels.state, np.arange(step.n_sources + 1))
        counts = np.diff(first)[step.source]
        way = np.repeat(np.arange(len(step.source)), counts)
        parent = first[step.source[way]] + np.arange(len(way)) - np.repeat(np.cumsum(counts) - counts, counts)
        new = Labels(
            state=step.target[way],
            cost=labels.cost[parent] + step.cost[way],
            memory_bytes=labels.memory_bytes[parent] + step.memory_bytes[way],
            parent=parent,
            device=step.device[way],
        )
        least = np.maximum(
            new.cost + prices.to_go[number][new.state] + (new.memory_bytes - self.limits) @ prices.per_byte,
            new.cost + self.rest[number],
        )
        kept = np.flatnonzero((new.memory_bytes <= self.limits).all(axis=1) & (least < self.upper - self.rounding))
        new, least = _taken(new, kept), least[kept]
        kept = _undominated(new, self.budget.expired)
        new, least = _taken(new, kept), least[kept]
        return self._fewer(new, least, most)

    def _fewer(self, labels: Labels, least: FloatArray, most: int) -> Labels:
        """The most promising labels of each state."""
        if not len(least) or np.bincount(labels.state).max() <= most:
            return labels
        order = np.lexsort((least, labels.state))
        state = labels.state[order]
        rank = np.arange(len(order)) - np.searchsorted(state, state)
        self.dropped = min(self.dropped, float(least[order[rank >= most]].min()))
        return _taken(labels, np.sort(order[rank < most]))

    def _copy_s(self, tensor: int, source: int, target: int, reached: int) -> float:
        a = self.problem.arrays
        if a.direct[source, target] >= 0:
            return float(a.copy_s[tensor, a.direct[source, target]])
        seconds = 0.0
        is_in_host = any(reached >> d & 1 and a.direct[source, d] < 0 for d in range(self.n_devices))
        if not is_in_host and a.to_host[source] >= 0:
            seconds += float(a.copy_s[tensor, a.to_host[source]])
        if a.from_host[target] >= 0:
            seconds += float(a.copy_s[tensor, a.from_host[target]])
        return seconds


def _prices(steps: list[Step], per_byte: FloatArray, limits: FloatArray) -> Prices:
    to_go, paid = [np.zeros(steps[-1].n_targets)], []
    for step in reversed(steps):
        costs = step.cost + step.memory_bytes @ per_byte + to_go[-1][step.target]
        least = np.full(step.n_sources, np.inf)
        starts = np.flatnonzero(np.diff(step.source, prepend=-1))
        if len(starts):
            least[step.source[starts]] = np.minimum.reduceat(costs, starts)
        to_go.append(least)
        paid.append(costs)
    to_go.reverse()
    paid.reverse()
    return Prices(per_byte, to_go, paid, float(to_go[0][0] - limits @ per_byte))


def _cheapest_way(steps: list[Step], prices: Prices) -> tuple[float, NDArray[np.int32], FloatArray]:
    """Its cost without prices, its devices, and the memory it takes."""
    device = np.empty(len(steps), dtype=np.int32)
    cost, state, taken = 0.0, 0, np.zeros(len(prices.per_byte))
    for v, step in enumerate(steps):
        first, end = np.searchsorted(step.source, (state, state + 1))
        way = first + int(prices.paid[v][first:end].argmin())
        device[v] = step.device[way]
        cost += float(step.cost[way])
        taken += step.memory_bytes[way]
        state = int(step.target[way])
    return cost, device, taken


def _undominated(labels: Labels, should_stop: Callable[[], bool]) -> Ints:
    """Labels that no other of the same state beats or equals in cost and all memories, ordered by state."""
    order = np.lexsort((*labels.memory_bytes.T[::-1], labels.cost, labels.state))
    is_kept = np.empty(len(order), dtype=np.bool_)
    _core.sequential.mark_undominated(
        labels.state[order].astype(np.int32), labels.memory_bytes[order], is_kept, should_stop
    )
    return order[is_kept]


def _taken(labels: Labels, index: Ints) -> Labels:
    return Labels._make(column[index] for column in labels)
