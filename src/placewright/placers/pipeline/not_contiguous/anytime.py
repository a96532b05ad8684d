"""The anytime exact placer: local search above, proofs below, until they meet or time is up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

import numpy as np

from placewright.extras import has_package
from placewright.placers.pipeline.not_contiguous.bounds import column_bound, combinatorial_bound
from placewright.placers.pipeline.not_contiguous.exact_process import Contiguity, ExactProcess, Settings, Solver
from placewright.placers.pipeline.not_contiguous.hypergraph import SECONDS_PER_UNIT, partition
from placewright.placers.pipeline.not_contiguous.search import local_search
from placewright.placers.pipeline.not_contiguous.units import Communication, IntArray, Objective, Units, evaluate

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
CLOSED_GAP = 1e-6  # value and bound this close: the rest is rounding
SMALL_CELLS = 300  # units x devices; up to here the constraint solver is faster, and its arithmetic is exact
LARGEST_HIGHS_CELLS, LARGEST_COSTLY_HIGHS_CELLS = 6_000, 2_000
FIRST_SEARCH_SHARE = 0.12  # of the time
POLL_SECONDS = 0.1


class SolveResult(NamedTuple):
    """`value` is recomputed by the plain evaluator; `bound` is proven; `trace` rows are (seconds, value, bound)."""

    device_of_unit: IntArray | None
    value: float
    bound: float
    status: Status
    trace: list[tuple[float, float, float]]

    @property
    def gap(self) -> float:
        return self.value / self.bound - 1 if self.bound > 0 else float("inf")


class _Board:
    """The best assignment and bound so far, shared by the workers."""

    def __init__(self, accept: Callable[[IntArray], float], report: Callable[[float, float], None] | None) -> None:
        self.lock = threading.Lock()
        self.began = time.perf_counter()
        self.accept, self.report = accept, report
        self.best: IntArray | None = None
        self.value, self.bound = np.inf, 0.0
        self.pool: list[IntArray] = []
        self.trace: list[tuple[float, float, float]] = []
        self.stopped = threading.Event()

    def offer(self, device_of_unit: IntArray) -> None:
        """Take an assignment if it is valid and better; it is always evaluated from scratch."""
        value = self.accept(device_of_unit)
        with self.lock:
            self.pool.append(device_of_unit.copy())
            if value < self.value:
                self.value, self.best = value, device_of_unit.copy()
                self._note()

    def raise_bound(self, bound: float) -> None:
        with self.lock:
            if bound > self.bound:
                self.bound = min(bound, self.value)
                self._note()

    def _note(self) -> None:
        self.trace.append((time.perf_counter() - self.began, self.value, self.bound))
        if self.report is not None:
            self.report(self.value, self.bound)

    def closed(self, gap: float) -> bool:
        return self.value <= self.bound * (1 + max(gap, CLOSED_GAP))


def solve(
    units: Units,
    objective: Objective = "1f1b",
    communication: Communication = "added",
    *,
    contiguity: Contiguity = "none",
    seconds: float = 60.0,
    gap: float = 0.0,
    goal_gap: float = 0.01,
    starts: list[IntArray] | None = None,
    lower: float = 0.0,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[float, float], None] | None = None,
) -> SolveResult:
    """Best assignment found in `seconds`, with a proven bound. Ends early once the relative gap is at most `gap`.

    `starts` are known assignments (a contiguous optimum, say); the result is never worse than the best valid one.
    `lower` is a bound proven elsewhere.
    `report(value, bound)` is called at every improvement of either.
    """
    if units.unit_count == 0:
        return SolveResult(np.zeros(0, dtype=np.int32), 0.0, 0.0, "optimal", [])

    def accept(device_of_unit: IntArray) -> float:
        if contiguity != "none" and not is_contiguous(units, device_of_unit, contiguity):
            return np.inf
        return evaluate(units, device_of_unit, objective, communication)

    board = _Board(accept, report)
    for start in starts or []:
        board.offer(start)
    board.raise_bound(lower)
    deadline = board.began + seconds

    def over() -> bool:
        return board.stopped.is_set() or should_stop() or board.closed(gap) or time.perf_counter() >= deadline

    status = _run_workers(units, objective, communication, contiguity, board, goal_gap, starts, seed, deadline, over)
    if board.best is None:
        outcome: Status = "infeasible" if status == "infeasible" else "unknown"
        return SolveResult(None, np.inf, np.inf if status == "infeasible" else board.bound, outcome, board.trace)
    closed = board.closed(0.0)
    return SolveResult(board.best, board.value, board.bound, "optimal" if closed else "feasible", board.trace)


def _run_workers(
    units: Units,
    objective: Objective,
    communication: Communication,
    contiguity: Contiguity,
    board: _Board,
    goal_gap: float,
    starts: list[IntArray] | None,
    seed: int,
    deadline: float,
    over: Callable[[], bool],
) -> str:
    """Search and bounds in one thread; beside them an exact programme in its own process.

    HiGHS starts at once: with a start of its own it soon finds better assignments than from one that is nearly as
    good as annealing gets. CP-SAT waits for an assignment, which bounds its numbers.
    """

    def first_search_and_bound() -> None:
        _first_search(units, objective, communication, board, starts, seed, deadline, over)
        if over():
            return
        seconds = max(0.5, 0.05 * (deadline - time.perf_counter()))
        board.raise_bound(combinatorial_bound(units, board.value, communication, seconds=seconds, should_stop=over))

    def column_bounds() -> None:
        while not np.isfinite(board.value) and not over():
            time.sleep(POLL_SECONDS)
        column_bound(
            units,
            lambda: board.value,
            board.bound,
            communication,
            seconds=deadline - time.perf_counter(),
            assignments=list(board.pool[-40:]),
            goal_gap=goal_gap,
            seed=seed,
            should_stop=over,
            on_bound=board.raise_bound,
        )

    def keep_searching() -> None:
        if contiguity == "none":
            _keep_searching(units, objective, communication, board, seed, deadline, over)

    def one_after_another(*parts: Callable[[], None]) -> None:
        for part in parts:
            if not over():
                part()

    solver = solver_for(units, contiguity)
    if solver != "highs":
        first_search_and_bound()
    with ThreadPoolExecutor(2) as pool:
        if solver == "highs":
            jobs = [pool.submit(one_after_another, first_search_and_bound, column_bounds, keep_searching)]
        elif solver == "cpsat":
            jobs = [pool.submit(one_after_another, column_bounds, keep_searching)]
        else:
            jobs = [pool.submit(column_bounds), pool.submit(keep_searching)]
        status = "unknown"
        if solver is not None and not over():
            status = _run_exact(units, objective, communication, contiguity, board, seed, deadline, over, solver)
        while not over() and not all(job.done() for job in jobs):
            time.sleep(POLL_SECONDS)
        board.stopped.set()
        for job in jobs:
            job.result()
    return "infeasible" if not np.isfinite(board.bound) else status


def solver_for(units: Units, contiguity: Contiguity) -> Solver | None:
    """CP-SAT for contiguity and for small problems where it is installed, HiGHS up to a size, none beyond.

    The size is less where copies cost more than the work: the linear relaxation then says little, and the core is
    better spent on search.
    """
    cells = units.unit_count * units.device_count
    if (contiguity != "none" or cells <= SMALL_CELLS) and has_package("ortools"):
        return "cpsat"
    if contiguity != "none":  # HiGHS has no programme for it
        return None
    return "highs" if cells <= (LARGEST_COSTLY_HIGHS_CELLS if copies_lead(units) else LARGEST_HIGHS_CELLS) else None


def copies_lead(units: Units) -> bool:
    """Whether all copies together cost more than the work at its fastest."""
    work = (units.forward_time + units.backward_time).min(axis=1).sum()
    return bool((units.tensor_in + units.tensor_out).max(axis=1, initial=0.0).sum() > work)


def _first_search(
    units: Units,
    objective: Objective,
    communication: Communication,
    board: _Board,
    starts: list[IntArray] | None,
    seed: int,
    deadline: float,
    over: Callable[[], bool],
) -> None:
    """Also for contiguous problems: its sets feed the bounds, its assignments count only when contiguous."""
    seconds = FIRST_SEARCH_SHARE * (deadline - time.perf_counter())
    known = list(starts or [])
    if has_package("mtkahypar") and units.unit_count * SECONDS_PER_UNIT < seconds:
        balanced = partition(units, objective, communication, seed=seed).device_of_unit
        known += [balanced] if balanced is not None else []
    local_search(
        units,
        objective,
        communication,
        starts=known[:2],
        seed=seed,
        seconds=min(seconds, 15.0, 0.005 * units.unit_count * units.device_count),
        should_stop=over,
        on_improve=lambda device_of_unit, value: board.offer(device_of_unit),
    )


def _keep_searching(
    units: Units,
    objective: Objective,
    communication: Communication,
    board: _Board,
    seed: int,
    deadline: float,
    over: Callable[[], bool],
) -> None:
    """Restart the annealing from the best assignment in ever longer runs."""
    span = 10.0
    while not over():
        seed += 1
        local_search(
            units,
            objective,
            communication,
            starts=[board.best] if board.best is not None and seed % 2 else None,
            seed=seed,
            seconds=min(span, deadline - time.perf_counter()),
            threads=1,
            should_stop=over,
            on_improve=lambda device_of_unit, value: board.offer(device_of_unit) if value < board.value else None,
        )
        span *= 1.3


def _run_exact(
    units: Units,
    objective: Objective,
    communication: Communication,
    contiguity: Contiguity,
    board: _Board,
    seed: int,
    deadline: float,
    over: Callable[[], bool],
    solver: Solver,
) -> str:
    left = deadline - time.perf_counter()
    settings = Settings(objective, communication, contiguity, left, 1, seed, board.value, board.best)
    process = ExactProcess(units, settings, solver)
    status = "unknown"
    try:
        while not process.finished and not over() and time.perf_counter() < deadline:
            for message in process.messages():
                if message.solution is not None:
                    board.offer(message.solution)
                elif message.name == "bound":
                    board.raise_bound(message.bound)
                elif message.status == ("infeasible" if board.best is None else "optimal"):
                    status = message.status
                    board.stopped.set()
            time.sleep(0.02)
    finally:
        process.close()
    return status


def is_contiguous(units: Units, device_of_unit: IntArray, contiguity: Contiguity) -> bool:
    """Whether no path leaves a device and returns ("convex"), or the devices form a line ("chain")."""
    if contiguity == "chain":
        return _is_acyclic(_device_edges(units, device_of_unit), units.device_count)
    return all(_is_convex(units, device_of_unit == device) for device in np.unique(device_of_unit))


def _device_edges(units: Units, device_of_unit: IntArray) -> set[tuple[int, int]]:
    tail = np.repeat(device_of_unit, np.diff(units.successor_ptr))
    head = device_of_unit[units.successor]
    return set(zip(tail[tail != head].tolist(), head[tail != head].tolist(), strict=True))


def _is_acyclic(edges: set[tuple[int, int]], nodes: int) -> bool:
    left = set(range(nodes))
    while left:
        free = {node for node in left if not any(b == node and a in left for a, b in edges)}
        if not free:
            return False
        left -= free
    return True


def _is_convex(units: Units, member: np.ndarray) -> bool:
    """Walk forward from where edges leave the set; meeting it again means a path returned."""
    stack = [int(h) for u in np.flatnonzero(member) for h in _heads(units, int(u)) if not member[h]]
    seen = set(stack)
    while stack:
        for head in _heads(units, stack.pop()):
            if member[head]:
                return False
            if head not in seen:
                seen.add(int(head))
                stack.append(int(head))
    return True


def _heads(units: Units, unit: int) -> IntArray:
    return units.successor[units.successor_ptr[unit] : units.successor_ptr[unit + 1]]
