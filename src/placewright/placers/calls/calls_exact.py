"""``calls-exact``: latency under ``calls`` by search above and labels on ideals below, until they meet."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placewright.budget import OPTIMAL_GAP, Budget
from placewright.evaluate import evaluate_many, lower_bound
from placewright.evaluate.checking import Fault
from placewright.evaluate.judging import find_pieces
from placewright.placers.base import Found, Placer
from placewright.placers.baselines.topo import TopoPlacer
from placewright.placers.calls.anneal import anneal
from placewright.placers.calls.enumeration import enumerate_placements
from placewright.placers.calls.greedy import greedy_placements
from placewright.placers.calls.groups import groups_of
from placewright.placers.calls.ladder import bounding_steps
from placewright.placers.pipeline.dp import DpPlacer
from placewright.problems import Problem

_GREEDY_ORDERS = 16
_FIRST_STEPS, _ROUND_STEPS = 3000, 20_000
_PATIENCE = 6  # rounds of annealing without gain, each longer than the one before
_MOST_ENUMERATED_OPS, _MOST_NODES = 40, 100_000


class CallsExactPlacer(Placer):
    """The best placement for any number of calls per accelerator, with a proven bound, anytime.

    The bound is the optimum of a relaxation in which every call has an accelerator of its own. It is exact wherever
    that optimum needs no more calls than there are equal accelerators. Small problems are enumerated besides, which
    is exact for every problem. ``slots`` limits the calls per accelerator in the placements looked for; the bound
    holds for any number.
    """

    name = "calls-exact"
    summary = "least latency of accelerators called like functions, with bound and gap at any time"
    executions = ("calls",)

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots

    def warm_up(self, problem: Problem) -> None:
        from placewright.api import load

        small = load("zoo:chain?ops=3", cluster="p100x2", execution="calls")
        self.search(small, Budget(60.0), 0)
        groups, start = groups_of(small), np.zeros(small.n_ops, dtype=np.int32)
        anneal(small, groups, start, 10, 0.1, 0, 1, lambda: False)
        enumerate_placements(small, groups, math.inf, 100, lambda: False)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        return _Search(problem, budget, seed, self.slots).run()


class _Search:
    def __init__(self, problem: Problem, budget: Budget, seed: int, slots: int | None) -> None:
        self.problem, self.budget, self.seed, self.slots = problem, budget, seed, slots
        self.groups = groups_of(problem)
        self.device: NDArray[np.int32] | None = None
        self.value, self.bound, self.proof = math.inf, lower_bound(problem), "critical path"
        self.evaluations = 0

    def run(self) -> Found:
        self._starts()
        self._anneal(self._first(), _FIRST_STEPS, 0.05, 0)
        for step in bounding_steps(self.problem, self.groups, lambda: self.value, self.budget.expired, self.seed):
            self._raise_bound(step.bound, step.note)
            if step.device_of_op is not None:
                self._offer(step.device_of_op[None, :])
                self._anneal(step.device_of_op, _FIRST_STEPS, 0.0, 1)
            if self._is_closed() or self.budget.expired():
                break
        if not self._is_closed() and self.problem.n_ops <= _MOST_ENUMERATED_OPS:
            self._enumerate()
        self._rounds()
        if self.device is None and math.isinf(self.bound):
            text = "no placement fits: memory limits and what may run where leave none (proven by search)"
            return Found(None, evaluations=self.evaluations, infeasible=(Fault("no-packing", text),))
        note = f"bound by {self.proof}"
        if self.device is None:
            return Found(None, evaluations=self.evaluations, note=f"no valid placement was found in the time; {note}")
        assert self.bound <= self.value * (1 + OPTIMAL_GAP), f"{self.proof} gave {self.bound} for {self.value}"
        return Found(self.device, bound=min(self.bound, self.value), evaluations=self.evaluations, note=note)

    def _is_closed(self) -> bool:
        return self.bound >= self.value * (1 - OPTIMAL_GAP)

    def _raise_bound(self, bound: float, proof: str) -> None:
        if bound > self.bound:
            self.bound, self.proof = bound, proof
            self.budget.report(self.value, self.bound, self.evaluations, note=proof)

    def _offer(self, rows: NDArray[np.int32]) -> None:
        """Keep the best valid row if it is better than what there is."""
        if not len(rows):
            return
        result = evaluate_many(self.problem, rows)
        self.evaluations += len(rows)
        values = np.where(result.is_valid, result.value, np.inf)
        for i in np.argsort(values, kind="stable").tolist():
            if not values[i] < self.value:
                return
            if self.slots is None or most_pieces(self.problem, rows[i]) <= self.slots:
                self.device, self.value = rows[i].astype(np.int32), float(values[i])
                self.budget.report(self.value, self.bound, self.evaluations)
                return

    def _starts(self) -> None:
        n_ops, n_devices = self.problem.n_ops, self.problem.n_devices
        self._offer(np.repeat(np.arange(n_devices, dtype=np.int32)[:, None], n_ops, axis=1))
        self._offer(greedy_placements(self.problem, _GREEDY_ORDERS, self.seed, self.budget.expired))
        pipeline = self.problem.for_objective("throughput", "pipeline")
        found = [TopoPlacer().search(self.problem, self.budget, self.seed).device_of_op]
        if not self.budget.expired():
            part = self.budget.part(max(1.0, self.budget.seconds / 20))
            found.append(DpPlacer().search(pipeline, part, self.seed).device_of_op)
        for device in found:
            if device is not None:
                self._offer(device[None, :])

    def _first(self) -> NDArray[np.int32]:
        """Where the first annealing starts: the best start, or every op on its fastest device."""
        if self.device is not None:
            return self.device
        fastest = np.where(self.groups.allowed, self.groups.time_s, np.inf).argmin(axis=1)
        return np.asarray(fastest[self.groups.of_op], dtype=np.int32)

    def _anneal(self, start: NDArray[np.int32], steps: int, heat: float, number: int) -> bool:
        """True if it found something better."""
        if self.budget.evaluations is not None:
            steps = min(steps, self.budget.evaluations - self.evaluations)
        if steps <= 0 or self.budget.expired():
            return False
        before = self.value
        seed = (self.seed * 7919 + number) % 2**32
        found = anneal(self.problem, self.groups, start, steps, heat, seed, self.slots, self.budget.expired)
        self.evaluations += found.steps
        if found.is_valid and found.value < self.value:
            self._offer(found.device_of_op[None, :])
        return self.value < before

    def _enumerate(self) -> None:
        found = enumerate_placements(self.problem, self.groups, self.value, _MOST_NODES, self.budget.expired)
        if found.device_of_op is not None:
            self._offer(found.device_of_op[None, :])
        if found.is_complete:
            self._raise_bound(found.value, "enumeration of all placements")

    def _rounds(self) -> None:
        """Anneal again and again, from the best placement and from elsewhere."""
        idle, number = 0, 2
        while idle < _PATIENCE and not self._is_closed() and not self.budget.expired():
            if self.budget.evaluations is not None and self.evaluations >= self.budget.evaluations:
                return
            heat = (0.02, 0.2, 0.005)[number % 3]
            gained = self._anneal(self._first(), _ROUND_STEPS * 2**idle, heat, number)
            idle, number = 0 if gained else idle + 1, number + 1


def most_pieces(problem: Problem, device: NDArray[np.int32]) -> int:
    """Calls of the accelerator that is called most often."""
    _, group = find_pieces(problem, device)
    calls = [len(np.unique(group[device == d])) for d in np.flatnonzero(~problem.arrays.is_host).tolist()]
    return max(calls, default=0)
