"""Relaxations from coarse to exact, each bounded from below and turned into placements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.placers.calls.frontier import find_frontiers
from placewright.placers.calls.groups import Groups
from placewright.placers.calls.label_setting import Outcome, Ration, solve_labels
from placewright.placers.calls.realise import realise
from placewright.placers.calls.relaxation import Relaxed, Sorts, accelerator_sorts, relax
from placewright.placers.calls.tails import Tails, find_tails
from placewright.placers.pipeline.lattice import Lattice, enumerate_ideals
from placewright.placers.pipeline.units import Ints, topological_order
from placewright.problems import Problem

# Sources and sinks below these shares of the value and of a memory are not units of their own.
_NEGLIGIBLE = (1e-2, 1e-3, 0.0)
_WIDTHS = (50, 1000, 20_000)
_MOST_IDEALS = 600_000
_MOST_UNITS, _MOST_OPS = 4000, 20_000
_ORDERS = 8


class Step(NamedTuple):
    """A proven bound, a placement to be judged if there is one, and what the step did."""

    bound: float
    device_of_op: NDArray[np.int32] | None
    note: str


def bounding_steps(
    problem: Problem,
    groups: Groups,
    best_value: Callable[[], float],
    should_stop: Callable[[], bool],
    seed: int,
    widths: tuple[int, ...] = _WIDTHS,
) -> Iterator[Step]:
    """Yield better and better bounds; ``best_value`` is asked before each step, infinite if nothing is known.

    ``widths`` are the most labels per ideal to be tried one after another, until one is enough.
    A bound of infinity is a proof that there is no valid placement.
    """
    sorts = accelerator_sorts(problem)
    largest_bytes = float(sorts.limit_bytes[np.isfinite(sorts.limit_bytes)].max(initial=0.0))
    n_units_before = 0
    for share in _NEGLIGIBLE if problem.n_ops <= _MOST_OPS else ():
        if should_stop():
            return
        scale_s = best_value() if np.isfinite(best_value()) else 0.0
        relaxed = relax(problem, sorts, negligible_s=share * scale_s, negligible_bytes=share * largest_bytes)
        n_units = len(relaxed.host_time_s)
        if n_units == n_units_before or n_units > _MOST_UNITS:
            continue
        n_units_before = n_units
        tails = find_tails(relaxed, should_stop)
        yield Step(float(tails.start_s.max()) * (1 - 1e-10), None, "the longest path")
        level = _Level(problem, groups, sorts, relaxed, tails, best_value, should_stop, widths)
        yield from level.orders(np.random.default_rng(seed))
        if should_stop():
            return
        yield from level.ideals()


@dataclass(frozen=True)
class _Level:
    problem: Problem
    groups: Groups
    sorts: Sorts
    relaxed: Relaxed
    tails: Tails
    best_value: Callable[[], float]
    should_stop: Callable[[], bool]
    widths: tuple[int, ...]

    @property
    def one_piece_each(self) -> Ration:
        """As many pieces as there are accelerators."""
        count = sum(len(devices) for devices in self.sorts.devices)
        return Ration(1.0, np.zeros(len(self.relaxed.host_time_s)), count + 0.5)

    @property
    def all_memory(self) -> Ration | None:
        """The bytes of all accelerators together, ``None`` if everything fits into them."""
        limits = zip(self.sorts.devices, self.sorts.limit_bytes.tolist(), strict=True)
        room = sum(len(devices) * limit for devices, limit in limits)
        units = np.bincount(self.relaxed.class_of_unit, minlength=len(self.relaxed.class_bytes))
        bytes_of_unit = (self.relaxed.class_bytes / units)[self.relaxed.class_of_unit]
        return None if bytes_of_unit.sum() <= room else Ration(0.0, bytes_of_unit, room * (1 + 1e-12))

    def orders(self, rng: np.random.Generator) -> Iterator[Step]:
        """Placements whose pieces are stretches of a topological order, at most one per accelerator."""
        n_units = len(self.relaxed.host_time_s)
        for i in range(_ORDERS):
            if self.should_stop():
                return
            priority = np.zeros(n_units) if i < 2 else rng.random(n_units)
            order = topological_order(self.relaxed.successor_ptr, self.relaxed.successor, priority, i % 3 != 1)
            line = _line(order)
            frontiers = find_frontiers(self.relaxed, line, self.tails.edge_s, self.should_stop)
            if frontiers is None:
                continue
            outcome = self._solve(line, frontiers, self.widths[0], self.one_piece_each)
            if outcome.solution is not None:
                yield Step(0.0, self._realised(outcome), "topological orders")

    def ideals(self) -> Iterator[Step]:
        """Bounds from all ideals, with more and more labels per ideal, and the placements that come with them."""
        lattice = enumerate_ideals(self.relaxed, _MOST_IDEALS, self.should_stop)
        if not isinstance(lattice, Lattice):
            return
        frontiers = find_frontiers(self.relaxed, lattice, self.tails.edge_s, self.should_stop)
        if frontiers is None:
            return
        for width in self.widths:
            if self.should_stop():
                return
            outcome = self._solve(lattice, frontiers, width, self.all_memory)
            yield Step(outcome.bound, self._realised(outcome), f"labels on {len(lattice.parent)} ideals")
            if outcome.solution is not None and outcome.solution.n_pieces > self.one_piece_each.limit:
                few = self._solve(lattice, frontiers, width, self.one_piece_each)
                yield Step(0.0, self._realised(few), "labels with one piece per accelerator")
            if not outcome.is_blended:
                return

    def _solve(self, lattice: Lattice, frontiers: _core.calls.Frontiers, width: int, ration: Ration | None) -> Outcome:
        cutoff = self.best_value()
        return solve_labels(self.relaxed, lattice, frontiers, self.tails, cutoff, width, self.should_stop, ration)

    def _realised(self, outcome: Outcome) -> NDArray[np.int32] | None:
        if outcome.solution is None:
            return None
        return realise(self.problem, self.groups, self.sorts, self.relaxed, outcome.solution, self.should_stop)


def _line(order: Ints) -> Lattice:
    """The lattice of units that can only be taken in this order."""
    count = len(order)
    numbers = np.arange(count + 1, dtype=np.int32)
    units = order.astype(np.int32)
    last_unit = np.concatenate([np.array([-1], dtype=np.int32), units])
    level_ptr = np.arange(count + 2, dtype=np.int64)
    return Lattice(numbers - 1, last_unit, np.minimum(level_ptr, count), units, numbers[1:], level_ptr)
