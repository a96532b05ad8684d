"""``random``: the best of many random placements. A placer that does not beat it has not earned its time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.evaluate import evaluate_many
from placewright.placers.base import Found, Placer
from placewright.placers.units import Units, movable_units
from placewright.problems import Problem

DEFAULT_EVALUATIONS = 1000
_BATCH_CELLS = 4_000_000  # ops x placements evaluated between two looks at the clock


class RandomPlacer(Placer):
    """Half of the samples place every unit anywhere it may be, half cut the topological order at random places.

    Draws ``budget.evaluations`` placements (1000 if not given) unless the time ends first.
    """

    name = "random"
    summary = "best of k random placements"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        units = movable_units(problem)
        rng = np.random.default_rng(seed)
        wanted = budget.evaluations or DEFAULT_EVALUATIONS
        batch = max(2, min(64, _BATCH_CELLS // problem.n_ops))
        best, best_value, done = None, math.inf, 0
        while done < wanted and (done == 0 or not budget.expired()):
            count = min(batch, wanted - done)
            rows = np.concatenate([_anywhere(units, rng, count // 2), _cuts(units, rng, count - count // 2)])
            result = evaluate_many(problem, rows[:, units.unit_of_op])
            values = np.where(result.is_valid, result.value, np.inf)
            done += count
            if values.min() < best_value:
                best, best_value = rows[values.argmin()][units.unit_of_op], float(values.min())
                budget.report(best_value, evaluations=done)
        note = "" if best is not None else f"none of {done} random placements is valid"
        return Found(best, evaluations=done, note=note)


def _anywhere(units: Units, rng: np.random.Generator, count: int) -> NDArray[np.int32]:
    """Uniform over the devices each unit may be on."""
    keys = rng.random((count, *units.allowed.shape), dtype=np.float32)
    return np.where(units.allowed, keys, -1.0).argmax(axis=2).astype(np.int32)


def _cuts(units: Units, rng: np.random.Generator, count: int) -> NDArray[np.int32]:
    """The sequence of units cut at random places, the pieces given to randomly ordered devices."""
    n, n_devices = units.allowed.shape
    rows = np.empty((count, n), dtype=np.int32)
    for i in range(count):
        pieces = int(rng.integers(1, n_devices + 1))
        devices = rng.permutation(n_devices)[:pieces]
        cuts = np.sort(rng.integers(0, n + 1, pieces - 1))
        rows[i] = devices[np.searchsorted(cuts, np.arange(n), side="right")]
    return rows
