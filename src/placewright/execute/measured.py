"""Placements judged by running them: every sample is on file at once, and no placement is measured twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget, Incumbent, Progress
from placewright.costs.machine import machine_text
from placewright.errors import PlacewrightError
from placewright.execute.live import LiveModel, runtime_package
from placewright.execute.measure import SETTLING_RUNS, compare, orders, settle, timing
from placewright.execute.memo import Measurement, Memo, context_key, placement_key
from placewright.execute.pipeline import Pipeline, run_pipeline, time_stream
from placewright.execute.placed import live_devices, live_stages, planned_starts, start_placement
from placewright.placement import Placement, checked_placement
from placewright.placers.base import Placer
from placewright.problems import Problem
from placewright.profiles import graph_fingerprint

AT_ONCE = 4  # placements that are kept compiled and run in turns
_WARM_UP = 2
_STREAM = 30  # samples through a pipeline count as one measurement
_INCUMBENTS = 6
_DEARER_COPIES = (3.0, 10.0)


class Rounds(NamedTuple):
    """How often candidates are run: all of them ``first`` times, then the best ``finalists`` ``last`` times more."""

    first: int = 3
    last: int = 10
    finalists: int = 4


DEFAULT_ROUNDS = Rounds()


class MeasuredEvaluator:
    """Seconds of placements by execution, under the problem's execution model; what the memo knows is not run again."""

    def __init__(
        self,
        live: LiveModel,
        problem: Problem,
        memo: Memo,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.live, self.problem, self.memo = live, problem, memo
        self._should_stop, self._say = should_stop, say
        self._keys: dict[int, tuple[Placement, str]] = {}

    def evaluate_many(self, rows: NDArray[np.int32], samples: int = 5) -> NDArray[np.float64]:
        """[rows] median seconds of placements [rows, ops]; infinite for invalid ones and those that failed to run."""
        placements = [checked_placement(self.problem, row, placer="given") for row in rows]
        self.measure([p for p in placements if p.is_valid], samples)
        return np.array([self.median_s(p) if p.is_valid else math.inf for p in placements])

    def measure(self, placements: Sequence[Placement], samples: int) -> None:
        """Run placements, some in turns, until each has so many samples, has failed, or it is time to stop."""
        lacking = [p for p in placements if self._lacks(p, samples)]
        for first in range(0, len(lacking), AT_ONCE):
            if self._should_stop():
                return
            self._say(f"running placements {first + 1} to {min(first + AT_ONCE, len(lacking))} of {len(lacking)}")
            self._measure_together(lacking[first : first + AT_ONCE], samples)

    def found(self, placement: Placement) -> Measurement:
        """What is known of a placement."""
        return self.memo.find(self.key(placement)) or Measurement(())

    def median_s(self, placement: Placement, skip: int = 0, end: int | None = None) -> float:
        """Median of the samples from ``skip`` to ``end``; infinite if there are none or the placement failed."""
        found = self.found(placement)
        seconds = found.samples_s[skip:end]
        return float(np.median(seconds)) if seconds and not found.failure else math.inf

    def key(self, placement: Placement) -> str:
        """What tells executions apart: the device of every op, and each device's order of work."""
        if id(placement) not in self._keys:
            self._keys[id(placement)] = (placement, self._new_key(placement))
        return self._keys[id(placement)][1]

    def _new_key(self, placement: Placement) -> str:
        if self.problem.execution == "pipeline":
            devices, stage = live_stages(self.live, placement)
            return placement_key({name: f"{stage[name]} {device}" for name, device in devices.items()})
        starts = planned_starts(placement, self.live.graph) or {}
        order = {name: i for i, name in enumerate(sorted(starts, key=lambda n: (starts[n], n)))}
        devices = live_devices(self.live, placement)
        is_split = len(set(devices.values())) > 1
        return placement_key({n: f"{order.get(n, -1) if is_split else -1} {d}" for n, d in devices.items()})

    def _lacks(self, placement: Placement, samples: int) -> bool:
        found = self.found(placement)
        return not found.failure and len(found.samples_s) < samples

    def _measure_together(self, placements: Sequence[Placement], samples: int) -> None:
        started: dict[str, tuple[Callable[[], float | None], Callable[[], None]]] = {}
        try:
            for placement in placements:
                if self._should_stop():
                    return
                key = self.key(placement)
                self.memo.keep_assignment(key, _document(placement))
                try:
                    started[key] = self._start(placement)
                except (PlacewrightError, RuntimeError, MemoryError) as error:
                    self.memo.add(key, Measurement((), f"{type(error).__name__}: {error}"[:500]))
            missing = max((samples - len((self.memo.find(k) or Measurement(())).samples_s) for k in started), default=0)
            for order in orders(list(started), missing):
                for key in order:
                    if self._should_stop():
                        return
                    seconds = started[key][0]()
                    if seconds is not None:
                        self.memo.add(key, Measurement((seconds,)))
        finally:
            for _, close in started.values():
                close()

    def _start(self, placement: Placement) -> tuple[Callable[[], float | None], Callable[[], None]]:
        """What takes one measurement, after some runs that show whether it can; and what closes it."""
        live = self.live
        if self.problem.execution == "pipeline":
            staged = live.staged(*live_stages(live, placement), self.problem.cluster).compiled()
            bags = [staged.bag(live.inputs)] * _STREAM
            run_pipeline(staged.stages(), bags[:_WARM_UP], keep_outputs=False)

            def stream() -> float | None:
                timed = time_stream(Pipeline(staged.stages()), bags, self._should_stop)
                return timed.sample_s if timed.run.n_samples == len(bags) else None

            return stream, lambda: None
        executor = start_placement(live, placement)

        def run() -> float:
            settle(lambda: executor(live.inputs), SETTLING_RUNS, 0.0)
            began = time.perf_counter()
            executor(live.inputs)
            return time.perf_counter() - began

        try:
            for _ in range(_WARM_UP):
                executor(live.inputs)
        except BaseException:
            executor.close()
            raise
        return run, executor.close


class RecordingBudget(Budget):
    """A budget that keeps every incumbent that a search came by."""

    def __init__(
        self, seconds: float, evaluations: int | None = None, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        self.history: list[Incumbent] = []
        super().__init__(seconds, evaluations, on_progress)

    @property
    def incumbent(self) -> Incumbent | None:
        return self.history[-1] if self.history else None

    @incumbent.setter
    def incumbent(self, incumbent: Incumbent | None) -> None:
        if incumbent is not None:
            self.history.append(incumbent)


def measurement_context(live: LiveModel, problem: Problem) -> str:
    """The key of all that makes measurements comparable."""
    kinds = {k.name: k for k in problem.cluster.kinds}
    devices = [(d.name, kinds[d.kind]) for d in problem.cluster.devices]
    return context_key(
        model=graph_fingerprint(live.graph),
        placed_as=graph_fingerprint(problem.graph),
        runtime=f"{live.runtime} {version(runtime_package(live.runtime))}",
        devices=[[n, k.runtime_device, k.threads, k.precision, k.instruction_set] for n, k in devices],
        machine=machine_text(),
        execution=problem.execution,
        settling_runs=SETTLING_RUNS,
        # Before, the shut-down of a pipeline counted; such measurements are not comparable.
        **({"clock": "first sample in, last one out"} if problem.execution == "pipeline" else {}),
    )


def candidate_placements(
    placer: Placer, problem: Problem, budget: RecordingBudget, seed: int
) -> tuple[Placement, list[Placement]]:
    """The placer's answer, and all that is worth running: it, what it passed on the way, and single devices.

    Part of the time goes to the same search with dearer copies, whose answers cut less: they do better where the
    profile makes cuts too cheap.
    """
    parts = 1 + len(_DEARER_COPIES) if problem.execution == "overlap" else 1
    answer = placer.place(problem, budget.part(budget.seconds * (0.6 if parts > 1 else 1.0)), seed)
    found = [answer]
    for incumbent in budget.history[: -_INCUMBENTS - 1 : -1]:
        found.append(_checked(problem, incumbent.device_of_op, incumbent.placer, incumbent.priority))
    for factor in _DEARER_COPIES[: parts - 1]:
        dearer = replace(problem, tensor_copy_s=problem.tensor_copy_s * factor)
        own = budget.apart(min(budget.remaining_s(), budget.seconds * 0.2), budget.evaluations)  # for other values
        other = placer.place(dearer, own, seed)
        if other.device_of_op is not None:
            found.append(_checked(problem, other.device_of_op, f"{placer.name}, copies x{factor:g}", other.priority))
    for d, name in enumerate(problem.cluster.device_names):
        found.append(_checked(problem, np.full(problem.n_ops, d), f"all on {name}", None))
    return answer, [p for p in found if p.is_valid]


def best_measured(
    evaluator: MeasuredEvaluator, candidates: Sequence[Placement], rounds: Rounds = DEFAULT_ROUNDS
) -> Placement | None:
    """Run candidates and those of earlier runs, run the best of them again, and return the best of that second look.

    ``None`` if none of them runs. The samples that chose the finalists do not count for the verdict between them.
    """
    problem, memo = evaluator.problem, evaluator.memo
    known = {evaluator.key(p): p for p in candidates}
    for key, document in memo.assignments().items():
        if key not in known and (placement := _restored(problem, document)) is not None:
            known[key] = placement
    evaluator.measure(list(known.values()), rounds.first)
    # By their first samples alone: later ones must not bring in other finalists when the search is run again.
    ranked = sorted(known.values(), key=lambda p: evaluator.median_s(p, 0, rounds.first))
    alone = [p for p in ranked if len(set(p.device_of_op.tolist())) == 1][:1]  # type: ignore[union-attr]
    finalists = [p for p in [*ranked[: rounds.finalists], *alone] if math.isfinite(evaluator.median_s(p))]
    finalists = list({id(p): p for p in finalists}.values())
    if not finalists:
        return None
    evaluator.measure(finalists, rounds.first + rounds.last)
    has_second = all(len(evaluator.found(p).samples_s) > rounds.first for p in finalists)
    skip = rounds.first if has_second else 0
    best = min(finalists, key=lambda p: evaluator.median_s(p, skip))
    return replace(best, measured=_figures(evaluator, best, alone, ranked, skip), note=_verdict(evaluator, best, alone))


def _figures(
    evaluator: MeasuredEvaluator, best: Placement, alone: Sequence[Placement], ranked: Sequence[Placement], skip: int
) -> Mapping[str, Any]:
    t = timing(np.array(evaluator.found(best).samples_s[skip:]))
    names = evaluator.problem.cluster.device_names
    singles = {}
    for p in ranked:
        devices = set(p.device_of_op.tolist())  # type: ignore[union-attr]
        if len(devices) == 1 and math.isfinite(evaluator.median_s(p)):
            singles[names[devices.pop()]] = evaluator.median_s(p, skip if p in alone else 0)
    return {
        "runtime": evaluator.live.runtime,
        "measured_s": t.median_s,
        "interval_s": [t.low_s, t.high_s],
        "predicted_s": best.value,
        "samples": len(t.samples_s),
        "single_device": singles,
        "candidates": [
            {
                "placer": p.placer,
                "predicted_s": p.value,
                "measured_s": s if math.isfinite(s := evaluator.median_s(p)) else None,
                "samples": len(evaluator.found(p).samples_s),
                "failure": evaluator.found(p).failure,
            }
            for p in ranked
        ],
    }


def _verdict(evaluator: MeasuredEvaluator, best: Placement, alone: Sequence[Placement]) -> str:
    if not alone or alone[0] is best:
        return "nothing that was run is faster than one device"
    ours, theirs = (timing(np.array(evaluator.found(p).samples_s)) for p in (best, alone[0]))
    return f"measured against {alone[0].placer}: {compare(ours, theirs)}"


def _checked(problem: Problem, row: NDArray[Any], placer: str, priority: Any) -> Placement:
    return checked_placement(problem, np.asarray(row), placer=placer, priority=priority)


def _document(placement: Placement) -> dict[str, Any]:
    return {
        "placer": placement.placer,
        "device_of_op": placement.device_of_op.tolist(),  # type: ignore[union-attr]
        "priority": None if placement.priority is None else placement.priority.tolist(),
    }


def _restored(problem: Problem, document: Mapping[str, Any]) -> Placement | None:
    row = np.array(document["device_of_op"], dtype=np.int32)
    if row.shape != (problem.n_ops,) or row.max(initial=0) >= problem.n_devices:
        return None
    priority = None if document["priority"] is None else np.array(document["priority"])
    placement = _checked(problem, row, str(document["placer"]), priority)
    return placement if placement.is_valid else None
