"""Several chains on all cores, from several starts, cooled together until the budget ends."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget, Incumbent
from placewright.evaluate import lower_bound
from placewright.evaluate.batch import cpu_count
from placewright.evaluate.judging import memory_matters, simulated
from placewright.graph import FloatArray, IntArray
from placewright.placers.search import moves
from placewright.placers.search.loop import CALLS, OVERLAP, SEQUENTIAL, anneal, start_chain
from placewright.placers.search.moves import Chain, flow_of, ranks_from_placement
from placewright.placers.search.pace import Pace, planned
from placewright.placers.search.state_overlap import least_tails_s, new_engine, new_log
from placewright.placers.search.view_calls import new_calls_engine
from placewright.placers.search.view_overlap import new_loads, windows
from placewright.placers.units import movable_units, whole_units
from placewright.problems import Problem, once_per_problem

_MODEL = {"overlap": OVERLAP, "sequential": SEQUENTIAL, "calls": CALLS}
_WEIGHTS = {
    moves.SINGLE: 2.0, moves.CRITICAL: 3.0, moves.SWAP: 2.0, moves.CLUSTER: 1.0, moves.CLUSTER_SWAP: 1.0,
    moves.BOUNDARY: 2.0, moves.ORDER: 1.0, moves.CRITICAL_ORDER: 1.0, moves.RANKS: 0.02,
    moves.PRICED: 2.0,
}  # fmt: skip
_NEEDS_CLOCK = (moves.ORDER, moves.CRITICAL_ORDER, moves.RANKS)
_SAMPLES, _SAMPLING_SHARE = 100, 0.05  # moves tried to learn how much a move changes, and their share of the time
_FIRST_SHARE, _AGAIN_SHARE, _LAST_SHARE = 0.1, 0.03, 0.001  # temperatures, as shares of the median loss of a move
_CALLS_HEAT = 5.0  # times as hot under ``calls``
_SPREAD_FIRST_SHARE, _SPREAD_LAST_SHARE = 0.5, 0.001  # the same while loads are spread
_SPREAD_TIME, _MOST_SPREAD = 0.25, 256  # share of the time for that, at most, and steps per unit, at most
_WINDOWS = (4, 7, 2, 15)  # parts of the run that loads are counted in, one chain after another
_LOAD_WEIGHT = 30.0  # of the busiest devices and channels in the score of some chains, beside the value
_WORK_WEIGHT = 0.5  # of priced work in the score of the others
_HEAT = 0.3  # share of the way on which many chains compete; the best ones are heated again and share the rest
_FIRST_ROUND = 0.95  # of the time, at most, until the best chains are heated again: one long round beats several
# Of the time that is left when no whole round fits any more the next one takes the first share, those after it the
# other share each: a run on a machine that is a little slower just then misses only short rounds.
_LAST_ROUND, _SHORT_ROUND = 0.85, 0.5
_EXCHANGES = 5  # times that the worst of these takes over the best one's placement
_PRICE_STEPS = 200
_LARGE = 4000  # ops from which on two chains compete per core, below there are four


_STATE = ("device", "rank", "op_of_rank", "best_device", "best_rank", "values", "random", "tried", "taken", "gain")


class Point(NamedTuple):
    """A placement with its order; ``priority`` is ``None`` where the model has none or first come, first served."""

    device_of_op: NDArray[np.int32]
    priority: FloatArray | None = None


class Annealed(NamedTuple):
    """The best valid placement, ``None`` if none was met."""

    best: Point | None
    value: float
    evaluations: int


def anneal_from(
    problem: Problem, starts: Sequence[Point], budget: Budget, seed: int, threads: int | None = None
) -> Annealed:
    """Anneal from the given starts until the budget ends; the first start should be the best one.

    With ``budget.evaluations`` the result depends on the seed alone, unless the time ends first. Without, the number of
    steps of the first round is planned in coarse units from the speed that was seen, and all other rounds follow from
    that: runs of the same budget nearly always take the same way and differ only in how far they get at the end.
    """
    search = _Search(problem, starts, seed, threads or cpu_count())
    budget.knows(search.known)
    with ThreadPoolExecutor(search.threads) as search.pool:
        if search.model == OVERLAP and not search.strict:
            search.spread(budget)
        search.cool(budget)
    return search.result()


class _Search:
    pool: ThreadPoolExecutor

    def __init__(self, problem: Problem, starts: Sequence[Point], seed: int, threads: int) -> None:
        self.problem, self.n_starts, self.threads = problem, len(starts), threads
        a = problem.arrays
        n_chains = threads * (2 if problem.n_ops >= _LARGE else 4)
        self.model = _MODEL[problem.execution]
        self.strict = bool(problem.max_segments) or memory_matters(problem)
        impossible = {OVERLAP: (), SEQUENTIAL: (moves.CRITICAL, *_NEEDS_CLOCK), CALLS: _NEEDS_CLOCK}[self.model]
        self.weights = np.array([0.0 if k in impossible else _WEIGHTS[k] for k in range(moves.N_KINDS)])
        least_time_s = problem.op_device_time_s.min(axis=1)
        tails = least_tails_s(a, least_time_s)
        price = work_prices(problem) if self.model == OVERLAP else np.zeros(problem.n_devices)
        self.chains = [_new_chain(problem, starts[i % len(starts)], price, seed * 1000 + i) for i in range(n_chains)]
        self.engines = [new_engine(a, tails) for _ in self.chains]
        self.calls = [new_calls_engine(a, problem.n_ops if self.model == CALLS else 0) for _ in self.chains]
        self.loads = [
            new_loads(a, windows(a, least_time_s, _WINDOWS[i // 2 % len(_WINDOWS)]), self.model == OVERLAP)
            for i in range(n_chains)
        ]
        self.logs = [new_log(problem.n_ops) for _ in self.chains]
        self.flow = flow_of(a, problem.op_time_s[:, problem.cluster.device_kind])
        self.loads_only = False
        self.is_ending = False  # no whole round fits any more
        # Where devices are the bottleneck loads lead, where the longest way is they mislead: every other chain each.
        self.by_loads = [self.model == OVERLAP and i % 2 == 1 for i in range(n_chains)]
        self.typical_loss = [1.0] * n_chains  # of a move, in the score of each chain
        self.evaluations = len(self.chains)
        for i in range(n_chains):
            self._start(i)

    def spread(self, budget: Budget) -> None:
        """Spread work and copies over devices and channels, schedules apart; other chains stay as they are."""
        chosen = [i for i, led in enumerate(self.by_loads) if led]
        units = len(self.chains[0].allowed)
        self.loads_only = True
        self._sample_losses(budget)
        heat = partial(_temperature, _SPREAD_FIRST_SHARE, _SPREAD_LAST_SHARE)
        if budget.evaluations:
            pace = Pace(min(20 * budget.evaluations, 100 * units))
        else:
            seconds = _SPREAD_TIME * budget.remaining_s()
            pace = planned(self._speed(chosen, heat(0.0), 0.05 * seconds), seconds, _MOST_SPREAD * units)
        while pace.share < 1 and not budget.expired():
            hot, steps = heat(pace.share), pace.next_steps()
            self._all_steps(chosen, steps, hot, heat(pace.share))
        self.loads_only = False
        for i, c in enumerate(self.chains):
            if i in chosen:
                ranks_from_placement(self.problem.arrays, c.device, 0.0, c.random, c.rank, c.op_of_rank)
            self._start(i)

    def cool(self, budget: Budget) -> None:
        """Run all chains while the temperature falls, and on at the last one while time is left."""
        chosen = list(range(len(self.chains)))
        self._sample_losses(budget.part(_SAMPLING_SHARE * budget.remaining_s()))
        goal = lower_bound(self.problem) * (1 + 1e-9)
        most = budget.evaluations
        if most:
            pace = Pace(max(1, most // len(chosen)))
        else:
            speed = self._speed(chosen, (_FIRST_SHARE * _LAST_SHARE) ** 0.5, 0.02 * budget.remaining_s())
            pace = planned(speed, _FIRST_ROUND * budget.remaining_s())
        first_steps, again, exchanged, best, idle = pace.steps, 0, 0, math.inf, 0
        seconds, taken = budget.remaining_s(), 0
        while not budget.expired():
            before, steps = pace.share, pace.next_steps(None if most else budget.remaining_s())
            if most:
                pace.share = min(1.0, (self.evaluations + steps * len(self.chains)) / most)
            taken += steps
            steps *= len(self.chains) // len(chosen)
            done = self._all_steps(chosen, steps, _heat(before), _heat(pace.share))
            self.evaluations += done
            value = min(c.values[1] for c in self.chains)
            if value < best:
                best = float(value)
                budget.report(best, evaluations=self.evaluations)
            idle = 0 if done else idle + steps
            if idle > 1000 or best <= goal or (most and self.evaluations >= most):
                break  # no move is possible, none can be better, or all are made
            if pace.share >= 1 and not most:
                left_s = budget.remaining_s()
                possible = taken / max(seconds - left_s, 1e-9) * left_s
                length = first_steps * 2 ** (again // 2) // 2
                pace = Pace(self._round(again, length, possible, seconds), share=_HEAT)
                again, exchanged = again + 1, 0
                for i in chosen:
                    self._take_over(i, i)
            elif pace.share >= _HEAT and len(chosen) > self.threads:
                chosen = sorted(chosen, key=lambda i: self.chains[i].values[1])[: self.threads]
                for i in chosen:
                    self._take_over(i, i)
            elif (pace.share - _HEAT) * (_EXCHANGES + 1) >= (exchanged + 1) * (1 - _HEAT):
                exchanged += 1
                self._exchange(chosen)

    def _round(self, number: int, steps: int, possible: float, seconds: float) -> int:
        """The steps of a round; the last one is made to cool down when the time ends. Found once, as speeds are."""
        known = _known_rounds(self.problem)
        key = (self.n_starts, self.threads, round(math.log2(max(seconds, 1e-9))), number)
        if possible < 1.5 * steps:
            steps = max(1, int((_SHORT_ROUND if self.is_ending else _LAST_ROUND) * possible))
            self.is_ending = True
        return known.setdefault(key, steps)

    def _all_steps(self, chosen: Sequence[int], steps: int, hot: float, cold: float) -> int:
        return sum(self.pool.map(partial(self._steps, steps=steps, hot=hot, cold=cold), chosen))

    def _speed(self, chosen: Sequence[int], temperature: float, seconds: float) -> float:
        """Steps per second of each chain, all running, found in ``seconds`` at most; the chains stay as they were.

        Measured once for a problem, as many starts and about as much time: whoever anneals it again plans alike.
        """
        known = _known_speeds(self.problem)
        key = (self.n_starts, len(chosen), self.threads, self.loads_only, round(math.log2(max(seconds, 1e-9))))
        if key not in known:
            kept = [[getattr(c, name).copy() for name in _STATE] for c in self.chains]
            steps, took = 4, 0.0
            while took < seconds / 6:
                steps *= 4
                began = time.monotonic()
                self._all_steps(chosen, steps, temperature, temperature)
                took = time.monotonic() - began
            for chain, arrays in zip(self.chains, kept, strict=True):
                for name, array in zip(_STATE, arrays, strict=True):
                    getattr(chain, name)[:] = array
            known[key] = steps / max(took, 1e-9)
        for i in range(len(self.chains)):
            self._start(i)  # measured or not: sums that were followed differ from new ones in the last digits
        return known[key]

    def known(self) -> Incumbent | None:
        """The best placement so far, while it goes on."""
        best, value, _ = self.result()
        return None if best is None else Incumbent(best.device_of_op, value, best.priority)

    def result(self) -> Annealed:
        chain = min(self.chains, key=lambda c: c.values[1])
        value = float(chain.values[1])
        if math.isinf(value):
            return Annealed(None, value, self.evaluations)
        priority = chain.best_rank.astype(np.float64) if self.model == OVERLAP else None
        return Annealed(Point(chain.best_device.copy(), priority), value, self.evaluations)

    def _start(self, i: int) -> None:
        p = self.problem
        start_chain(
            p.arrays, self.flow, self.loads[i], self.engines[i], self.logs[i], self.calls[i], self.chains[i],
            self.model, p.max_segments or 0, self.strict,
        )  # fmt: skip

    def _steps(self, i: int, steps: int, hot: float, cold: float, deltas: FloatArray | None = None) -> int:
        p = self.problem
        room, loss = np.zeros(0) if deltas is None else deltas, self.typical_loss[i]
        load_weight = 1.0 if self.loads_only else _LOAD_WEIGHT if self.by_loads[i] else 0.0
        work_weight = 0.0 if self.loads_only or self.by_loads[i] else _WORK_WEIGHT
        return anneal(
            p.arrays, self.flow, self.loads[i], self.engines[i], self.logs[i], self.calls[i], self.chains[i],
            self.model, p.max_segments or 0, self.strict, self.loads_only, self.weights, load_weight, work_weight,
            steps, loss * hot, loss * cold, room,
        )  # fmt: skip

    def _sample_losses(self, budget: Budget) -> None:
        """Learn how much a move costs in the two sorts of scores: temperatures are shares of that."""
        for sort in (False, True):
            alike = [i for i, led in enumerate(self.by_loads) if led == sort]
            if alike and (sort or not self.loads_only):
                loss = self._median_loss(alike[0], budget) * (_CALLS_HEAT if self.model == CALLS else 1.0)
                for i in alike:
                    self.typical_loss[i] = loss

    def _median_loss(self, chain: int, budget: Budget) -> float:
        parts: list[FloatArray] = []
        while len(parts) < _SAMPLES // 10 and not (parts and budget.expired()):
            parts.append(np.full(10, np.nan))
            self.evaluations += self._steps(chain, 10, 1.0, 1.0, parts[-1])
        deltas = np.concatenate([np.zeros(0), *parts])
        losses = deltas[np.isfinite(deltas) & (deltas > 0)]
        value = self.chains[chain].values[0]
        return float(np.median(losses)) if len(losses) else max(1e-6 * (value if np.isfinite(value) else 1.0), 1e-300)

    def _exchange(self, chosen: list[int]) -> None:
        """The chain with the worst placement, loads apart, goes on from the best placement found."""
        best = min(chosen, key=lambda i: self.chains[i].values[1])
        worst = max(chosen, key=lambda i: self.chains[i].values[0] - self.chains[i].values[2])
        if best != worst:
            self._take_over(worst, best)

    def _take_over(self, target: int, source: int) -> None:
        """Go on from the best placement that a chain has met, if it has met a valid one."""
        chain = self.chains[source]
        if math.isfinite(chain.values[1]):
            _set_point(self.chains[target], chain.best_device, chain.best_rank)
            self._start(target)


@once_per_problem
def _known_speeds(problem: Problem) -> dict[tuple[int, int, int, bool, int], float]:
    return {}


@once_per_problem
def _known_rounds(problem: Problem) -> dict[tuple[int, int, int, int], int]:
    return {}


def _temperature(first: float, last: float, share: float) -> float:
    """How hot it is, in typical losses, when ``share`` of the way is done."""
    return float(first * (last / first) ** share)


def _heat(share: float) -> float:
    """The temperature when ``share`` of the way is done: it falls twice."""
    if share < _HEAT:
        return _temperature(_FIRST_SHARE, _LAST_SHARE, share / _HEAT)
    return _temperature(_AGAIN_SHARE, _LAST_SHARE, (share - _HEAT) / (1 - _HEAT))


def _new_chain(problem: Problem, start: Point, price: FloatArray, seed: int) -> Chain:
    units = movable_units(problem)
    n, n_units = problem.n_ops, len(units.allowed)
    unit_ptr = np.concatenate([[0], np.cumsum(np.bincount(units.unit_of_op, minlength=n_units))]).astype(np.int32)
    ints = [np.zeros(n, dtype=np.int32) for _ in range(8)]
    chain = Chain(
        device=ints[0], rank=ints[1], op_of_rank=ints[2], best_device=ints[3], best_rank=ints[4],
        values=np.array([np.inf, np.inf, 0.0]), price=price,
        random=np.random.default_rng(seed).integers(1, 2**63, 1).astype(np.uint64),
        unit_of_op=units.unit_of_op, unit_ptr=unit_ptr,
        unit_op=np.argsort(units.unit_of_op, kind="stable").astype(np.int32), allowed=units.allowed,
        staged_unit=np.zeros(2 * n_units + 2, dtype=np.int32), staged_from=np.zeros(2 * n_units + 2, dtype=np.int32),
        staged_ranks=np.zeros(4, dtype=np.int32), counts=np.zeros(3, dtype=np.int32),
        first_change=np.zeros(1, dtype=np.int32), work_change_s=np.zeros(problem.n_devices), critical=ints[5],
        mark=np.zeros(n, dtype=np.int32), queue=ints[6], stamp=np.zeros(1, dtype=np.int32), old_rank=ints[7],
        tried=np.zeros(moves.N_KINDS, dtype=np.int32), taken=np.zeros(moves.N_KINDS, dtype=np.int32),
        gain=np.zeros(moves.N_KINDS),
    )  # fmt: skip
    device = whole_units(problem, start.device_of_op)
    _set_point(chain, device, rank_of(problem, device, start.priority))
    return chain


def work_prices(problem: Problem) -> FloatArray:
    """What a second of each device's work is worth when work is spread best; the prices add up to 1.

    Multiplicative weights: units go where they are cheapest, devices with more work than others get dearer. With
    prices in the score a search sees progress where the value alone is flat.
    """
    time_s = movable_units(problem).time_s
    rows, n = np.arange(len(time_s)), problem.n_devices
    price = np.full(n, 1 / n)
    mean = np.zeros(n)
    for step in range(_PRICE_STEPS):
        choice = (time_s * price).argmin(axis=1)
        load = np.bincount(choice, time_s[rows, choice], n)
        price = price * np.exp(2.0 / (step + 4) ** 0.5 * (load / max(load.sum(), 1e-300) - 1 / n))
        price /= price.sum()
        mean += price if 2 * step >= _PRICE_STEPS else 0.0
    return mean / mean.sum()


def _set_point(chain: Chain, device: NDArray[np.int32], rank: IntArray) -> None:
    chain.device[:] = device
    chain.rank[:] = rank
    chain.op_of_rank[rank] = np.arange(len(rank), dtype=np.int32)


def rank_of(problem: Problem, device: NDArray[np.int32], priority: FloatArray | None) -> IntArray:
    """Ranks that lead to the same order as ``priority`` (``None``: first come, first served), nearly always."""
    n = problem.n_ops
    if problem.execution != "overlap":
        return np.arange(n, dtype=np.int32)
    start_s = simulated(problem, device, priority)[1].start_s
    order = np.lexsort((np.arange(n), start_s)) if priority is None else np.lexsort((start_s, priority))
    rank = np.empty(n, dtype=np.int32)
    rank[order] = np.arange(n, dtype=np.int32)
    return rank
