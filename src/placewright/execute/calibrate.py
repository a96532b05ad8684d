"""What cuts really cost: fitted to placements that were executed, and written into the profile.

A profile times ops within a run of the whole model. A cut adds what no op shows: a call, a worker's wake-up, and the
change of the tensor's layout on both sides. All of it comes with a tensor that crosses, so it is fitted as a latency
and a time per byte on top of the measured copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.cluster import Link
from placewright.costs.measure.copies import COPY_SIZES_BYTES
from placewright.evaluate import evaluate_many
from placewright.execute.diverse import diverse_placements
from placewright.execute.live import Executor, LiveModel
from placewright.execute.measure import SETTLING_RUNS, Timing, measure_in_turns
from placewright.execute.placed import start_placement
from placewright.placement import checked_placement
from placewright.problems import Problem
from placewright.profiles import Calibration, CopyCurve, Profile

_AT_ONCE = 4  # executors kept in memory together and run in turns
_FEWEST = 2
_LATENCIES_S = np.linspace(0.0, 500e-6, 6)
_PER_BYTE_S = np.linspace(0.0, 2.5e-9, 6)
_PROBE = np.array([1e-6, 1e-11])  # how far slopes look; also the scale of the two unknowns
_STEPS = 20


def calibrated(
    profile: Profile,
    problem: Problem,
    live: LiveModel,
    *,
    placements: int = 10,
    repeats: int = 7,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Profile:
    """The profile with copies that make executed placements' predicted latencies right; ``problem`` is made from it."""
    latency = problem.with_options(objective="latency", execution="overlap")
    rows = diverse_placements(latency, placements + latency.n_devices, seed)[latency.n_devices :]
    if len(rows) < _FEWEST:
        return profile
    measured_s = np.array([t.median_s for t in execute_placements(live, latency, rows, repeats=repeats, say=say)])
    fit = fitted_copies(latency, rows, measured_s)
    links = latency.links.links
    curves = {link.name: _dearer(profile.copies.get(link.name), link, fit) for link in links}
    return replace(
        profile,
        copies={**profile.copies, **curves},
        segment_overhead_s={**profile.segment_overhead_s, **live.call_overhead_s(latency.cluster)},
        calibration=fit,
    )


def execute_placements(
    live: LiveModel,
    problem: Problem,
    rows: NDArray[np.int32],
    *,
    repeats: int,
    warm_up: int = 2,
    say: Callable[[str], None] = lambda text: None,
) -> list[Timing]:
    """Measure placements [rows, ops] one sample at a time, a few of them in turns."""
    timings: list[Timing] = []
    for first in range(0, len(rows), _AT_ONCE):
        say(f"executing placements {first + 1} to {min(first + _AT_ONCE, len(rows))} of {len(rows)}")
        together = [checked_placement(problem, row, placer="diverse") for row in rows[first : first + _AT_ONCE]]
        executors = [start_placement(live, placement) for placement in together]
        try:
            variants = {str(i): _bound(e, live.inputs) for i, e in enumerate(executors)}
            timings += list(measure_in_turns(variants, repeats, warm_up, settling_runs=SETTLING_RUNS).values())
        finally:
            for executor in executors:
                executor.close()
    return timings


def fitted_copies(problem: Problem, rows: NDArray[np.int32], measured_s: NDArray[np.float64]) -> Calibration:
    """The latency and time per byte to add to every copy, both at least 0, with the least squared error in logarithms.

    The prediction is no linear function of the two (a cost counts only on the critical path): a grid finds where to
    begin, Gauss-Newton steps go on from there.
    """
    sizes = problem.graph.tensor_bytes[:, None]

    def predicted(extra: NDArray[np.float64]) -> NDArray[np.float64]:
        added = np.where(sizes > 0, extra[0] + extra[1] * sizes, 0.0)
        return evaluate_many(replace(problem, tensor_copy_s=problem.tensor_copy_s + added), rows).value

    def residuals(extra: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(predicted(extra) / measured_s)

    best = min(
        (np.array([a, b]) for a in _LATENCIES_S for b in _PER_BYTE_S), key=lambda x: float(_square(residuals(x)))
    )
    error = residuals(best)
    for _ in range(_STEPS):
        slopes = np.stack([(residuals(best + h) - error) / h.sum() for h in np.diag(_PROBE)], axis=1)
        step = np.linalg.lstsq(slopes * _PROBE, -error, rcond=None)[0] * _PROBE
        tries = [np.maximum(0.0, best + step * f) for f in (1.0, 0.5, 0.25, 0.05)]
        nearer = min(tries, key=lambda x: float(_square(residuals(x))))
        if _square(residuals(nearer)) >= _square(error):
            break
        best, error = nearer, residuals(nearer)
    before, after = predicted(np.zeros(2)), predicted(best)
    return Calibration(
        placements=len(rows),
        copy_latency_s=float(best[0]),
        copy_s_per_byte=float(best[1]),
        error_before=median_error(before, measured_s),
        error_after=median_error(after, measured_s),
        rank_correlation=rank_correlation(after, measured_s),
    )


def median_error(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
    """The median of the relative errors, whichever way.

    >>> median_error(np.array([1.0, 2.2, 3.0]), np.array([1.0, 2.0, 2.0]))
    0.10000000000000009
    """
    return float(np.median(np.abs(predicted / measured - 1)))


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's: 1 if both put the placements in the same order; equal values share their rank.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    first, second = _ranks(a), _ranks(b)
    if first.std() == 0 or second.std() == 0:
        return 0.0
    return float(np.round(np.corrcoef(first, second)[0, 1], 12))


def _square(values: NDArray[np.float64]) -> np.float64:
    return np.float64(values @ values)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse])


def _dearer(curve: CopyCurve | None, link: Link, fit: Calibration) -> CopyCurve:
    sizes = np.array(curve.size_bytes if curve is not None else COPY_SIZES_BYTES, dtype=np.float64)
    seconds = (curve if curve is not None else link).copy_s(sizes)
    return CopyCurve(
        tuple(sizes.tolist()), tuple((seconds + fit.copy_latency_s + fit.copy_s_per_byte * sizes).tolist())
    )


def _bound(executor: Executor, inputs: Sequence[Any]) -> Callable[[], object]:
    return lambda: executor(inputs)
