"""Local search over unit -> device assignments: annealing with restarts, and the published descent."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from placewright.placers.pipeline.not_contiguous.search_kernels import (
    Problem,
    State,
    anneal,
    new_state,
    problem_of,
    steepest_descent,
)
from placewright.placers.pipeline.not_contiguous.units import (
    Communication,
    IntArray,
    Objective,
    Units,
    evaluate,
    fold_directions,
)

PIECE_ITERATIONS = 20_000  # between two looks at the clock; fixed, so that runs differ only in how far they get
SHORTEST_CYCLE, LONGEST_CYCLE, CYCLE_PER_UNIT = 20_000, 8_000_000, 1600  # iterations of the first cooling cycle
CYCLE_CAUTION, CYCLE_UNIT = 0.7, 2**0.25  # share of the time it is planned for; a plan is a power of the unit
LAST_CYCLE = 0.88  # of what is possible in the time that is left, where that is less than half as much again as wanted
FRESH_START_SHARE = 0.3  # of cooling cycles; the others continue from the best assignment


CycleLengths = dict[tuple[int, int], int]  # iterations by thread and number of the cycle


class SearchResult(NamedTuple):
    """`device_of_unit` is None when no assignment within the memory limits was found."""

    device_of_unit: IntArray | None
    value: float
    iterations: int
    trace: list[tuple[float, float]]  # (seconds, value)


class _Walk:
    """One annealing thread: cycles of cooling from the best assignment, reheated a little less or more each time."""

    def __init__(
        self,
        units: Units,
        problem: Problem,
        start: IntArray,
        seed: int,
        cycle_iterations: int,
        number: int = 0,
        lengths: CycleLengths | None = None,
    ) -> None:
        self.units, self.problem, self.number = units, problem, number
        self.lengths: CycleLengths = {} if lengths is None else lengths
        self.cycles = 0
        self.state: State = new_state(problem, start, seed)
        self.cycle_iterations = cycle_iterations
        self.rng = np.random.default_rng(seed)
        self.done = 0
        self.progress = 0.0
        self.hot = 0.05

    @property
    def value(self) -> float:
        return float(self.state.scalars[0])

    def step(self, iterations: int, possible: float = np.inf) -> None:
        """Run one piece of the current cycle, starting the next one when it is over.

        A cycle with more iterations left than are ``possible`` in all cools faster: what stays warm is worth little.
        """
        if self.progress >= 1.0:
            self._restart(possible)
        left = max(1.0, min((1.0 - self.progress) * self.cycle_iterations, possible))
        count = max(1, min(iterations, round(left)))
        share = (1.0 - self.progress) * min(1.0, count / left)
        cold = 5e-5
        begin = self.hot * (cold / self.hot) ** self.progress
        end = self.hot * (cold / self.hot) ** (self.progress + share)
        largest = max(2, len(self.problem.memory) // max(1, len(self.problem.kind_of_device)))
        anneal(self.problem, self.state, count, begin, end, largest)
        self.progress += share if share > 0 else 1.0
        if self.progress > 1.0 - 1e-9:
            self.progress = 1.0
        self.done += count

    def _restart(self, possible: float) -> None:
        """Begin a cycle; the last one is made to cool down when the time ends."""
        self.progress = 0.0
        self.cycles += 1
        self.hot = float(10.0 ** self.rng.uniform(-3.0, -1.0))
        wanted = int(self.cycle_iterations * self.rng.uniform(0.7, 2.0))
        length = max(SHORTEST_CYCLE, int(LAST_CYCLE * possible)) if possible < 1.5 * wanted else wanted
        self.cycle_iterations = self.lengths.setdefault((self.number, self.cycles), length)
        if self.rng.random() < FRESH_START_SHARE:
            self.state.device[:] = _random_runs(self.units, self.rng)
            self.hot = 0.1
        elif np.isfinite(self.value):
            self.state.device[:] = self.state.best
        if np.isfinite(self.value):
            self.state.scalars[1] = self.value


def local_search(
    units: Units,
    objective: Objective = "1f1b",
    communication: Communication = "added",
    *,
    starts: list[IntArray] | None = None,
    seed: int = 0,
    seconds: float = 10.0,
    iterations: int | None = None,
    threads: int = 2,
    cycle: int | None = None,
    lengths: CycleLengths | None = None,
    target: float = 0.0,
    should_stop: Callable[[], bool] = lambda: False,
    on_improve: Callable[[IntArray, float], None] | None = None,
) -> SearchResult:
    """Anneal until the deadline, `should_stop`, `target` is reached or `iterations` per thread are spent.

    With `iterations` (and no interruption) the result depends on the seed only. Without, every run with the same
    `cycle` (iterations of the first cooling, see `fitting_cycle`) and the same `lengths` (of later ones, which the
    first run notes there) takes the same way.
    """
    began = time.perf_counter()
    folded = units if objective == "gpipe" else fold_directions(units)
    problem = problem_of(folded, objective == "gpipe", communication == "overlapped")
    if units.unit_count == 0:
        return SearchResult(np.zeros(0, dtype=np.int32), 0.0, 0, [])
    pool_of_starts = list(starts or []) or [_spread(units, seed, True)]
    while len(pool_of_starts) < threads:
        pool_of_starts.append(_spread(units, seed + len(pool_of_starts), False))
    cycle = cycle or _longest_cycle(units)
    lengths = {} if lengths is None else lengths
    walks = [
        _Walk(units, problem, pool_of_starts[i], seed * 1000 + i, cycle, i, lengths if iterations is None else None)
        for i in range(threads)
    ]
    walking = time.perf_counter()
    trace: list[tuple[float, float]] = []
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        while True:
            leader = min(walks, key=lambda walk: walk.value)
            if leader.value < best:
                best = leader.value
                trace.append((time.perf_counter() - began, best))
                if on_improve is not None:
                    on_improve(leader.state.best.copy(), best)
            left = seconds - (time.perf_counter() - began)
            spent = iterations is not None and walks[0].done >= iterations
            if left <= 0 or spent or should_stop() or best <= target:
                break
            piece = PIECE_ITERATIONS if iterations is None else min(PIECE_ITERATIONS, iterations - walks[0].done)
            walked = time.perf_counter() - walking
            possible = walks[0].done / walked * left if iterations is None and walks[0].done else np.inf
            list(pool.map(_Walk.step, walks, [piece] * len(walks), [possible] * len(walks)))
            _share_best(walks)
    leader = min(walks, key=lambda walk: walk.value)
    found = leader.state.best.copy() if np.isfinite(leader.value) else None
    value = evaluate(units, found, objective, communication) if found is not None else np.inf
    return SearchResult(found, value, sum(walk.done for walk in walks), trace)


def fitting_cycle(
    units: Units, objective: Objective, communication: Communication, seconds: float, threads: int
) -> int:
    """Iterations of a first cooling that takes most of the time, in coarse units.

    The speed is measured, all threads running: ask once, and use the answer for all runs that should take the same way.
    """
    folded = units if objective == "gpipe" else fold_directions(units)
    problem = problem_of(folded, objective == "gpipe", communication == "overlapped")
    longest = _longest_cycle(units)
    walks = [_Walk(units, problem, _spread(units, 0, True), 0, longest) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        list(pool.map(_Walk.step, walks, [PIECE_ITERATIONS] * threads))
    possible = PIECE_ITERATIONS / max(time.perf_counter() - began, 1e-9) * seconds * CYCLE_CAUTION
    power = int(np.log(max(1.0, possible / SHORTEST_CYCLE)) / np.log(CYCLE_UNIT))
    return min(longest, int(SHORTEST_CYCLE * CYCLE_UNIT**power))


def _longest_cycle(units: Units) -> int:
    return max(SHORTEST_CYCLE, min(CYCLE_PER_UNIT * units.unit_count, LONGEST_CYCLE))


def _share_best(walks: list[_Walk]) -> None:
    """A walk that ends a cycle well behind the leader continues from the leader's assignment."""
    leader = min(walks, key=lambda walk: walk.value)
    for walk in walks:
        if walk.progress >= 1.0 and walk.value > leader.value * 1.002:
            walk.state.best[:] = leader.state.best
            walk.state.scalars[0] = leader.value


def _spread(units: Units, seed: int, in_order: bool) -> IntArray:
    """A start: units in their order (or shuffled) cut into runs of work proportional to device speed."""
    rng = np.random.default_rng(seed)
    time_on = units.forward_time + units.backward_time
    speed = _kind_speed(time_on)
    kind = units.kind_of_device
    share = np.cumsum(speed[kind]) / speed[kind].sum()
    order = np.arange(units.unit_count) if in_order else rng.permutation(units.unit_count)
    least = time_on.min(axis=1)
    typical = np.where(np.isfinite(least), least, 0.0) + 1e-12
    position = np.cumsum(typical[order]) - 0.5 * typical[order]
    device = np.empty(units.unit_count, dtype=np.int32)
    device[order] = np.minimum(np.searchsorted(share, position / typical.sum()), len(kind) - 1)
    return _repair_support(units, device, rng)


def _random_runs(units: Units, rng: np.random.Generator) -> IntArray:
    """A start for graphs with costly tensors: runs of consecutive units, each on a random device."""
    devices = units.device_count
    cuts = np.sort(rng.integers(0, units.unit_count, size=int(rng.integers(1, 4)) * devices))
    run = np.searchsorted(cuts, np.arange(units.unit_count), side="right")
    speed = _kind_speed(units.forward_time + units.backward_time)[units.kind_of_device]
    device_of_run = rng.choice(devices, size=len(cuts) + 1, p=speed / speed.sum())
    return _repair_support(units, device_of_run[run].astype(np.int32), rng)


def _kind_speed(time_on: np.ndarray) -> np.ndarray:
    finite = np.isfinite(time_on).all(axis=1)
    total = time_on[finite].sum(axis=0) if finite.any() else np.ones(time_on.shape[1])
    return 1.0 / np.maximum(total, 1e-12 * max(total.max(), 1e-300))


def _repair_support(units: Units, device: IntArray, rng: np.random.Generator) -> IntArray:
    """Put units that their device's kind does not support on a random device that does."""
    usable = np.isfinite(units.forward_time + units.backward_time)[:, units.kind_of_device]
    for unit in np.flatnonzero(~usable[np.arange(len(device)), device]):
        choices = np.flatnonzero(usable[unit])
        if len(choices):
            device[unit] = rng.choice(choices)
    return device


def published_descent(
    units: Units,
    objective: Objective = "1f1b",
    communication: Communication = "added",
    *,
    accelerator_kind: int = 0,
    restarts: int = 10,
    least_gain: float = 1e-5,
    seed: int = 0,
    seconds: float = np.inf,
) -> SearchResult:
    """The published baseline: steepest descent from random assignments over one kind's devices.

    Memory is ignored, as published; `value` is then that of an assignment that may not be valid. Gives up at once
    when a unit is not supported on the kind.
    """
    began = time.perf_counter()
    folded = units if objective == "gpipe" else fold_directions(units)
    problem = problem_of(folded, objective == "gpipe", communication == "overlapped")
    devices = np.flatnonzero(units.kind_of_device == accelerator_kind).astype(np.int32)
    rng = np.random.default_rng(seed)
    best, best_value, trace = None, np.inf, []
    if not len(devices) or not np.isfinite((units.forward_time + units.backward_time)[:, accelerator_kind]).all():
        return SearchResult(None, np.inf, 0, [])
    unlimited = units._replace(kind_memory=np.full(len(units.kind_memory), np.inf))
    for _ in range(restarts):
        state = new_state(problem, rng.choice(devices, units.unit_count).astype(np.int32), 0)
        steepest_descent(problem, state, devices, least_gain)
        value = evaluate(unlimited, state.device, objective, communication)
        if value < best_value:
            best, best_value = state.device.copy(), value
            trace.append((time.perf_counter() - began, value))
        if time.perf_counter() - began > seconds:
            break
    return SearchResult(best, best_value, restarts, trace)
