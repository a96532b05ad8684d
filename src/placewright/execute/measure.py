"""Honest timing: interleaved repeats, medians with bootstrap intervals, and no gain claimed inside the noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Runs before one that counts, where variants differ in the devices they use: a core that the variant before left idle
# comes back slowly (a run of 25 ms on two cores took 33 after one on a single core, and after idling), and no variant
# is to pay for another.
SETTLING_RUNS = 1
_RESAMPLES = 2000
CONFIDENCE = 0.95


class Timing(NamedTuple):
    """Seconds of repeated runs of one variant."""

    samples_s: NDArray[np.float64]
    median_s: float
    low_s: float  # ends of the bootstrap interval of the median
    high_s: float


class Comparison(NamedTuple):
    """How one variant compares with another, run in turns with it.

    ``gain`` is ``1 - ours / theirs`` by medians; ``low`` and ``high`` bound it; ``is_real``: zero lies outside.
    """

    gain: float
    low: float
    high: float

    @property
    def is_real(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if not self.is_real:
            return f"no difference beyond noise ({self.low:+.1%} to {self.high:+.1%})"
        return f"{self.brief} ({self.low:+.1%} to {self.high:+.1%})"

    @property
    def brief(self) -> str:
        """The same without the interval."""
        if not self.is_real:
            return "same within noise"
        return f"{abs(self.gain):.1%} {'faster' if self.gain > 0 else 'slower'}"


def measure_in_turns(
    variants: Mapping[str, Callable[[], object]],
    repeats: int = 20,
    warm_up: int = 3,
    *,
    runs_per_turn: int = 1,
    settling_runs: int = 0,
    settling_s: float = 0.0,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
    seed: int = 0,
) -> dict[str, Timing]:
    """Give every variant one turn per round, in a new random order each round, so that drift hits all alike.

    A turn is one run unless ``runs_per_turn`` says more. ``settling_runs`` before them, and more of them for
    ``settling_s``, do not count: what another variant left in caches is not part of a variant's own speed where it runs
    again and again in use. ``should_stop`` is asked between rounds; whole rounds measured by then count, at least one.
    """
    for run in variants.values():
        for _ in range(warm_up):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for done, order in enumerate(orders(list(variants), max(1, repeats), seed)):
        if done and should_stop():
            break
        for name in order:
            run = variants[name]
            settle(run, settling_runs, settling_s, clock)
            for _ in range(runs_per_turn):
                began = clock()
                run()
                seconds[name].append(clock() - began)
    return {n: timing(np.array(s), seed) for n, s in seconds.items()}


def orders(names: Sequence[str], rounds: int, seed: int = 0) -> Iterator[list[str]]:
    """All names once a round, in a new random order each."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        yield [names[i] for i in rng.permutation(len(names)).tolist()]


def settle(
    run: Callable[[], object], runs: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Run so often and so long, whichever is more."""
    began, done = clock(), 0
    while done < runs or (seconds and clock() - began < seconds):
        run()
        done += 1


def timing(samples_s: NDArray[np.float64], seed: int = 0) -> Timing:
    """Median and its bootstrap interval.

    >>> timing(np.array([1.0, 1.0, 1.0])).median_s
    1.0
    """
    medians = _resampled_medians(samples_s, np.random.default_rng(seed))
    low, high = _interval(medians)
    return Timing(samples_s, float(np.median(samples_s)), low, high)


def compare(ours: Timing, theirs: Timing, seed: int = 0) -> Comparison:
    """Compare two variants measured in the same rounds: rounds are resampled together."""
    n = min(len(ours.samples_s), len(theirs.samples_s))
    rows = np.random.default_rng(seed).integers(0, n, (_RESAMPLES, n))
    ratio = np.median(ours.samples_s[:n][rows], axis=1) / np.median(theirs.samples_s[:n][rows], axis=1)
    low, high = _interval(1 - ratio)
    return Comparison(1 - ours.median_s / theirs.median_s, low, high)


def _resampled_medians(samples: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    return np.median(samples[rng.integers(0, len(samples), (_RESAMPLES, len(samples)))], axis=1)


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
