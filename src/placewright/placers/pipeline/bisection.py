"""From "is there a pipeline within a threshold?" to the least threshold: probe and bisect."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from placewright.placers.pipeline.bounds import Prices, find_prices, lowest_possible
from placewright.placers.pipeline.lattice import Lattice
from placewright.placers.pipeline.stage_loads import LoadModel, Stage, pipeline_value
from placewright.placers.pipeline.thresholds import search
from placewright.placers.pipeline.units import Units
from placewright.placers.pipeline.vectors import Vectors, build_vectors, sequence_vectors, vector_count

TOLERANCE = 1e-9
MAX_VECTORS = 16_384
_FIRST_RISE = 1e-3
_FIRST_DROP = 1e-3

StopCheck = Callable[[], bool]


class Incumbent(NamedTuple):
    """Best pipeline so far; an infinite value means none."""

    value: float
    stages: Sequence[Stage]


class Minimum(NamedTuple):
    """Outcome of `minimise`; `proven` means that nothing better exists on the lattice."""

    incumbent: Incumbent
    visits: int
    proven: bool


NOTHING = Incumbent(float("inf"), ())


def stop_check(deadline: float | None, should_stop: StopCheck | None) -> StopCheck:
    """One test for both ways of ending a search; `deadline` is on the `time.monotonic` clock."""

    def stop() -> bool:
        late = deadline is not None and time.monotonic() >= deadline
        return late or (should_stop is not None and should_stop())

    return stop


def better(first: Incumbent, second: Incumbent) -> Incumbent:
    """The one of smaller value, the first if they are equal."""
    return second if second.value < first.value else first


class Task(NamedTuple):
    """A problem prepared for searching."""

    units: Units
    model: LoadModel
    vectors: Vectors
    prices: Prices
    lower: float  # no pipeline has a smaller value
    is_restricted: bool  # kinds are taken in a fixed sequence, as there are too many mixes
    stop: StopCheck


def new_task(units: Units, model: LoadModel, stop: StopCheck) -> Task | None:
    """Prepare a search; None if the units provably cannot be hosted."""
    prices, lower = _price(model)
    if lower == np.inf:
        return None
    is_restricted = vector_count(model) > MAX_VECTORS
    vectors = sequence_vectors(model) if is_restricted else build_vectors(model)
    return Task(units, model, vectors, prices, lower, is_restricted, stop)


def _price(model: LoadModel) -> tuple[Prices, float]:
    """Prices tuned to the loads to be expected, and the lower bound they imply."""
    cheapest = model.time[:, model.kind_count > 0].min(axis=1, initial=np.inf)
    guess = float(cheapest[np.isfinite(cheapest)].sum()) / max(int(model.kind_count.sum()), 1)
    prices = find_prices(model, guess)
    lower = lowest_possible(model, prices)
    if lower < np.inf:
        prices = find_prices(model, max(lower, guess))
        lower = max(lower, lowest_possible(model, prices))
    return prices, lower


def minimise(
    model: LoadModel,
    lattice: Lattice,
    vectors: Vectors,
    prices: Prices,
    lower: float,
    incumbent: Incumbent,
    stop: StopCheck,
    *,
    gap: float = TOLERANCE,
    polish: Callable[[Incumbent], Incumbent] | None = None,
    pool: ThreadPoolExecutor | None = None,
    threads: int = 1,
) -> Minimum:
    """Best pipeline on the lattice, unless it improves `incumbent` by less than a relative `gap`.

    `polish` may improve pipelines on the way; the result does not depend on it.
    """
    ceiling = _largest_load(model)
    visits, rise, successes = 0, _FIRST_RISE, 0
    while lower <= ceiling and incumbent.value > lower * (1 + gap):
        # Failure just below the incumbent is a proof, so that is tried first. After a few successes
        # in a row probes go lower, lest small gains add up to many searches.
        final = min(incumbent.value * (1 - gap), ceiling)
        if incumbent.value < np.inf:
            drop = _FIRST_DROP * 4.0 ** (successes - 3) if successes >= 3 else 0.0
            middle = (lower + final) / 2
            threshold = min(final, max(incumbent.value * (1 - drop), middle))
        else:
            threshold = min(final, lower + rise * max(lower, ceiling * 1e-6))
        found = search(model, lattice, vectors, prices, threshold, stop, pool, threads)
        visits += found.visits
        if found.stages is not None:
            incumbent = Incumbent(pipeline_value(model, found.stages), found.stages)
            if polish is not None:
                incumbent = polish(incumbent)
            successes += 1
        elif found.stopped:
            return Minimum(incumbent, visits, False)
        elif threshold >= final:
            break
        else:
            lower, rise, successes = threshold, rise * 2, 0
    return Minimum(incumbent, visits, True)


def _largest_load(model: LoadModel) -> float:
    """More than any stage can take."""
    finite = np.where(np.isfinite(model.time), model.time, 0.0)
    per_kind = (
        finite.sum(axis=0) + 2 * model.sync.sum(axis=0) + model.tensor_in.sum(axis=0) + model.tensor_out.sum(axis=0)
    )
    return float(per_kind.max(initial=0.0)) * 1.001 + 1e-12
