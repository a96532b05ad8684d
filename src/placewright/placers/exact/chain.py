"""``chain``: exact for narrow graphs under ``sequential``, with memory limits: a decoder's blocks one after another.

Ops are taken in their order. A state is where everything stands that later ops still need: devices of groups with ops
or readers to come, and which devices the tensors in use have reached. Each state keeps the pairs of cost and memory
that no other beats in both. Pure NumPy: nothing to compile, so the answer is there in a second or two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.graph import FloatArray, sums_by_index
from placewright.placers.base import Found, Placer, best_single_device
from placewright.problem import Problem

MOST_STATES = 3000  # beyond these the worst are dropped, and with them the proof
MOST_LABELS = 2000  # per state
State = tuple[tuple[int, ...], tuple[int, ...]]  # devices of open groups, devices reached by open tensors as bits


class ChainPlacer(Placer):
    """Dynamic programming over open groups; proves its answer unless a state had to be dropped."""

    name = "chain"
    summary = "exact for narrow graphs under 'sequential': dynamic programming with memory limits"
    executions = ("sequential",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        del seed
        return _Search(problem, budget).run()


class Labels(NamedTuple):
    """Ways to reach a state, none better than another in cost and all memories."""

    cost_s: FloatArray  # [labels]
    memory_bytes: FloatArray  # [labels, tracked devices]
    parent_state: NDArray[np.int32]  # [labels], into the step before
    parent_label: NDArray[np.int32]
    device: NDArray[np.int32]  # [labels]: of the op that this step placed


class _Search:
    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        a, g = problem.arrays, problem.graph
        self.n_devices = problem.n_devices
        self.group = problem.group_of_op
        allowed = problem.allowed.copy()
        np.logical_and.at(allowed, self.group, problem.allowed)
        self.options = [np.flatnonzero(allowed[self.group[v]]).tolist() for v in range(problem.n_ops)]
        self.time_s = problem.op_device_time_s
        self.group_bytes = sums_by_index(self.group, problem.memory_bytes, problem.n_ops)
        limits = a.memory_limit_bytes
        self.tracked = np.flatnonzero(limits < problem.memory_bytes.sum()).tolist()
        self.limits = limits[self.tracked]
        least = np.where(np.isfinite(self.time_s), self.time_s, np.inf).min(axis=1)
        self.rest_s = np.concatenate([np.cumsum(least[::-1])[::-1], [0.0]])
        last_reader = np.array([int(c.max(initial=-1)) for c in np.split(g.consumer_op, g.consumer_ptr[1:-1])])
        self.last_reader = last_reader if g.n_tensors else np.zeros(0, dtype=np.int64)
        self.last_use = np.zeros(problem.n_ops, dtype=np.int64)  # of each group
        np.maximum.at(self.last_use, self.group, np.arange(problem.n_ops))
        for t, u in enumerate(g.tensor_producer.tolist()):
            root = self.group[u]
            self.last_use[root] = max(self.last_use[root], self.last_reader[t])
        self.maker = self.group[g.tensor_producer].tolist()  # group of each tensor's producer
        self.is_exact = True

    def run(self) -> Found:
        single = best_single_device(self.problem)
        self.upper_s = math.inf if single is None else single[1] * (1 + 1e-9)
        start: State = ((), ())
        width = len(self.tracked)
        zero = np.zeros(1, dtype=np.int32)
        states = {start: Labels(np.zeros(1), np.zeros((1, width)), zero, zero, zero)}
        self.open_groups: list[int] = []
        self.open_tensors: list[int] = []
        history: list[list[Labels]] = []
        for v in range(self.problem.n_ops):
            if self.budget.expired():
                return Found(None, note="the budget ended before the dynamic programme did")
            states = self._step(v, states)
            if not states:
                return Found(None, note="nothing within the memory limits beats a single device")
            history.append(list(states.values()))
        final = history[-1]
        best = min(range(len(final)), key=lambda s: float(final[s].cost_s.min()))
        label = int(final[best].cost_s.argmin())
        value = float(final[best].cost_s[label])
        device = np.empty(self.problem.n_ops, dtype=np.int32)
        at = best
        for v in range(self.problem.n_ops - 1, -1, -1):
            labels = history[v][at]
            device[v] = labels.device[label]
            at, label = int(labels.parent_state[label]), int(labels.parent_label[label])
        return self._judged(device, value)

    def _judged(self, device: NDArray[np.int32], value: float) -> Found:
        from placewright.evaluate import check

        bound = value * (1 - 1e-12) if self.is_exact else None
        if check(self.problem, device):
            return Found(None, bound=bound, note="the best of all assignments breaks a limit of segments")
        note = "proven by dynamic programming" if self.is_exact else "states were dropped: not proven"
        return Found(device, bound=bound, evaluations=1, note=note)

    def _step(self, v: int, states: dict[State, Labels]) -> dict[State, Labels]:
        g, group = self.problem.graph, int(self.group[v])
        read = g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]].tolist()
        made = range(int(g.tensor_ptr[v]), int(g.tensor_ptr[v + 1]))
        position = {x: i for i, x in enumerate(self.open_groups)}
        slot = {t: i for i, t in enumerate(self.open_tensors)}
        new_groups = [x for x in dict.fromkeys([*self.open_groups, group]) if self.last_use[x] > v]
        new_tensors = [t for t in [*self.open_tensors, *made] if self.last_reader[t] > v]
        gathered: dict[State, list[Labels]] = {}
        is_new = group not in position
        for number, ((devices, reached), labels) in enumerate(states.items()):
            for d in self.options[v] if is_new else [devices[position[group]]]:
                cost = float(self.time_s[v, d])
                after = list(reached)
                for t in read:
                    source = devices[position[self.maker[t]]] if self.maker[t] in position else d
                    bits = reached[slot[t]]
                    if source != d and not bits >> d & 1:
                        cost += self._copy_s(t, source, d, bits)
                        after[slot[t]] = bits | 1 << d
                kept = labels.cost_s + cost + self.rest_s[v + 1] <= self.upper_s
                memory = labels.memory_bytes
                if is_new and d in self.tracked:
                    memory = memory.copy()
                    at = self.tracked.index(d)
                    memory[:, at] += self.group_bytes[group]
                    kept &= memory[:, at] <= self.limits[at]
                index = np.flatnonzero(kept)
                if not len(index):
                    continue
                where = {x: devices[i] for x, i in position.items()} | {group: d}
                bits_of = {t: after[i] for t, i in slot.items()}
                key: State = (
                    tuple(where[x] for x in new_groups),
                    tuple(bits_of.get(t, 0) for t in new_tensors),
                )
                gathered.setdefault(key, []).append(
                    Labels(
                        labels.cost_s[index] + cost,
                        memory[index],
                        np.full(len(index), number, dtype=np.int32),
                        index.astype(np.int32),
                        np.full(len(index), d, dtype=np.int32),
                    )
                )
        self.open_groups, self.open_tensors = new_groups, new_tensors
        return self._kept(gathered)

    def _kept(self, gathered: dict[State, list[Labels]]) -> dict[State, Labels]:
        merged = {key: self._pareto(_joined(parts)) for key, parts in gathered.items()}
        if len(merged) > MOST_STATES:
            self.is_exact = False
            best = sorted(merged, key=lambda k: float(merged[k].cost_s.min()))[:MOST_STATES]
            merged = {key: merged[key] for key in best}
        return merged

    def _pareto(self, labels: Labels) -> Labels:
        order = np.lexsort((labels.cost_s, *labels.memory_bytes.T[::-1])) if self.tracked else labels.cost_s.argsort()
        if not self.tracked:
            chosen = order[:1]
        elif len(self.tracked) == 1:
            cost = labels.cost_s[order]
            before = np.concatenate([[np.inf], np.minimum.accumulate(cost)[:-1]])
            chosen = order[cost < before]
        else:
            chosen = self._undominated(labels, order)
        if len(chosen) > MOST_LABELS:
            self.is_exact = False
            chosen = chosen[np.linspace(0, len(chosen) - 1, MOST_LABELS).astype(np.int64)]
        return _taken(labels, chosen)

    def _undominated(self, labels: Labels, order: NDArray[np.int64]) -> NDArray[np.int64]:
        kept: list[int] = []
        rows = np.column_stack([labels.cost_s, labels.memory_bytes])
        front = np.empty((0, rows.shape[1]))
        for i in order.tolist():
            if not len(front) or not (front <= rows[i]).all(axis=1).any():
                kept.append(i)
                front = np.vstack([front, rows[i]])
        return np.array(kept, dtype=np.int64)

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


def _joined(parts: list[Labels]) -> Labels:
    return Labels._make(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _taken(labels: Labels, index: NDArray[np.int64]) -> Labels:
    return Labels._make(column[index] for column in labels)
