"""Running a placer from the command line: clock, progress on a terminal, interruption."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from placewright.budget import Budget, Progress
from placewright.placement import Placement
from placewright.placers.base import Placer, make_ready
from placewright.problem import Problem
from placewright.text import time_text

if TYPE_CHECKING:
    from placewright.execute.live import LiveModel


def run_placer(
    placer: Placer, problem: Problem, seconds: float, evaluations: int | None, seed: int, *, show_progress: bool
) -> Placement:
    """Place within the budget. The first Ctrl-C or SIGTERM asks for the best so far, the second one ends at once."""
    with _progress_line(placer.name, problem, show_progress) as on_progress:
        make_ready(placer, problem)  # the first time this compiles the kernels, which is not the placer's time
        budget = Budget(seconds, evaluations, on_progress)
        with interruptible(budget, "the best placement so far"):
            return placer.place(problem, budget, seed)


def run_placer_measured(
    placer: Placer,
    problem: Problem,
    seconds: float,
    evaluations: int | None,
    seed: int,
    live: LiveModel,
    memo_file: Path,
    *,
    show_progress: bool,
) -> Placement:
    """Place within the budget, then run the best candidates and return the one that is really fastest.

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
    with Memo(memo_file, measurement_context(live, problem)) as memo:
        with _progress_line(placer.name, problem, show_progress) as on_progress:
            make_ready(placer, problem)
            budget = RecordingBudget(seconds, evaluations, on_progress)
            with interruptible(budget, "the best placement so far"):
                answer, candidates = candidate_placements(placer, problem, budget, seed)
        if not answer.is_valid:
            return answer
        rest = Budget(math.inf)
        with status_line("measuring", show_progress) as say, interruptible(rest, "what has been measured"):
            evaluator = MeasuredEvaluator(live, problem, memo, should_stop=rest.expired, say=say)
            best = best_measured(evaluator, candidates)
        if best is None:
            reason = evaluator.found(candidates[0]).failure or "stopped before anything was measured"
            return replace(answer, note=f"not measured: {reason}")
        return replace(best, seconds=budget.elapsed_s(), evaluations=answer.evaluations, seed=seed)


def default_memo() -> Path:
    """Where measurements are kept unless a file is named."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "placewright" / "measurements.db"


@contextlib.contextmanager
def interruptible(budget: Budget, what: str) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM interrupts the budget, so that work ends with ``what``; the second one ends it."""

    def stop(number: int, frame: FrameType | None) -> None:
        if budget.is_interrupted:
            raise KeyboardInterrupt
        budget.interrupt()
        print(f"placewright: interrupted, finishing with {what}", file=sys.stderr)

    with caught(stop):
        yield


@contextlib.contextmanager
def caught(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to ``handler``, even if a shell started us with Ctrl-C ignored."""
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, handler)
    except ValueError:  # not in the main thread: the caller looks after signals
        pass
    try:
        yield
    finally:
        for stopped, previous in before.items():
            signal.signal(stopped, previous)


@contextlib.contextmanager
def _progress_line(name: str, problem: Problem, wanted: bool) -> Iterator[Callable[[Progress], None] | None]:
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(f"{escape(name)}: preparing (the first run compiles for some seconds)") as line:
        last = 0.0

        def show(p: Progress) -> None:
            nonlocal last
            if time.monotonic() - last < 0.1:
                return
            last = time.monotonic()
            parts = [f"{p.seconds:.0f} s", f"value {time_text(p.value, problem.time_unit)}"]
            if p.bound > 0:
                parts += [f"bound {time_text(p.bound, problem.time_unit)}", f"gap {p.value / p.bound - 1:.2%}"]
            parts += [f"{p.evaluations:,} evaluations"] if p.evaluations else []
            parts += [p.note] if p.note else []
            line.update(escape(f"{name}: " + " · ".join(parts)))

        yield show


@contextlib.contextmanager
def status_line(text: str, wanted: bool) -> Iterator[Callable[[str], None]]:
    """A line on the terminal that says what is being done; what it gives replaces the text."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(text)) as line:
        yield lambda text: line.update(escape(text))
