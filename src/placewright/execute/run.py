"""Run a placement for real: against every single device in turns, outputs compared, predicted beside measured."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from placewright.cluster import Cluster
from placewright.errors import InputError
from placewright.execute.live import Executor, LiveModel
from placewright.execute.measure import SETTLING_RUNS, Comparison, Timing, compare, measure_in_turns, timing
from placewright.execute.outputs import OutputError, difference
from placewright.execute.pipeline import PipelineRun, StageTimes, run_copies, run_pipeline
from placewright.execute.placed import live_stages, start_placement
from placewright.execute.stages import StagedModel
from placewright.placement import Placement

PLACED = "this placement"


class RunResult(NamedTuple):
    """What was measured. Under ``pipeline`` times are seconds per sample of a stream."""

    runtime: str
    predicted_s: float
    timings: dict[str, Timing]  # this placement, each device alone, and plain alternatives
    compile_s: float
    outputs: tuple[OutputError, ...]
    stages: tuple[StageTimes, ...]
    segments: int
    note: str = ""  # of the runtime

    @property
    def measured(self) -> Timing:
        return self.timings[PLACED]

    def against(self, name: str) -> Comparison:
        """This placement against another variant of the same run."""
        return compare(self.measured, self.timings[name])

    def summary(self, device_names: Sequence[str]) -> dict[str, Any]:
        """The keys that ``run --json`` prints."""
        return {
            "runtime": self.runtime,
            "measured_s": self.measured.median_s,
            "interval_s": [self.measured.low_s, self.measured.high_s],
            "throughput_per_s": 1 / self.measured.median_s,
            "predicted_s": self.predicted_s,
            "compile_s": self.compile_s,
            "single_device": {
                d: {"measured_s": self.timings[d].median_s, "throughput_per_s": 1 / self.timings[d].median_s}
                for d in device_names
                if d in self.timings
            },
            "alternatives": {
                n: {"measured_s": t.median_s} for n, t in self.timings.items() if n != PLACED and n not in device_names
            },
            "max_abs_error": max((o.max_abs for o in self.outputs), default=0.0),
            "max_rel_error": max((o.max_rel for o in self.outputs), default=0.0),
            "segments": self.segments,
            "stages": [s._asdict() for s in self.stages],
        }


def run_placement(
    live: LiveModel,
    placement: Placement,
    *,
    repeats: int = 20,
    warm_up: int = 3,
    samples: int = 50,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Execute and measure. ``samples`` is the length of the stream that a pipeline is measured with."""
    if placement.device_of_op is None:
        raise InputError("there is no placement to run: " + (placement.note or placement.status))
    problem = placement.problem
    with contextlib.ExitStack() as cleanup:
        if problem.execution == "pipeline":
            return _run_pipelines(live, placement, repeats, samples, should_stop)
        ours = start_placement(live, placement)
        cleanup.callback(ours.close)
        variants: dict[str, Callable[[], object]] = {PLACED: lambda: ours(live.inputs)}
        reference: list[Any] | None = None
        used = {problem.cluster.device_names[d] for d in placement.device_of_op}
        usable = _usable_alone(placement)
        for name in usable:
            if used == {name}:  # started a second time, the same model may be faster or slower by luck of its memory
                alone = ours
            else:
                alone = live.start(dict.fromkeys(live.graph.op_names, name), problem.cluster, None)
                cleanup.callback(alone.close)
            reference = alone(live.inputs) if reference is None else reference
            variants[name] = _bound(alone, live.inputs)
        for name, cluster in _wider(problem.cluster):
            wide = live.start(dict.fromkeys(live.graph.op_names, cluster.device_names[0]), cluster, None)
            cleanup.callback(wide.close)
            variants[name] = _bound(wide, live.inputs)
        for name, within in _within_memory(live, placement, usable):
            cleanup.callback(within.close)
            reference = within(live.inputs) if reference is None else reference
            variants[name] = _bound(within, live.inputs)
        errors = _output_errors(ours(live.inputs), reference)
        timings = measure_in_turns(variants, repeats, warm_up, settling_runs=SETTLING_RUNS, should_stop=should_stop)
        return RunResult(
            runtime=live.runtime,
            predicted_s=placement.value,
            timings=timings,
            compile_s=float(getattr(ours, "compile_s", 0.0)),
            outputs=errors,
            stages=(),
            segments=int(getattr(ours, "n_segments", 0)),
            note=str(getattr(ours, "note", "")),
        )


def _run_pipelines(
    live: LiveModel, placement: Placement, repeats: int, samples: int, should_stop: Callable[[], bool]
) -> RunResult:
    cluster = placement.problem.cluster
    devices, stage = live_stages(live, placement)
    began = time.perf_counter()
    staged = live.staged(devices, stage, cluster).compiled()
    compile_s = time.perf_counter() - began
    whole = {name: live.staged(*_alone(live, name), cluster).compiled() for name in _usable_alone(placement)}
    bags = [staged.bag(live.inputs) for _ in range(samples)]
    last: list[PipelineRun] = []

    def ours() -> None:
        last[:] = [run_pipeline(staged.stages(), bags, keep_outputs=False)]

    def streamed(model: StagedModel) -> Callable[[], object]:
        return lambda: run_pipeline(model.stages(), bags, keep_outputs=False)

    variants: dict[str, Callable[[], object]] = {PLACED: ours} | {n: streamed(m) for n, m in whole.items()}
    if len(whole) == len(cluster.devices) > 1:
        copies = [m.stages()[0].make() for m in whole.values()]
        variants["a copy on each device"] = lambda: run_copies(copies, bags)
    for name, wider in _wider(cluster):
        one = live.staged(*_alone(live, wider.device_names[0]), wider).compiled()
        variants[name] = streamed(one)
    timings = measure_in_turns(variants, repeats, 1, should_stop=should_stop)
    reference = _one_sample(next(iter(whole.values())), live.inputs) if whole else None
    return RunResult(
        runtime=live.runtime,
        predicted_s=placement.value,
        timings={n: timing(t.samples_s / samples) for n, t in timings.items()},
        compile_s=compile_s,
        outputs=_output_errors(_one_sample(staged, live.inputs), reference),
        stages=last[0].stages,
        segments=len(staged.parts),
    )


def _one_sample(staged: StagedModel, inputs: Sequence[Any]) -> list[Any]:
    return list(staged.outputs(run_pipeline(staged.stages(), [staged.bag(inputs)]).outputs[0]))


def _bound(executor: Callable[[Any], Any], inputs: Any) -> Callable[[], object]:
    return lambda: executor(inputs)


def _alone(live: LiveModel, device: str) -> tuple[dict[str, str], dict[str, int]]:
    return dict.fromkeys(live.graph.op_names, device), dict.fromkeys(live.graph.op_names, 0)


def _usable_alone(placement: Placement) -> list[str]:
    from placewright.placers.base import single_device_values

    return [name for name, value in single_device_values(placement.problem).items() if np.isfinite(value)]


def _within_memory(live: LiveModel, placement: Placement, usable: Collection[str]) -> Iterator[tuple[str, Executor]]:
    """The whole model on each accelerator that cannot hold it, with the rest in host memory, where that is possible."""
    problem = placement.problem
    cluster = problem.cluster
    for d, name in enumerate(cluster.device_names):
        if live.start_within is None or name in usable or cluster.is_host[d] or not problem.allowed[:, d].all():
            continue
        seconds = problem.op_time_s[:, cluster.device_kind[d]]
        op_time_s = dict(zip(problem.graph.op_names, seconds.tolist(), strict=True))
        try:
            executor = live.start_within(name, cluster, op_time_s)
        except InputError:
            continue  # nor is it when some of it waits elsewhere
        yield f"{name}, {getattr(executor, 'memory_note', '') or 'all of it'}", executor


def _wider(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    """What a plain run would do: the whole model on one device with as many threads as all of them together."""
    from dataclasses import replace

    kinds = {k.name: k for k in cluster.kinds}
    threads = [kinds[d.kind].threads for d in cluster.devices]
    if len(threads) > 1 and all(threads) and sum(threads) <= (os.cpu_count() or 1):
        first = kinds[cluster.devices[0].kind]
        wide = replace(first, threads=sum(threads))
        yield (
            f"{sum(threads)} threads, {first.precision or 'f32'}",
            replace(cluster, kinds=tuple(wide if k is first else k for k in cluster.kinds)),
        )


def _output_errors(ours: Sequence[Any], reference: Sequence[Any] | None) -> tuple[OutputError, ...]:
    if reference is None:
        return ()
    return tuple(
        difference(a, b)._replace(name=f"output {i}") for i, (a, b) in enumerate(zip(ours, reference, strict=True))
    )
