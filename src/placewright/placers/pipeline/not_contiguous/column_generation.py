"""Lower bounds by column generation: can the units be covered by one admissible set per device?

For a target load T, the devices of a kind choose among all sets whose load is at most T. The linear
relaxation of that choice knows nothing of which device is which, so equal devices cost it nothing, and every
set in it obeys the load limit as a whole, so it sees both packing and communication. If the relaxation is
infeasible, no assignment has value T or less. The certificate is a price per unit: prices add up to more than
the devices can collect, each with its best admissible set. Any prices may be tried, so the search for them is free to
be clever: it begins with one price for all units that look alike, and moves within a box around the best so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import highspy
import numpy as np

from placewright.placers.pipeline.not_contiguous.frontier import Frontiers, best_set, build_frontiers
from placewright.placers.pipeline.not_contiguous.implications import Implications
from placewright.placers.pipeline.not_contiguous.likeness import like_units
from placewright.placers.pipeline.not_contiguous.pricing import (
    SetProblem,
    SetProgramme,
    search_set,
    set_load,
    set_problem,
)
from placewright.placers.pipeline.not_contiguous.programme_rows import INF, new_highs
from placewright.placers.pipeline.not_contiguous.units import BoolArray, FloatArray, IntArray, Units

HEURISTIC_ITERATIONS_PER_UNIT, MOST_HEURISTIC_ITERATIONS = 150, 100_000
COMPANION_ITERATIONS_PER_UNIT, MOST_COMPANION_ITERATIONS = 50, 20_000
LIKENESS_ROUNDS = (2, 3, 4, 6, 8, 12)  # coarse to fine; after these every unit has a price of its own
FIRST_RADIUS, LEAST_RADIUS, MOST_RADIUS = 0.1, 0.002, 2.0  # of the box of prices, in weights
SERIOUS_STEP = 0.1  # share of the promised gain that makes a step a success
SETTLED = 0.0015  # promised gain at which finer prices are worth more than better ones; of all weights
FINEST, COARSEST = 3e-4, 0.02  # how exact pricing is; of all weights
TOLERANCE = 1e-7
MAX_LABELS = 12_000_000


class _Column(NamedTuple):
    kind: int
    load: float


class ColumnGeneration:
    """Holds the sets and prices found so far; `disprove` tries one target and keeps what it learned for the next."""

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
        self.looseness = FINEST
        self.workable = dict.fromkeys(self.kinds, 0.0)  # tolerance at which pricing last came to an end
        self.rng = np.random.default_rng(seed)
        self.known: set[tuple[int, bytes]] = set()
        self.columns: list[_Column] = []
        self.members: list[BoolArray] = []
        least = np.min(units.forward_time[:, self.kinds], axis=1)
        work = np.where(np.isfinite(least), least, 0.0)
        self.weight: FloatArray = work + 0.02 * work.mean() + 1e-9
        self.weight /= self.weight.sum()
        self.center: FloatArray = self.weight.copy()  # prices in proportion to work are good from the start
        self.rounds, self.class_size = list(LIKENESS_ROUNDS), np.zeros(0)
        self._refine()

    def _refine(self) -> bool:
        """Tell more units apart; False when each has a price of its own already."""
        before = len(self.class_size)
        if before == self.units.unit_count:
            return False
        self.class_of_unit: IntArray = np.arange(self.units.unit_count, dtype=np.int32)
        while self.rounds:
            classes = like_units(self.units, self.rounds.pop(0))
            if classes.max(initial=-1) + 1 > before:
                self.class_of_unit = classes
                break
        self.class_size = np.bincount(self.class_of_unit).astype(float)
        self.master, self.rows = self._new_master(), 0
        return True

    def _class_mean(self, per_unit: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(self.class_of_unit, per_unit) / self.class_size)

    def _new_master(self) -> Any:
        """Columns: a price per class, and what a device of each kind can collect at these prices. The objective is
        what all prices exceed all collections by. A row per known set keeps the collections honest.
        """
        count, kinds = len(self.class_size), len(self.kinds)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = count + kinds, 0
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = np.append(self.class_size, -self.units.kind_count[self.kinds].astype(float))
        model.col_lower_ = np.zeros(count + kinds)
        model.col_upper_ = np.append(np.zeros(count), np.full(kinds, INF))
        highs = new_highs()
        highs.passModel(model)
        return highs

    def add_set(self, kind: int, member: BoolArray) -> bool:
        key = (kind, np.packbits(member).tobytes())
        if key in self.known or not member.any():
            return False
        self.known.add(key)
        self.columns.append(_Column(kind, set_load(self.problems[kind], member)))
        self.members.append(member.copy())
        return True

    def add_assignment(self, device_of_unit: IntArray) -> None:
        for device, kind in enumerate(self.units.kind_of_device.tolist()):
            self.add_set(kind, device_of_unit == device)

    def _fits(self, column: _Column, target: float) -> bool:
        return column.load <= target * (1 + 1e-9)

    def _set_target(self, target: float) -> None:
        for row, column in enumerate(self.columns[: self.rows]):
            self.master.changeRowBounds(row, -INF, 0.0 if self._fits(column, target) else INF)

    def _add_rows(self, target: float) -> None:
        """Sets found since, into the master: no device collects less than any set within the target is worth."""
        count = len(self.class_size)
        for column, member in zip(self.columns[self.rows :], self.members[self.rows :], strict=True):
            held = np.bincount(self.class_of_unit[member], minlength=count)
            classes = np.flatnonzero(held)
            index = np.append(classes, count + self.kinds.index(column.kind)).astype(np.int32)
            limit = 0.0 if self._fits(column, target) else INF
            self.master.addRow(-INF, limit, len(index), index, np.append(held[classes], -1.0))
        self.rows = len(self.columns)

    def disprove(self, target: float, deadline: float) -> bool:
        """Whether it is proven that some device load is above `target`; False says nothing.

        The master's prices are only trusted in a box around the best prices so far. The box grows when they keep
        their promise and shrinks when they do not; when little is promised any more, fewer units share a price.
        """
        self._set_target(target)
        radius, promise, best = FIRST_RADIUS, np.inf, -np.inf
        center, weight = self._class_mean(self.center), self._class_mean(self.weight)
        trial = center
        while time.perf_counter() < deadline and not self.should_stop():
            if np.isfinite(best):
                self._add_rows(target)
                answer = self._best_in_box(center - radius * weight, center + radius * weight, deadline)
                if answer is None:
                    return False
                promise, trial = answer
                self.looseness = min(max(FINEST, 0.1 * (promise - best)), COARSEST)
            price = trial[self.class_of_unit]
            surplus, added = self._surplus(price, target, deadline)
            if surplus > TOLERANCE:
                self.center = price
                return True
            self._add_companions(price, target)
            gain, hoped = surplus - best, promise - best
            if surplus > best:
                best, center, self.center = surplus, trial, price
            if not np.isfinite(promise):
                continue
            if gain > SERIOUS_STEP * hoped:
                radius = min(MOST_RADIUS, 1.5 * radius)
            elif gain < -hoped or not added:
                radius *= 0.7
            if promise - best < SETTLED or radius < LEAST_RADIUS:
                if not self._refine():
                    return False
                center, weight = self._class_mean(self.center), self._class_mean(self.weight)
                radius = FIRST_RADIUS
        return False

    def _best_in_box(self, low: FloatArray, high: FloatArray, deadline: float) -> tuple[float, FloatArray] | None:
        count = len(low)
        self.master.changeColsBounds(count, np.arange(count, dtype=np.int32), low, high)
        seconds = max(0.01, deadline - time.perf_counter())
        self.master.setOptionValue("time_limit", self.master.getRunTime() + seconds)
        self.master.run()
        if self.master.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        prices = np.array(self.master.getSolution().col_value)[:count]
        return float(self.master.getInfo().objective_function_value), prices

    def _best_known(self, kind: int, price: FloatArray, target: float) -> BoolArray | None:
        fitting = [i for i, c in enumerate(self.columns) if c.kind == kind and self._fits(c, target)]
        if not fitting:
            return None
        worth = np.array([self.members[i] for i in fitting]) @ price
        return self.members[fitting[int(np.argmax(worth))]]

    def _surplus(self, price: FloatArray, target: float, deadline: float) -> tuple[float, bool]:
        """(what the prices exceed all that the devices can collect by, whether a new set was found)."""
        surplus, added = float(price.sum()), False
        for kind in self.kinds:
            known = self._best_known(kind, price, target)
            start = np.zeros(self.units.unit_count, dtype=bool) if known is None else known
            bound, member = self._best_set(kind, price, target, start, deadline)
            surplus -= int(self.units.kind_count[kind]) * max(bound, 0.0)
            added |= member is not None and self.add_set(kind, member)
        return surplus, added

    def _add_companions(self, price: FloatArray, target: float) -> None:
        """Beside the best set, good sets for the other devices of its kind out of what is left: the master needs them
        to see that prices cannot just be moved to where no known set is.
        """
        iterations = min(COMPANION_ITERATIONS_PER_UNIT * self.units.unit_count, MOST_COMPANION_ITERATIONS)
        for kind in self.kinds:
            problem = self.problems[kind]
            taken = self._best_known(kind, price, target)
            left = np.where(np.isfinite(problem.time), price, 0.0)
            for _ in range(int(self.units.kind_count[kind]) - 1):
                if taken is None or not taken.any() or self.should_stop():
                    break
                left = np.where(taken, 0.0, left)
                taken = np.zeros(self.units.unit_count, dtype=bool)
                search_set(problem, left, target, taken, self._seed(), iterations, self._slope(left, target))
                self.add_set(kind, taken)

    def _seed(self) -> int:
        return int(self.rng.integers(1 << 30))

    def _slope(self, price: FloatArray, target: float) -> float:
        """What a set pays per load above the target."""
        return 2.0 * float(np.abs(price).sum()) / max(target * self.units.device_count, 1e-300)

    def _best_set(
        self, kind: int, price: FloatArray, target: float, start: BoolArray, deadline: float
    ) -> tuple[float, BoolArray | None]:
        """(an upper bound on what a device of the kind can collect, a set better than `start` if one was found)."""
        problem = self.problems[kind]
        usable = np.isfinite(problem.time)
        priced = np.where(usable, price, 0.0)
        floor = max(0.0, float(price[start].sum()))
        found = start.copy()
        iterations = min(HEURISTIC_ITERATIONS_PER_UNIT * self.units.unit_count, MOST_HEURISTIC_ITERATIONS)
        annealed = search_set(problem, priced, target, found, self._seed(), iterations, self._slope(priced, target))
        member = found if annealed > floor else None
        floor = max(floor, annealed)
        tolerance = self.looseness / self.units.device_count
        frontiers = self.frontiers[kind]
        if frontiers is not None:
            bound, better = self._walk(kind, frontiers, priced, target, floor, tolerance, deadline)
            if better is None or problem.memory[better].sum() <= problem.memory_limit:
                return bound, better if better is not None else member
        exact = self._programme(kind).solve(
            priced,
            target,
            deadline - time.perf_counter(),
            lambda primal, dual: dual <= floor + tolerance or dual - primal <= tolerance or self.should_stop(),
        )
        if exact.member is not None and exact.price > floor and set_load(problem, exact.member) <= target * (1 + 1e-9):
            member = exact.member
        return max(exact.bound, floor), member

    def _walk(
        self,
        kind: int,
        frontiers: Frontiers,
        price: FloatArray,
        target: float,
        floor: float,
        tolerance: float,
        deadline: float,
    ) -> tuple[float, BoolArray | None]:
        """Pricing over frontiers, as exact as the number of labels allows."""

        def stop() -> bool:
            return self.should_stop() or time.perf_counter() > deadline

        tolerance = max(tolerance, 0.5 * self.workable[kind])
        bound = np.inf
        while True:
            answer = best_set(frontiers, self.problems[kind], price, target, floor, tolerance, MAX_LABELS, stop)
            bound = min(bound, answer.bound)
            if answer.complete or stop():
                self.workable[kind] = tolerance
                return max(bound, floor), answer.member
            tolerance *= 4.0

    def _programme(self, kind: int) -> SetProgramme:
        if kind not in self.programmes:
            count = self.units.unit_count
            implied = np.zeros((0, 2), dtype=np.int32) if self.facts is None else self.facts.pairs[kind]
            allowed = np.ones(count, dtype=bool) if self.facts is None else self.facts.allowed[:, kind]
            self.programmes[kind] = SetProgramme(self.problems[kind], implied, allowed)
        return self.programmes[kind]
