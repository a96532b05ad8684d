"""Lower bounds by column generation: can the units be covered by one admissible set per device?

For a target load T, the devices of a kind choose among all sets whose load is at most T. The linear
relaxation of that choice knows nothing of which device is which, so equal devices cost it nothing, and every
set in it obeys the load limit as a whole, so it sees both packing and communication. If the relaxation is
infeasible, no assignment has value T or less. The certificate is a price per unit: prices add up to more than
the devices can collect, each with its best admissible set.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import highspy
import numpy as np

from placewright.placers.assignment.frontier import best_set, build_frontiers
from placewright.placers.assignment.implications import Implications
from placewright.placers.assignment.linear import INF, new_highs
from placewright.placers.assignment.pricing import SetProblem, SetProgramme, search_set, set_load, set_problem
from placewright.placers.assignment.units import BoolArray, FloatArray, IntArray, Units

Verdict = Literal["infeasible", "feasible", "unknown"]
HEURISTIC_ITERATIONS_PER_UNIT, MOST_HEURISTIC_ITERATIONS = 150, 100_000
SMOOTHING = 0.7  # weight of the best prices so far; damps the swings of the master's duals
TOLERANCE = 1e-7
MAX_LABELS = 3_000_000


class _Column(NamedTuple):
    kind: int
    load: float


class ColumnGeneration:
    """Holds the sets found so far; `decide` answers one target and keeps what it learned for the next."""

    def __init__(
        self, units: Units, overlapped: bool, facts: Implications | None, seed: int, should_stop: Callable[[], bool]
    ) -> None:
        """`units` must be folded; `facts` must hold for every target asked later."""
        self.units, self.should_stop = units, should_stop
        self.kinds = [kind for kind in range(len(units.kind_count)) if units.kind_count[kind] > 0]
        self.problems: dict[int, SetProblem] = {kind: set_problem(units, kind, overlapped) for kind in self.kinds}
        self.programmes: dict[int, SetProgramme] = {}
        self.facts = facts
        # The walk over frontiers limits compute plus copies; an overlapped load is the larger of the two.
        self.frontiers = {
            kind: None if overlapped else build_frontiers(self.problems[kind], should_stop=should_stop)
            for kind in self.kinds
        }
        self.looseness = 0.0
        self.rng = np.random.default_rng(seed)
        self.known: set[tuple[int, bytes]] = set()
        self.columns: list[_Column] = []
        self.members: list[BoolArray] = []
        self.master = self._new_master()
        self.center: FloatArray = self.weight.copy()  # prices in proportion to work are good from the start

    def _new_master(self) -> Any:
        """Rows: every unit once, every kind's devices. The objective is the work left over or covered twice."""
        highs = new_highs()
        time_on = np.where(np.isfinite(self.units.forward_time), self.units.forward_time, np.inf)
        work = np.min(time_on[:, self.kinds], axis=1)
        self.weight = np.where(np.isfinite(work), work, 0.0)
        self.weight = self.weight + 0.02 * self.weight.mean() + 1e-9
        for _ in range(self.units.unit_count):
            highs.addRow(1.0, 1.0, 0, [], [])
        for kind in self.kinds:
            highs.addRow(-INF, float(self.units.kind_count[kind]), 0, [], [])
        for unit, cost in enumerate(self.weight.tolist()):
            for sign in (1.0, -1.0):
                highs.addCol(cost, 0.0, INF, 1, np.array([unit], dtype=np.int32), np.array([sign]))
        return highs

    def add_set(self, kind: int, member: BoolArray) -> bool:
        key = (kind, np.packbits(member).tobytes())
        if key in self.known or not member.any():
            return False
        self.known.add(key)
        rows = np.append(np.flatnonzero(member), self.units.unit_count + self.kinds.index(kind)).astype(np.int32)
        self.master.addCol(0.0, 0.0, INF, len(rows), rows, np.ones(len(rows)))
        self.columns.append(_Column(kind, set_load(self.problems[kind], member)))
        self.members.append(member.copy())
        return True

    def add_assignment(self, device_of_unit: IntArray) -> None:
        for device, kind in enumerate(self.units.kind_of_device.tolist()):
            self.add_set(kind, device_of_unit == device)

    def _set_target(self, target: float) -> None:
        first = 2 * self.units.unit_count
        for i, column in enumerate(self.columns):
            self.master.changeColBounds(first + i, 0.0, INF if column.load <= target * (1 + 1e-9) else 0.0)

    def decide(self, target: float, deadline: float) -> Verdict:
        """Whether every device load can be at most `target`, as far as the relaxation can tell.

        Prices are tried on the line from the best ones so far to the master's: the master's alone swing wildly.
        """
        self._set_target(target)
        tolerance = TOLERANCE * float(self.weight.sum())
        finest = 2e-4 * float(self.weight.sum())
        self.looseness = 100 * finest  # far from a proof, pricing need not be exact
        smoothing, best_surplus = SMOOTHING, -np.inf
        while time.perf_counter() < deadline and not self.should_stop():
            self.master.setOptionValue(
                "time_limit", self.master.getRunTime() + max(0.01, deadline - time.perf_counter())
            )
            self.master.run()
            if self.master.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return "unknown"
            if self.master.getInfo().objective_function_value <= tolerance:
                return "feasible"
            dual = np.array(self.master.getSolution().row_dual)[: self.units.unit_count]
            trial = smoothing * self.center + (1 - smoothing) * dual
            surplus, added = self._surplus(trial, target, deadline)
            if surplus > best_surplus:
                best_surplus, self.center = surplus, trial
            if surplus > tolerance:
                return "infeasible"
            if not added and smoothing == 0.0 and self.looseness <= finest:
                return "unknown"
            self.looseness = max(finest, min(self.looseness if added else 0.3 * self.looseness, -0.15 * best_surplus))
            smoothing = SMOOTHING if added else (smoothing / 2 if smoothing > 0.1 else 0.0)
        return "unknown"

    def _surplus(self, price: FloatArray, target: float, deadline: float) -> tuple[float, bool]:
        """(what the prices exceed all that the devices can collect by, whether a new set was found)."""
        surplus, added = float(price.sum()), False
        worth = np.array(self.members) @ price if self.members else np.zeros(0)
        fits = np.array([column.load <= target * (1 + 1e-9) for column in self.columns], dtype=bool)
        kind_of_column = np.array([column.kind for column in self.columns])
        for kind in self.kinds:
            known = np.flatnonzero(fits & (kind_of_column == kind)) if len(worth) else np.zeros(0, dtype=int)
            best = known[np.argmax(worth[known])] if len(known) else -1
            start = self.members[best] if best >= 0 else np.zeros(self.units.unit_count, dtype=bool)
            bound, member = self._best_set(kind, price, target, start, deadline)
            surplus -= int(self.units.kind_count[kind]) * max(bound, 0.0)
            added |= member is not None and self.add_set(kind, member)
        return surplus, added

    def _best_set(
        self, kind: int, price: FloatArray, target: float, start: BoolArray, deadline: float
    ) -> tuple[float, BoolArray | None]:
        """(an upper bound on what a device of the kind can collect, a set better than `start` if one was found)."""
        problem = self.problems[kind]
        usable = np.isfinite(problem.time)
        priced = np.where(usable, price, 0.0)
        floor = max(0.0, float(price[start].sum()))
        found = start.copy()
        slope = 2.0 * np.abs(priced).sum() / max(target * self.units.device_count, 1e-300)
        iterations = min(HEURISTIC_ITERATIONS_PER_UNIT * self.units.unit_count, MOST_HEURISTIC_ITERATIONS)
        annealed = search_set(problem, priced, target, found, int(self.rng.integers(1 << 30)), iterations, slope)
        member = found if annealed > floor else None
        floor = max(floor, annealed)
        tolerance = self.looseness / self.units.device_count
        frontiers = self.frontiers[kind]
        if frontiers is not None:
            answer = best_set(frontiers, problem, priced, target, floor, tolerance, MAX_LABELS, self.should_stop)
            heavy = answer.member is not None and problem.memory[answer.member].sum() > problem.memory_limit
            if not heavy:
                return answer.bound, answer.member if answer.member is not None else member
        exact = self._programme(kind).solve(
            priced,
            target,
            deadline - time.perf_counter(),
            lambda primal, dual: dual <= floor + tolerance or dual - primal <= tolerance or self.should_stop(),
        )
        if exact.member is not None and exact.price > floor and set_load(problem, exact.member) <= target * (1 + 1e-9):
            member = exact.member
        return max(exact.bound, floor), member

    def _programme(self, kind: int) -> SetProgramme:
        if kind not in self.programmes:
            count = self.units.unit_count
            implied = np.zeros((0, 2), dtype=np.int32) if self.facts is None else self.facts.pairs[kind]
            allowed = np.ones(count, dtype=bool) if self.facts is None else self.facts.allowed[:, kind]
            self.programmes[kind] = SetProgramme(self.problems[kind], implied, allowed)
        return self.programmes[kind]
