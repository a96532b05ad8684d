"""Stages as workers over bounded queues: a pipeline run for real, in threads or in processes.

Every stage is made by a factory inside its worker and is then called once per sample, in order. A full queue makes the
stage before it wait (back-pressure). A stage that fails, or whose process dies, ends the run with :class:`StageError`,
and no worker is left behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from placewright.errors import PlacewrightError
from placewright.text import shown

Work = Callable[[Any], Any]
POLL_S = 0.05  # how long a wait lasts before a worker looks whether the run is over
START_LIMIT_S = 120.0  # for all stages together: compiling a model takes seconds, not minutes


class StageError(PlacewrightError):
    """A stage failed or died; the message names it and says why."""


@dataclass(frozen=True)
class Stage:
    """One worker: ``make()`` is called in it and returns what is called per sample.

    ``cores`` pins the worker. For processes, ``make`` must be picklable: a function of a module, or a
    ``functools.partial`` of one.
    """

    name: str
    make: Callable[[], Work]
    cores: tuple[int, ...] | None = None


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


def run_pipeline(
    stages: Sequence[Stage],
    samples: Iterable[Any],
    *,
    workers: Literal["threads", "processes"] = "threads",
    queue_size: int = 4,
    keep_outputs: bool = True,
) -> PipelineRun:
    """Stream the samples through the stages and measure; raises :class:`StageError` if a stage fails."""
    if not stages:
        raise ValueError("a pipeline needs at least one stage")
    make_pool = _ThreadPool if workers == "threads" else _ProcessPool
    with contextlib.ExitStack() as cleanup:
        pool = make_pool(stages, queue_size)
        cleanup.callback(pool.close)
        pool.wait_until_ready()
        began = time.perf_counter()
        outputs: list[Any] = []
        n_out = 0
        for output in _stream(pool, samples):
            n_out += 1
            if keep_outputs:
                outputs.append(output)
        seconds = time.perf_counter() - began
        times = pool.times()
    parts = tuple(
        StageTimes(s.name, b, w, b / seconds if seconds else 0.0) for s, (b, w) in zip(stages, times, strict=True)
    )
    return PipelineRun(outputs, seconds, n_out / seconds if seconds else 0.0, parts)


def run_copies(copies: Sequence[Work], samples: Sequence[Any]) -> float:
    """Seconds for a stream that independent copies of a whole model share, each in a thread of its own."""
    todo = iter(samples)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def life(work: Work) -> None:
        try:
            while not errors:
                with lock:
                    sample, more = _next(todo)
                if not more:
                    return
                work(sample)
        except Exception as error:  # raised again below
            errors.append(error)

    began = time.perf_counter()
    threads = [threading.Thread(target=life, args=(work,), daemon=True) for work in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise StageError(f"a copy of the model failed: {shown(str(errors[0]), 300)}")
    return time.perf_counter() - began


class _Pool(Protocol):
    def check(self) -> None: ...

    first: Any
    last: Any


def _stream(pool: _Pool, samples: Iterable[Any]) -> Iterator[Any]:
    """Feed as fast as the first queue takes samples, hand out results as they come."""
    n_in = n_out = 0
    feed = iter(samples)
    sample, more = _next(feed)
    while more or n_out < n_in:
        if more:
            try:
                pool.first.put(sample, block=n_out == n_in, timeout=POLL_S)
                n_in += 1
                sample, more = _next(feed)
                continue
            except queue.Full:
                pass
        try:
            yield pool.last.get(timeout=POLL_S)
            n_out += 1
        except queue.Empty:
            pool.check()
        except (EOFError, OSError):  # the last stage's end is closed: it has ended, which is seen a moment later
            time.sleep(POLL_S)
            pool.check()


def _next(feed: Iterator[Any]) -> tuple[Any, bool]:
    try:
        return next(feed), True
    except StopIteration:
        return None, False


def _work(
    stage: Stage,
    source: Any,
    target: Any,
    is_over: Callable[[], bool],
    on_ready: Callable[[], None],
    on_error: Callable[[str], None],
    add_times: Callable[[float, float], None],
) -> None:
    """A worker's life, the same in a thread and in a process."""
    try:
        if stage.cores is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, stage.cores)  # of the calling thread only, so it holds for threads too
        work = stage.make()
        on_ready()
        while not is_over():
            try:
                sample = source.get(timeout=POLL_S)
            except queue.Empty:
                continue
            began = time.perf_counter()
            result = work(sample)
            done = time.perf_counter()
            while not is_over():
                try:
                    target.put(result, timeout=POLL_S)
                    break
                except queue.Full:
                    continue
            add_times(done - began, time.perf_counter() - done)
    except Exception as error:  # whatever a stage raises belongs to the run's caller
        on_error(f"{type(error).__name__}: {error}")


class _ThreadPool:
    """Workers as threads; what a runtime does inside them must release the interpreter lock to overlap."""

    def __init__(self, stages: Sequence[Stage], queue_size: int) -> None:
        self._stages = stages
        queues: list[queue.Queue[Any]] = [queue.Queue(queue_size) for _ in range(len(stages) + 1)]
        self.first, self.last = queues[0], queues[-1]
        self._over = threading.Event()
        self._errors: list[tuple[str, str]] = []
        self._ready = [threading.Event() for _ in stages]
        self._times = [[0.0, 0.0] for _ in stages]
        self._threads = [
            threading.Thread(target=self._life, args=(i, queues[i], queues[i + 1]), name=s.name, daemon=True)
            for i, s in enumerate(stages)
        ]
        for thread in self._threads:
            thread.start()

    def _life(self, i: int, source: Any, target: Any) -> None:
        def failed(message: str) -> None:
            self._errors.append((self._stages[i].name, message))
            self._over.set()

        def add(busy_s: float, blocked_s: float) -> None:
            self._times[i][0] += busy_s
            self._times[i][1] += blocked_s

        _work(self._stages[i], source, target, self._over.is_set, self._ready[i].set, failed, add)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not all(event.is_set() for event in self._ready):
            self.check()
            if time.monotonic() > deadline:
                slow = next(s.name for s, e in zip(self._stages, self._ready, strict=True) if not e.is_set())
                raise StageError(f"stage '{shown(slow)}' was not ready after {START_LIMIT_S:.0f} s")
            time.sleep(0.001)

    def check(self) -> None:
        if self._errors:
            name, message = self._errors[0]
            raise StageError(f"stage '{shown(name)}' failed: {shown(message, 300)}")

    def times(self) -> list[tuple[float, float]]:
        return [(busy, blocked) for busy, blocked in self._times]

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=5.0)


class _ProcessPool:
    """Workers as processes of their own, which end with this one whatever happens to it."""

    def __init__(self, stages: Sequence[Stage], queue_size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._stages = stages
        queues: list[Any] = [context.Queue(queue_size) for _ in range(len(stages) + 1)]
        self.first, self.last = queues[0], queues[-1]
        self._queues = queues
        self._over = context.Event()
        self._news: Any = context.Queue()
        self._ready: set[int] = set()
        self._errors: dict[int, str] = {}
        self._times = [context.Array("d", 2) for _ in stages]
        self._processes = [
            context.Process(
                target=_process_life,
                args=(i, s, queues[i], queues[i + 1], self._over, self._news, self._times[i], os.getpid()),
                name=s.name,
                daemon=True,
            )
            for i, s in enumerate(stages)
        ]
        for process in self._processes:
            process.start()
        # With our copy of its writing end open, a stage that dies in the middle of a result would leave us reading.
        self.last._writer.close()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while len(self._ready) < len(self._stages):
            self.check()
            if time.monotonic() > deadline:
                slow = next(s.name for i, s in enumerate(self._stages) if i not in self._ready)
                raise StageError(f"stage '{shown(slow)}' was not ready after {START_LIMIT_S:.0f} s")
            time.sleep(0.005)

    def check(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                i, message = self._news.get_nowait()
                if message is None:
                    self._ready.add(i)
                else:
                    self._errors.setdefault(i, message)
        for i, message in self._errors.items():
            raise StageError(f"stage '{shown(self._stages[i].name)}' failed: {shown(message, 300)}")
        for stage, process in zip(self._stages, self._processes, strict=True):
            if process.exitcode is not None:
                how = f"killed by signal {-process.exitcode}" if process.exitcode < 0 else f"exit {process.exitcode}"
                raise StageError(f"stage '{shown(stage.name)}' ended before its work was done ({how})")

    def times(self) -> list[tuple[float, float]]:
        return [(t[0], t[1]) for t in self._times]

    def close(self) -> None:
        self._over.set()
        deadline = time.monotonic() + 2.0
        for process in self._processes:
            process.join(timeout=max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        for q in (*self._queues, self._news):
            q.cancel_join_thread()  # what is still in a queue is of no use to anybody
            q.close()


def _process_life(
    i: int, stage: Stage, source: Any, target: Any, over: Any, news: Any, times: Any, parent: int
) -> None:  # pragma: no cover - runs in another process
    def add(busy_s: float, blocked_s: float) -> None:
        times[0] += busy_s
        times[1] += blocked_s

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_S)
        os._exit(1)  # whatever this process is doing or waiting for, nobody wants it

    threading.Thread(target=watch, daemon=True).start()
    _work(
        stage,
        source,
        target,
        over.is_set,
        lambda: news.put((i, None)),
        lambda message: news.put((i, message)),
        add,
    )
    target.cancel_join_thread()
