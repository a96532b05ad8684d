"""Streams of samples run for real: through the stages of a pipeline, or shared by copies of a whole model.

Every stage is made by a factory inside its worker, a thread or a process, and is then called once per sample, in order.
A full queue makes the stage before it wait (back-pressure). A stage that fails, or whose process dies, ends the run
with :class:`StageError`, and no worker is left behind.
"""

from __future__ import annotations

import functools
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Self

from placewright.execute.workers import ProcessPool, Stage, StageError, ThreadPool, Work

__all__ = ["Copies", "Pipeline", "PipelineRun", "Stage", "StageError", "StageTimes", "StreamTiming", "Work"]
__all__ += ["run_copies", "run_pipeline", "time_stream"]

ASK_S = 0.1  # how often a stream that gives nothing is asked whether it should stop
_STOP_LIMIT_S = 0.3  # for workers to end what they have begun, once a stream was told to stop


class StageTimes(NamedTuple):
    """Where a stage's time went; the rest of the run it waited for input."""

    name: str
    busy_s: float
    blocked_s: float  # waiting for room in the next queue
    utilisation: float


class PipelineRun(NamedTuple):
    """What a run of a pipeline gave. ``seconds`` is from the first sample in to the last one out, workers ready."""

    outputs: list[Any]
    seconds: float
    throughput_per_s: float
    stages: tuple[StageTimes, ...]
    n_samples: int  # that came out: all of them, unless the run was told to stop


class Pipeline:
    """Stages at work; stream samples through them with :meth:`run`, as often as you like, then :meth:`close` it.

    It holds as many samples at a time as its stages and the queues between them have room for, and takes the next one
    when one comes out.
    """

    _side_by_side = False

    def __init__(
        self, stages: Sequence[Stage], *, workers: Literal["threads", "processes"] = "threads", queue_size: int = 4
    ) -> None:
        """Return when every stage is made; raises :class:`StageError` if one cannot be."""
        if not stages:
            raise ValueError("a pipeline needs at least one stage")
        self._stages = tuple(stages)
        self._room = len(stages) * (1 + queue_size)
        self._is_open = self._is_idle = True
        self._pool: ThreadPool | ProcessPool
        if workers == "threads":
            self._pool = ThreadPool(self._stages, queue_size, side_by_side=self._side_by_side)
        else:
            self._pool = ProcessPool(self._stages, queue_size)
        try:
            self._pool.start()
        except BaseException:
            self._is_idle = False
            self.close()
            raise

    def run(
        self,
        samples: Iterable[Any],
        *,
        keep_outputs: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> PipelineRun:
        """Stream samples through, timed from the first one's entry to the last one's exit.

        Once ``should_stop`` says so, the stream ends with what has come out, and so does the pipeline. It also ends
        with an exception, :class:`StageError` for a stage that fails.
        """
        if not self._is_open:
            raise ValueError("this pipeline is closed")
        self._is_idle = False
        try:
            run = self._run(samples, keep_outputs, should_stop)
        except BaseException:
            self.close()
            raise
        if not self._is_idle:
            self.close(_STOP_LIMIT_S)
        return run

    def _run(self, samples: Iterable[Any], keep_outputs: bool, should_stop: Callable[[], bool]) -> PipelineRun:
        pool = self._pool
        outputs: list[Any] = []
        n_in = n_out = 0
        before = pool.times()
        feed = iter(samples)
        sample, more = _next(feed)
        began = ended = time.perf_counter()
        while (more or n_out < n_in) and not should_stop():
            if more and n_in - n_out < self._room:
                pool.put(sample)
                n_in += 1
                sample, more = _next(feed)
                continue
            try:
                output = pool.get(ASK_S)
            except queue.Empty:
                continue
            ended = time.perf_counter()
            n_out += 1
            if keep_outputs:
                outputs.append(output)
        self._is_idle = not more and n_out == n_in
        seconds = ended - began
        stages = []
        for stage, (busy_0, blocked_0), (busy_1, blocked_1) in zip(self._stages, before, pool.times(), strict=True):
            busy_s = busy_1 - busy_0
            stages.append(StageTimes(stage.name, busy_s, blocked_1 - blocked_0, busy_s / seconds if seconds else 0.0))
        return PipelineRun(outputs, seconds, n_out / seconds if seconds else 0.0, tuple(stages), n_out)

    def close(self, limit_s: float | None = None) -> None:
        """End the workers. A thread that is not done with a sample by the limit is left to itself."""
        if self._is_open:
            self._is_open = False
            self._pool.close(self._is_idle, limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Copies(Pipeline):
    """Copies of a whole model side by side, each in a thread of its own; a sample goes to whichever is free.

    Outputs come in the order in which they are done. Every copy has run ``first`` before it counts as ready.
    """

    _side_by_side = True

    def __init__(self, copies: Sequence[Work], first: Any) -> None:
        stages = [Stage(f"copy {i}", functools.partial(_after_one, work, first)) for i, work in enumerate(copies)]
        super().__init__(stages)


class StreamTiming(NamedTuple):
    """A stream timed after a sample that does not count."""

    latency_s: float  # of one sample that has all workers to itself
    run: PipelineRun

    @property
    def sample_s(self) -> float:
        """Seconds per sample of the stream; not a number if none came out."""
        return self.run.seconds / self.run.n_samples if self.run.n_samples else float("nan")


def time_stream(
    pipeline: Pipeline, samples: Sequence[Any], should_stop: Callable[[], bool] = lambda: False
) -> StreamTiming:
    """One sample that does not count, one alone, then the stream; closes the pipeline."""
    with pipeline:
        pipeline.run(samples[:1], keep_outputs=False)
        alone = pipeline.run(samples[:1], keep_outputs=False)
        return StreamTiming(alone.seconds, pipeline.run(samples, keep_outputs=False, should_stop=should_stop))


def run_pipeline(
    stages: Sequence[Stage],
    samples: Iterable[Any],
    *,
    workers: Literal["threads", "processes"] = "threads",
    queue_size: int = 4,
    keep_outputs: bool = True,
    warm_up: Sequence[Any] = (),
) -> PipelineRun:
    """Stream the samples through the stages and measure; raises :class:`StageError` if a stage fails.

    Samples of ``warm_up`` go through before the clock starts, and what they give is not kept.
    """
    with Pipeline(stages, workers=workers, queue_size=queue_size) as pipeline:
        pipeline.run(warm_up, keep_outputs=False)
        return pipeline.run(samples, keep_outputs=keep_outputs)


def run_copies(copies: Sequence[Work], samples: Sequence[Any]) -> float:
    """Seconds for a stream that independent copies of a whole model share; each has run the first sample before."""
    with Copies(copies, samples[0]) as together:
        return together.run(samples, keep_outputs=False).seconds


def _after_one(work: Work, sample: Any) -> Work:
    work(sample)
    return work


def _next(feed: Iterator[Any]) -> tuple[Any, bool]:
    try:
        return next(feed), True
    except StopIteration:
        return None, False
