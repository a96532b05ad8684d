"""What a stream takes: the stream itself, not what begins and ends it; and its end, whenever that comes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pipeline_stages as make
import pytest

import placewright as pw
from placewright.execute.child import Child
from placewright.execute.live import LiveModel
from placewright.execute.measured import MeasuredEvaluator
from placewright.execute.memo import Memo
from placewright.execute.pipeline import (
    Copies,
    Pipeline,
    Stage,
    StageError,
    run_copies,
    run_pipeline,
    time_stream,
)
from placewright.execute.run import PLACED, PlacementRun, run_placement
from placewright.execute.stages import Part, Source, StagedModel
from placewright.placement import Placement, checked_placement
from placewright.problems import Problem

Workers = Literal["threads", "processes"]
BOTH = pytest.mark.parametrize("workers", ["threads", "processes"])
SLEEP_S = 0.001
N_SAMPLES = 4
TRIES = 7  # medians of so many: this machine may be busy


def plain_loop_s() -> float:
    began = time.perf_counter()
    for _ in range(N_SAMPLES):
        time.sleep(SLEEP_S)
    return time.perf_counter() - began


@BOTH
def test_a_stage_that_sleeps_a_millisecond_takes_a_millisecond_a_sample(workers: Workers) -> None:
    ours, plain = [], []
    with Pipeline([Stage("sleeper", partial(make.sleeper, SLEEP_S))], workers=workers) as pipeline:
        pipeline.run([0])
        for _ in range(TRIES):
            ours.append(pipeline.run(range(N_SAMPLES)).seconds)
            plain.append(plain_loop_s())
    assert statistics.median(ours) < 2 * statistics.median(plain)


def test_what_a_stage_does_once_is_not_the_streams_time() -> None:
    ours, plain = [], []
    for _ in range(TRIES):
        stages = [Stage(f"s{i}", partial(make.slow_at_first, 0.05, SLEEP_S)) for i in range(2)]
        ours.append(run_pipeline(stages, range(N_SAMPLES), warm_up=[0]).seconds)
        plain.append(plain_loop_s())
    assert statistics.median(ours) < 4 * statistics.median(plain)  # two sleepers, and the second begins a sample later


def test_copies_are_timed_on_equal_terms() -> None:
    ours, plain = [], []
    for _ in range(TRIES):
        works = [make.slow_at_first(0.05, SLEEP_S) for _ in range(2)]
        ours.append(run_copies(works, range(2 * N_SAMPLES)))
        plain.append(plain_loop_s())
    assert statistics.median(ours) < 2 * statistics.median(plain)


def test_latency_is_of_one_sample_alone_and_not_per_sample() -> None:
    stages = [Stage(f"s{i}", partial(make.sleeper, 0.01)) for i in range(4)]
    timed = time_stream(Pipeline(stages), [0] * 12)
    assert timed.latency_s >= 0.04
    assert timed.sample_s < 0.75 * timed.latency_s
    assert timed.run.n_samples == 12


def test_one_pipeline_streams_several_times_and_closes_once() -> None:
    with Pipeline([Stage(f"s{i}", partial(make.adder, 1)) for i in range(3)], workers="processes") as pipeline:
        first, second = pipeline.run(range(30)), pipeline.run(range(5))
    assert first.outputs == [x + 3 for x in range(30)]
    assert second.outputs == [x + 3 for x in range(5)]
    assert second.stages[0].busy_s < first.stages[0].busy_s  # each run's own times
    with pytest.raises(ValueError, match="closed"):
        pipeline.run([1])


def test_copies_share_a_stream() -> None:
    taken: list[str] = []

    def work(name: str, sample: int) -> int:
        taken.append(name)
        time.sleep(0.002)
        return sample

    with Copies([partial(work, "a"), partial(work, "b")], 0) as copies:
        assert taken == ["a", "b"] or taken == ["b", "a"]
        assert sorted(copies.run(range(20)).outputs) == list(range(20))
    assert set(taken[2:]) == {"a", "b"}


def test_a_copy_that_fails_ends_the_stream() -> None:
    with pytest.raises(StageError, match="ValueError: cannot do 3"):
        run_copies([make.fails_at(3), make.fails_at(3)], range(10))


@BOTH
def test_a_stream_that_is_told_to_stop_ends_with_what_came_out(workers: Workers) -> None:
    came: list[int] = []

    def endless() -> Any:
        while True:
            yield len(came)
            came.append(0)

    stages = [Stage(f"s{i}", partial(make.sleeper, 0.001)) for i in range(2)]
    with Pipeline(stages, workers=workers) as pipeline:
        run = pipeline.run(endless(), should_stop=lambda: len(came) > 30)
    assert 0 < run.n_samples <= len(came)
    assert run.throughput_per_s == pytest.approx(run.n_samples / run.seconds)
    nothing_is_left("s0", "s1")


@BOTH
def test_a_stream_in_which_nothing_moves_stops_soon(workers: Workers) -> None:
    """A stage that is busy with one sample for long does not keep the stream from ending."""
    stuck_s = 10.0
    with Pipeline([Stage("stuck", partial(make.slow_at_first, stuck_s, 0.0))], workers=workers) as pipeline:
        began = time.monotonic()
        run = pipeline.run(range(10), should_stop=lambda: time.monotonic() > began + 0.2)
    assert run.n_samples == 0
    assert time.monotonic() - began < stuck_s / 2
    assert multiprocessing.active_children() == []


@BOTH
def test_a_stage_that_ends_its_thread_or_process_is_noticed(workers: Workers) -> None:
    stages = [Stage("a", partial(make.adder, 0)), Stage("b", partial(make.leaves_at, 3))]
    with pytest.raises(
        StageError, match=r"stage 'b' (failed: SystemExit: 3|ended before its work was done \(exit 3\))"
    ):
        run_pipeline(stages, range(50), workers=workers)
    nothing_is_left("a", "b")


def test_what_cannot_be_sent_to_another_process_ends_the_run() -> None:
    stages = [Stage("a", partial(make.adder, 0)), Stage("b", make.makes_functions), Stage("c", partial(make.adder, 0))]
    with pytest.raises(StageError, match=r"stage 'b' failed: .*([Pp]ickle|local object)"):
        run_pipeline(stages, range(50), workers="processes")
    with pytest.raises(StageError, match=r"a sample cannot be sent to another process: .*([Pp]ickle|local object)"):
        run_pipeline(stages[:1], [lambda: 0], workers="processes")
    nothing_is_left("a", "b", "c")


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
def test_stages_do_not_hear_the_terminals_ctrl_c() -> None:
    with Pipeline([Stage("a", partial(make.sleeper, 0.001))], workers="processes") as pipeline:
        pipeline.run(range(3))
        (process,) = multiprocessing.active_children()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        assert pipeline.run(range(20)).n_samples == 20


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_child_leaves_signals_to_the_process_that_started_it(monkeypatch: Any, number: int) -> None:
    """A terminal sends Ctrl-C, and timeout SIGTERM, to all processes of a command: it ends with what it has."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    child = Child("child_that_echoes", "slow0", "sse41")
    try:
        assert child.ask(0) == 0
        os.kill(child._process.pid, number)
        assert [child.ask(i) for i in range(1, 4)] == [1, 2, 3]
    finally:
        child.close()
    assert child._process.returncode is not None


def test_processes_leave_no_files_open() -> None:
    listed = Path("/proc/self/fd")
    if not listed.exists():
        pytest.skip("no /proc here")
    run_pipeline([Stage("a", partial(make.adder, 0))], range(3), workers="processes")  # starts multiprocessing's own
    before = len(list(listed.iterdir()))
    for _ in range(3):
        run_pipeline([Stage("a", partial(make.adder, 0))], range(3), workers="processes")
    deadline = time.monotonic() + 5
    while len(list(listed.iterdir())) > before and time.monotonic() < deadline:
        time.sleep(0.02)  # a thread that sends closes its end itself
    assert len(list(listed.iterdir())) <= before


def nothing_is_left(*names: str) -> None:
    assert multiprocessing.active_children() == []
    assert [t.name for t in threading.enumerate() if t.name in names] == []


@pytest.fixture(scope="module")
def problem() -> Problem:
    return pw.load("zoo:chain?ops=6", cluster="cores:2", objective="throughput")


def sleepers(problem: Problem) -> LiveModel:
    """A live model whose stages sleep a millisecond each, however it is cut."""

    def make_part() -> Callable[[list[Any]], list[Any]]:
        def run(values: list[Any]) -> list[Any]:
            time.sleep(SLEEP_S)
            return values

        return run

    def staged(devices: Any, stage_of: Any, cluster: Any) -> StagedModel:
        parts = [
            Part(next(d for n, d in devices.items() if stage_of[n] == s), make_part, (Source(s - 1, 0),))
            for s in range(max(stage_of.values()) + 1)
        ]
        return StagedModel(tuple(parts), (Source(len(parts) - 1, 0),))

    def start(*_: Any) -> Any:
        raise AssertionError("only streams here")

    return LiveModel("openvino", problem.graph, [np.zeros(1)], start, staged)


def halves(problem: Problem) -> Placement:
    row = np.zeros(problem.n_ops, dtype=np.int32)
    row[problem.n_ops // 2 :] = 1
    return checked_placement(problem, row, placer="halves")


def test_run_reports_the_stream_and_not_its_shut_down(problem: Problem) -> None:
    plain = []
    result = run_placement(sleepers(problem), halves(problem), repeats=TRIES, samples=N_SAMPLES)
    for _ in range(TRIES):
        plain.append(plain_loop_s() / N_SAMPLES)
    loop_s = statistics.median(plain)
    assert result.timings["core0"].median_s < 2 * loop_s
    assert result.measured.median_s < 3 * loop_s  # the second stage begins one sample later
    assert result.timings["a copy on each device"].median_s < 2 * loop_s


def test_run_tells_latency_and_throughput_apart(problem: Problem) -> None:
    summary = run_placement(sleepers(problem), halves(problem), repeats=2, samples=20).summary(["core0", "core1"])
    assert summary["latency_s"] >= 2 * SLEEP_S > summary["single_device"]["core0"]["measured_s"] / 2
    assert summary["throughput_per_s"] == pytest.approx(1 / summary["measured_s"])
    for figures in (*summary["single_device"].values(), *summary["alternatives"].values()):
        assert figures["latency_s"] >= SLEEP_S
        assert figures["throughput_per_s"] == pytest.approx(1 / figures["measured_s"])


def test_place_measured_takes_the_streams_time(problem: Problem, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("placewright.execute.measured._STREAM", N_SAMPLES)
    rows = np.zeros((1, problem.n_ops), dtype=np.int32)
    with Memo(tmp_path / "memo.db", "here") as memo:
        (seconds,) = MeasuredEvaluator(sleepers(problem), problem, memo).evaluate_many(rows, TRIES)
    assert seconds < 2 * statistics.median(plain_loop_s() for _ in range(TRIES)) / N_SAMPLES


def test_a_run_that_is_told_to_stop_keeps_what_it_has(problem: Problem) -> None:
    placement = halves(problem)
    with PlacementRun(sleepers(problem), placement, samples=1_000_000) as run:
        assert run.result() is None
        began = time.monotonic()
        run.measure(10, should_stop=lambda: time.monotonic() > began + 0.3)
        assert time.monotonic() < began + 5
        result = run.result()
    assert result is not None
    assert list(result.timings) == [PLACED]  # what comes first
    assert result.measured.median_s >= SLEEP_S
    assert result.latencies is not None
    assert result.latencies[PLACED].median_s >= 2 * SLEEP_S
    assert [s.name for s in result.stages] == ["stage 0 on core0", "stage 1 on core1"]
