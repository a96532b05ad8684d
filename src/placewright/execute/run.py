"""Run a placement for real: against every single device in turns, outputs compared, predicted beside measured."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from placewright.cluster import Cluster
from placewright.errors import InputError, PlacewrightError
from placewright.execute.live import Executor, LiveModel
from placewright.execute.measure import SETTLING_RUNS, Comparison, Timing, compare, orders, settle, timing
from placewright.execute.outputs import OutputError, difference
from placewright.execute.pipeline import Copies, Pipeline, StageTimes, run_pipeline, time_stream
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
    latencies: dict[str, Timing] | None = None  # under ``pipeline``: one sample that has all devices to itself

    @property
    def measured(self) -> Timing:
        return self.timings[PLACED]

    def against(self, name: str) -> Comparison:
        """This placement against another variant of the same run."""
        return compare(self.measured, self.timings[name])

    def summary(self, device_names: Sequence[str]) -> dict[str, Any]:
        """The keys that ``run --json`` prints."""
        latencies = self.latencies or self.timings

        def figures(name: str) -> dict[str, float]:
            median_s = self.timings[name].median_s
            return {
                "measured_s": median_s,
                "throughput_per_s": 1 / median_s,
                "latency_s": latencies[name].median_s,
            }

        others = [name for name in self.timings if name != PLACED]
        return {
            "runtime": self.runtime,
            **figures(PLACED),
            "interval_s": [self.measured.low_s, self.measured.high_s],
            "predicted_s": self.predicted_s,
            "compile_s": self.compile_s,
            "single_device": {name: figures(name) for name in others if name in device_names},
            "alternatives": {name: figures(name) for name in others if name not in device_names},
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
    with PlacementRun(live, placement, samples=samples) as run:
        run.measure(repeats, warm_up, should_stop=should_stop)
        result = run.result()
    if result is None:
        raise PlacewrightError("stopped before this placement was measured")
    return result


class PlacementRun:
    """A placement and what it is compared with, compiled, with outputs compared: ready to be measured, then closed."""

    def __init__(self, live: LiveModel, placement: Placement, *, samples: int = 50) -> None:
        if placement.device_of_op is None:
            raise InputError("there is no placement to run: " + (placement.note or placement.status))
        self._live, self._placement = live, placement
        self._variants: dict[str, Callable[[], object]] = {}
        self._streams: dict[str, Callable[[], Pipeline]] = {}
        self._bags: list[Any] = []
        self._stages: tuple[StageTimes, ...] = ()
        self._note = ""
        with contextlib.ExitStack() as cleanup:
            if placement.problem.execution == "pipeline":
                self._compile_streams(samples)
            else:
                self._compile(cleanup)
            self._cleanup = cleanup.pop_all()
        self._seconds: dict[str, list[float]] = {name: [] for name in self._variants | self._streams}
        self._latency_s: dict[str, list[float]] = {name: [] for name in self._streams}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _compile(self, cleanup: contextlib.ExitStack) -> None:
        live, placement, problem = self._live, self._placement, self._placement.problem
        ours = start_placement(live, placement)
        cleanup.callback(ours.close)
        self._variants[PLACED] = lambda: ours(live.inputs)
        reference: list[Any] | None = None
        used = {problem.cluster.device_names[d] for d in placement.device_of_op}  # type: ignore[union-attr]
        usable = _usable_alone(placement)
        for name in usable:
            if used == {name}:  # started a second time, the same model may be faster or slower by luck of its memory
                alone = ours
            else:
                alone = live.start(dict.fromkeys(live.graph.op_names, name), problem.cluster, None)
                cleanup.callback(alone.close)
            reference = alone(live.inputs) if reference is None else reference
            self._variants[name] = _bound(alone, live.inputs)
        for name, cluster in _wider(problem.cluster):
            wide = live.start(dict.fromkeys(live.graph.op_names, cluster.device_names[0]), cluster, None)
            cleanup.callback(wide.close)
            self._variants[name] = _bound(wide, live.inputs)
        for name, within in _within_memory(live, placement, usable):
            cleanup.callback(within.close)
            reference = within(live.inputs) if reference is None else reference
            self._variants[name] = _bound(within, live.inputs)
        self._outputs = _output_errors(ours(live.inputs), reference)
        self._compile_s = float(getattr(ours, "compile_s", 0.0))
        self._n_segments = int(getattr(ours, "n_segments", 0))
        self._note = str(getattr(ours, "note", ""))

    def _compile_streams(self, samples: int) -> None:
        live, placement, cluster = self._live, self._placement, self._placement.problem.cluster
        devices, stage = live_stages(live, placement)
        began = time.perf_counter()
        staged = live.staged(devices, stage, cluster).compiled()
        self._compile_s = time.perf_counter() - began
        self._n_segments = len(staged.parts)
        self._streams[PLACED] = _pipeline(staged)
        whole = {name: live.staged(*_alone(live, name), cluster).compiled() for name in _usable_alone(placement)}
        for name, model in whole.items():
            self._streams[name] = _pipeline(model)
        self._bags = [staged.bag(live.inputs)] * samples
        if len(whole) == len(cluster.devices) > 1:
            copies = [model.stages()[0].make() for model in whole.values()]
            self._streams["a copy on each device"] = lambda: Copies(copies, self._bags[0])
        for name, wider in _wider(cluster):
            self._streams[name] = _pipeline(live.staged(*_alone(live, wider.device_names[0]), wider).compiled())
        reference = _one_sample(next(iter(whole.values())), live.inputs) if whole else None
        self._outputs = _output_errors(_one_sample(staged, live.inputs), reference)

    def measure(
        self,
        repeats: int = 20,
        warm_up: int = 3,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_round: Callable[[int], None] = lambda number: None,
    ) -> None:
        """Give every variant a turn per round; what was measured when ``should_stop`` says so counts.

        A turn is a run that does not count and one that does. For a pipeline it is a sample that does not count, one
        that has the pipeline to itself, and a stream of the rest.
        """
        try:
            for run in self._variants.values():
                for _ in range(warm_up):
                    if should_stop():
                        return
                    run()
            for number, order in enumerate(orders(list(self._seconds), max(1, repeats)), 1):
                on_round(number)
                if number == 1:  # so that it is there if the measurement ends early
                    order.sort(key=lambda name: name != PLACED)
                for name in order:
                    if should_stop():
                        return
                    self._take_turn(name, should_stop)
        except PlacewrightError:
            if not should_stop():  # a signal to all of a command's processes ends workers, too
                raise

    def _take_turn(self, name: str, should_stop: Callable[[], bool]) -> None:
        if name in self._variants:
            settle(self._variants[name], SETTLING_RUNS, 0.0)
            began = time.perf_counter()
            self._variants[name]()
            self._seconds[name].append(time.perf_counter() - began)
            return
        timed = time_stream(self._streams[name](), self._bags, should_stop)
        if timed.run.n_samples == len(self._bags) or (timed.run.n_samples and not self._seconds[name]):
            self._latency_s[name].append(timed.latency_s)
            self._seconds[name].append(timed.sample_s)
            self._stages = timed.run.stages if name == PLACED else self._stages

    def result(self) -> RunResult | None:
        """What has been measured so far, also while it is being measured; nothing if this placement has not."""
        if not self._seconds[PLACED]:
            return None
        return RunResult(
            runtime=self._live.runtime,
            predicted_s=self._placement.value,
            timings=_timings(self._seconds),
            compile_s=self._compile_s,
            outputs=self._outputs,
            stages=self._stages,
            segments=self._n_segments,
            note=self._note,
            latencies=_timings(self._latency_s) if self._streams else None,
        )


def _timings(seconds: Mapping[str, list[float]]) -> dict[str, Timing]:
    return {name: timing(np.array(s)) for name, s in seconds.items() if s}


def _pipeline(staged: StagedModel) -> Callable[[], Pipeline]:
    return lambda: Pipeline(staged.stages())


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
