"""Running a placer from the command line: clock, progress, interruption, and the best so far if it comes to that."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placewright.budget import Budget, Progress
from placewright.cli import stopping
from placewright.cli.doing import doing
from placewright.placement import Placement, checked_placement, no_placement
from placewright.placers.base import Placer, best_single_device, make_ready
from placewright.problems import Problem
from placewright.text import time_text

if TYPE_CHECKING:
    from placewright.execute.live import LiveModel
    from placewright.execute.measured import MeasuredEvaluator

_KEEPS = "the best placement so far"


def run_placer(
    placer: Placer,
    problem: Problem,
    seconds: float,
    evaluations: int | None,
    seed: int,
    answer: Callable[[Placement], int],
) -> int:
    """Place within the budget; ``answer`` prints and writes the placement and returns the exit code."""
    _prepare(placer, problem)
    with _searching(placer, problem, seconds) as on_progress:
        budget = Budget(seconds, evaluations, on_progress)
        with interruptible(budget, _KEEPS, lambda: answer(best_so_far(placer, problem, budget, seed))):
            placement = placer.place(problem, budget, seed)
            with stopping.answering():
                return answer(placement)


def run_in_turn(
    jobs: Iterable[tuple[Placer, Problem]],
    seconds: float,
    evaluations: int | None,
    seed: int,
    answer: Callable[[list[Placement]], int],
) -> int:
    """Run placers one after another, with one ``answer`` for all; a signal ends them with what there is so far."""
    done: list[Placement] = []

    def keep(placement: Placement) -> int:
        done.append(placement)
        return answer(done) if stopping.is_last_resort() else 0

    def answer_so_far() -> int:
        if not done:
            raise ValueError("nothing to answer with")
        return answer(done)

    with stopping.kept(answer_so_far):
        try:
            for placer, problem in jobs:
                run_placer(placer, problem, seconds, evaluations, seed, keep)
                if stopping.was_stopped():
                    break
        except stopping.Stopped:
            if not done:
                raise
        with stopping.answering():
            return answer(done)


def run_placer_measured(
    placer: Placer,
    problem: Problem,
    seconds: float,
    evaluations: int | None,
    seed: int,
    live: LiveModel,
    memo_file: Path,
    answer: Callable[[Placement], int],
) -> int:
    """Place within the budget, then run the best candidates and answer with the one that is really fastest.

    If no candidate runs, the answer is the placer's own, with a note that says why.
    """
    from placewright.execute.measured import (
        MeasuredEvaluator,
        RecordingBudget,
        best_measured,
        candidate_placements,
        measurement_context,
    )
    from placewright.execute.memo import Memo

    memo_file.parent.mkdir(parents=True, exist_ok=True)
    context = measurement_context(live, problem)
    _prepare(placer, problem)
    with contextlib.ExitStack() as inside:
        memo = inside.enter_context(Memo(memo_file, context))
        with _searching(placer, problem, seconds) as on_progress:
            budget = RecordingBudget(seconds, evaluations, on_progress)
            inside.enter_context(
                interruptible(budget, _KEEPS, lambda: answer(best_so_far(placer, problem, budget, seed)))
            )
            own, candidates = candidate_placements(placer, problem, budget, seed)
        if not own.is_valid:
            with stopping.answering():
                return answer(own)

        def chosen(evaluator: MeasuredEvaluator) -> Placement:
            best = best_measured(evaluator, candidates)
            if best is None:
                reason = evaluator.found(candidates[0]).failure or "stopped before anything was measured"
                return replace(own, note=f"not measured: {reason}")
            return replace(best, seconds=budget.elapsed_s(), evaluations=own.evaluations, seed=seed)

        def chosen_so_far() -> int:
            with Memo(memo_file, context) as again:  # a connection serves one thread
                return answer(chosen(MeasuredEvaluator(live, problem, again, should_stop=lambda: True)))

        inside.enter_context(stopping.kept(chosen_so_far))
        with doing("measuring the best placements") as say:
            evaluator = MeasuredEvaluator(live, problem, memo, should_stop=stopping.was_stopped, say=say)
            best = chosen(evaluator)
        with stopping.answering():
            return answer(best)


def best_so_far(placer: Placer, problem: Problem, budget: Budget, seed: int) -> Placement:
    """The best placement that is known while the search still goes on: its incumbent, or all on one device."""
    floor = best_single_device(problem)
    note = f"{placer.name} was cut off; this is the best it had told of"
    name, seconds = placer.name, budget.elapsed_s()
    for known in sorted(budget.known(), key=lambda k: k.value):
        if floor is not None and known.value > floor[1]:
            break
        best = checked_placement(
            problem, known.device_of_op, placer=name, seed=seed, seconds=seconds, bound=budget.bound,
            priority=known.priority, replicas=known.replicas, note=note,
        )  # fmt: skip
        if best.is_valid:
            return best
    if floor is None:
        return no_placement(problem, placer=name, seed=seed, seconds=seconds, note=note)
    row = np.full(problem.n_ops, floor[0], dtype=np.int32)
    return checked_placement(problem, row, placer=name, seed=seed, seconds=seconds, bound=budget.bound, note=note)


def default_memo() -> Path:
    """Where measurements are kept unless a file is named."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "placewright" / "measurements.db"


@contextlib.contextmanager
def interruptible(budget: Budget, what: str, last_resort: Callable[[], int] | None = None) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM interrupts the budget, so that work ends with ``what``; the second one ends it."""
    with stopping.until_stopped(budget.interrupt, what, last_resort):
        yield


def _prepare(placer: Placer, problem: Problem) -> None:
    with doing(f"preparing '{placer.name}'") as say:
        say("what is not yet compiled is compiled now, which takes minutes the first time")
        make_ready(placer, problem)  # before the clock starts: not the placer's time


@contextlib.contextmanager
def _searching(placer: Placer, problem: Problem, seconds: float) -> Iterator[Callable[[Progress], None]]:
    with doing(f"searching with '{placer.name}'", seconds) as say:

        def show(p: Progress) -> None:
            parts = [f"value {time_text(p.value, problem.time_unit)}"] if math.isfinite(p.value) else []
            if p.bound > 0:
                parts += [f"bound {time_text(p.bound, problem.time_unit)}"]
                parts += [f"gap {p.value / p.bound - 1:.2%}"] if math.isfinite(p.value) else []
            parts += [f"{p.evaluations:,} evaluations"] if p.evaluations else []
            parts += [p.note] if p.note else []
            say(" · ".join(parts))

        yield show
