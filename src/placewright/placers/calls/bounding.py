"""Relaxations from coarse to exact, each bounded from below and turned into placements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.placers.calls.frontier import find_frontiers
from placewright.placers.calls.groups import Groups
from placewright.placers.calls.labels import ANY_NUMBER, Outcome, Solution, solve_labels
from placewright.placers.calls.realise import realise
from placewright.placers.calls.relaxed import Relaxed, Sorts, accelerator_sorts, relax
from placewright.placers.calls.tails import edge_tails
from placewright.placers.pipeline.lattice import Lattice, enumerate_ideals
from placewright.problem import Problem

# Sources and sinks below these shares of the value and of a memory are not units of their own.
_NEGLIGIBLE = (1e-2, 1e-3, 0.0)
_WIDTHS = (50, 1000, 20_000)
_MOST_IDEALS = 600_000
_MOST_UNITS = 4000


class Step(NamedTuple):
    """A proven bound, a placement to be judged if there is one, and what the step did."""

    bound: float
    device_of_op: NDArray[np.int32] | None
    note: str


def bounding_steps(
    problem: Problem, groups: Groups, best_value: Callable[[], float], should_stop: Callable[[], bool]
) -> Iterator[Step]:
    """Yield better and better bounds; ``best_value`` is asked before each step, infinite if nothing is known.

    A bound of infinity is a proof that there is no valid placement.
    """
    sorts = accelerator_sorts(problem)
    n_accelerators = sum(len(devices) for devices in sorts.devices)
    size_before = -1
    for share in _NEGLIGIBLE:
        scale = best_value() if np.isfinite(best_value()) else 0.0
        largest = sorts.limit_bytes[np.isfinite(sorts.limit_bytes)].max(initial=0.0)
        relaxed = relax(problem, sorts, negligible_s=share * scale, negligible_bytes=share * float(largest))
        n_units = len(relaxed.host_time_s)
        if n_units in (0, size_before) or n_units > _MOST_UNITS:
            continue
        size_before = n_units
        edge_tail, start_tail = edge_tails(relaxed)
        yield Step(float(start_tail.max()) * (1 - 1e-10), None, "path bound")
        lattice = enumerate_ideals(relaxed, _MOST_IDEALS, should_stop)
        if not isinstance(lattice, Lattice):
            continue
        frontiers = find_frontiers(relaxed, lattice, edge_tail, should_stop)
        if frontiers is None:
            continue
        for width in _WIDTHS:
            if should_stop():
                return
            outcome = solve_labels(relaxed, lattice, frontiers, best_value(), width, should_stop)
            yield _step(problem, groups, sorts, relaxed, outcome, f"{len(lattice.parent)} ideals")
            if outcome.solution is not None and _pieces(outcome.solution) > n_accelerators and not should_stop():
                few = solve_labels(relaxed, lattice, frontiers, best_value(), width, should_stop, n_accelerators)
                yield _step(problem, groups, sorts, relaxed, few._replace(bound=0.0), "one piece per accelerator")
            if not outcome.is_blended:
                break


def _step(
    problem: Problem, groups: Groups, sorts: Sorts, relaxed: Relaxed, outcome: Outcome, note: str
) -> Step:
    device = None
    if outcome.solution is not None:
        device = realise(problem, groups, sorts, relaxed, outcome.solution)
    return Step(outcome.bound, device, note)


def _pieces(solution: Solution) -> int:
    return sum(not on_host for _, on_host in solution.groups)
