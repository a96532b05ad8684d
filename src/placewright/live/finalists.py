"""The last round: a few candidates are run for real, costs corrected by what they took, the fastest is named."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from placewright.execute.measure import settle
from placewright.live.dispatch import ATTRIBUTE, STREAMED, dispatch, places_of, undispatch
from placewright.live.transfer import Backend
from placewright.live.workload import Workload
from placewright.placement import Placement

SETTLING_RUNS, SETTLING_S = 2, 0.25  # before runs that count, at least: what ran before must not matter
FEWEST, MOST = 7, 60  # runs of a quick candidate
QUICK_S, ENOUGH_S = 0.3, 1.5  # of such runs; of slow ones, after three
CONFIRMED = 3  # so many of the fastest candidates are run a second time
CLOSE = 0.2  # two candidates that differ by less are run again: shared processors make as much between rounds
NOISE = 0.03  # between repeated runs of one candidate
TRUST = 0.5  # how strongly scales are held at 1


@dataclass(frozen=True)
class Finalist:
    """A candidate that was run: ``rounds_s`` are infinite if it could not be, ``why`` says why."""

    name: str
    placement: Placement
    rounds_s: tuple[float, ...]
    peak_bytes: float = 0.0
    why: str = ""
    working_bytes: dict[str, float] = field(default_factory=dict)  # by GPU, what was taken besides weights

    @property
    def seconds(self) -> float:
        """What to expect: the mean of all rounds. The quickest was lucky."""
        return sum(self.rounds_s) / len(self.rounds_s)

    @property
    def quickest_s(self) -> float:
        """What to compare by: what else the machine does makes rounds longer, never shorter."""
        return min(self.rounds_s) if np.isfinite(self.seconds) else float("inf")


def run_finalist(
    model: Any,
    placement: Placement,
    workloads: list[Workload],
    name: str,
    limits: dict[str, float],
    backend: Backend,
) -> Finalist:
    """Dispatch, run every workload some times, take back."""
    devices = [backend.device(d) for d in limits]
    gpus = {d: backend.device(d) for d in limits if backend.is_gpu(backend.device(d))}
    seconds, peak, why = 0.0, 0.0, ""
    before = {d: torch.cuda.memory_allocated(d) for d in gpus}
    working_bytes: dict[str, float] = {}
    streams = any(place.endswith(STREAMED) for place in places_of(placement).values())
    try:
        dispatch(model, placement, backend=backend, keep_weights=True)
        for device in gpus:
            torch.cuda.reset_peak_memory_stats(device)
        for work in workloads:
            getattr(model, ATTRIBUTE).bring_caches(work.caches)
            seconds += work.count * median(timed(partial(work.run, model), devices, backend))
        for device in gpus:
            used = float(torch.cuda.max_memory_allocated(device) - before[device])
            peak = max(peak, used)
            if not streams:
                working_bytes[device] = max(0.0, used - weights_on(placement, device))
            if used > limits[device]:
                seconds, why = float("inf"), f"used {used:.0f} bytes of {device}, limit {limits[device]:.0f}"
    except torch.OutOfMemoryError as error:
        seconds, why = float("inf"), str(error).splitlines()[0]
    finally:
        undispatch(model)
        gc.collect()
        if gpus:
            torch.cuda.empty_cache()
    return Finalist(name, placement, (seconds,), peak, why, working_bytes)


def weights_on(placement: Placement, device: str) -> float:
    """Bytes of weights that lie on a device."""
    graph = placement.problem.graph
    at = placement.problem.cluster.device_names.index(device)
    return float(graph.weight_bytes[placement.device_of_op == at].sum())


def timed(run: Callable[[int], Any], devices: list[Any], backend: Backend) -> list[float]:
    """Seconds of some runs, one after another as in use, after some that do not count; ``run`` is told its number.

    A run ends when every device is done.
    """
    samples: list[float] = []
    numbers = itertools.count()

    def once() -> None:
        run(next(numbers))
        for device in devices:
            backend.wait(device)

    settle(once, SETTLING_RUNS, SETTLING_S)
    while len(samples) < MOST:
        began = time.perf_counter()
        once()
        samples.append(time.perf_counter() - began)
        spent_s = sum(samples)
        if (spent_s > QUICK_S and len(samples) >= FEWEST) or (spent_s > ENOUGH_S and len(samples) >= 3):
            break
    return samples


def confirmed(finalist: Finalist, again: Finalist) -> Finalist:
    """Both runs' rounds as one; fails where the later one does."""
    return replace(again, rounds_s=finalist.rounds_s + again.rounds_s)


def next_to_confirm(finalists: list[Finalist], rounds: int) -> int | None:
    """Which one to run again: of those that may be the fastest the one with the fewest rounds, ``None`` after all.

    The fastest ``CONFIRMED`` have two rounds in any case. More have those that were close to the fastest, or were
    predicted to be: a shared processor may run at two thirds of its speed for seconds. One alone needs no more.
    """
    order = sorted(range(len(finalists)), key=lambda i: finalists[i].quickest_s)
    able = [i for i in order if np.isfinite(finalists[i].quickest_s)]
    for i in able[:CONFIRMED]:
        if len(finalists[i].rounds_s) < 2:
            return i
    if not able:
        return None
    fastest = finalists[able[0]]
    close = [
        i
        for i in able
        if finalists[i].quickest_s <= fastest.quickest_s * (1 + CLOSE)
        or finalists[i].placement.value <= fastest.placement.value * (1 + NOISE)
    ]
    fewest = min(close, key=lambda i: len(finalists[i].rounds_s))
    return fewest if len(close) > 1 and len(finalists[fewest].rounds_s) < rounds else None


def simplest_of_the_fastest(finalists: list[Finalist]) -> Finalist:
    """Of those as fast as the fastest within noise the one with the fewest crossings, then the fastest.

    Compared by their quickest rounds: others only make a round slower.
    """
    fastest_s = min(f.quickest_s for f in finalists)
    close = [f for f in finalists if f.quickest_s <= fastest_s * (1 + NOISE)]
    return min(close, key=lambda f: (_crossings(f.placement), f.quickest_s))


def _crossings(placement: Placement) -> int:
    graph, device = placement.problem.graph, placement.device_of_op
    assert device is not None
    return int((device[graph.edge_producer] != device[graph.consumer_op]).sum())


def calibrated_scales(finalists: list[Finalist]) -> dict[str, float]:
    """What to multiply each device's times and all copies with, so that predictions come close to what was measured."""
    ran = [f for f in finalists if np.isfinite(f.seconds)]
    parts = [_parts(f.placement) for f in ran]
    names = sorted({name for part in parts for name, seconds in part.items() if seconds > 0})
    if not names:
        return {}
    matrix = np.array([[part.get(name, 0.0) / f.seconds for name in names] for f, part in zip(ran, parts, strict=True)])
    held = TRUST * matrix.max(axis=0)
    a, b = np.vstack([matrix, np.diag(held)]), np.concatenate([np.ones(len(ran)), held])
    scales, *_ = np.linalg.lstsq(a, b, rcond=None)
    return dict(zip(names, np.clip(scales, 0.4, 2.5).tolist(), strict=True))


def _parts(placement: Placement) -> dict[str, float]:
    """Predicted seconds by device, and of all copies."""
    problem, device = placement.problem, placement.device_of_op
    assert device is not None
    times = problem.op_device_time_s[np.arange(problem.n_ops), device]
    parts = {n: float(times[device == d].sum()) for d, n in enumerate(problem.cluster.device_names)}
    return {**parts, "copies": max(0.0, placement.value - sum(parts.values()))}
