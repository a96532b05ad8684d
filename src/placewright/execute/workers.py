"""Workers for streams of samples: threads or processes with bounded queues between them.

Nothing here looks at a clock to learn that a stream is over: closing a queue between threads wakes whoever waits at it,
an end mark goes through the queues between processes, and a process that dies is heard at once, by its pipe.
"""

from __future__ import annotations

import collections
import contextlib
import math
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.errors import PlacewrightError
from placewright.text import shown

if TYPE_CHECKING:
    ProcessQueue = multiprocessing.queues.Queue[Any]
else:
    from multiprocessing.queues import Queue as ProcessQueue  # not a generic class before Python 3.12

Work = Callable[[Any], Any]
START_LIMIT_S = 120.0  # for all stages together: compiling a model takes seconds, not minutes
_CLOSE_LIMIT_S = 5.0  # for all workers together; a thread that works longer than that on one sample is left to itself
_PARENT_POLL_S = 0.05  # how often a process looks whether the one that started it is still there


class StageError(PlacewrightError):
    """A stage failed or died; the message names it and says why."""

    exit_code = 2  # as for other models that cannot be used


@dataclass(frozen=True)
class Stage:
    """One worker: ``make()`` is called in it and returns what is called per sample.

    ``cores`` pins the worker. For processes, ``make`` must be picklable: a function of a module, or a
    ``functools.partial`` of one.
    """

    name: str
    make: Callable[[], Work]
    cores: tuple[int, ...] | None = None


class Begin:
    """A mark that goes through the queues once, before any sample: whatever they start at first use is there then."""


class End:
    """A mark that ends every worker that it comes to, which sends it on."""


class Closed(Exception):
    """The queue takes and gives nothing any more."""


def _live(
    stage: Stage, source: Any, target: Any, on_ready: Callable[[], None], add_times: Callable[[float, float], None]
) -> None:
    """A worker's life, the same in a thread and in a process."""
    if stage.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, stage.cores)  # of the calling thread only, so it holds for threads too
    work = stage.make()
    on_ready()
    while (sample := source.get()) is not End:
        if sample is not Begin:
            began = time.perf_counter()
            sample = work(sample)
            done = time.perf_counter()
            add_times(done - began, 0.0)
            target.put(sample)
            add_times(0.0, time.perf_counter() - done)
        else:
            target.put(Begin)
        del sample  # it may be large, and the next one may be long in coming
    target.put(End)


def _failed(stage: Stage, message: str) -> StageError:
    return StageError(f"stage '{shown(stage.name)}' failed: {shown(message, 300)}")


def _not_ready(stage: Stage) -> StageError:
    return StageError(f"stage '{shown(stage.name)}' was not ready after {START_LIMIT_S:.0f} s")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def deaf_children(*signals: signal.Signals) -> Iterator[None]:
    """Processes that are started here never hear these signals: a terminal sends Ctrl-C to all of a command's."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Link:
    """A queue between threads, of so many places, that can be closed under whoever waits at it."""

    def __init__(self, size: float) -> None:
        self._size = size
        self._items: collections.deque[Any] = collections.deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, item: Any) -> None:
        with self._changed:
            while len(self._items) >= self._size and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                raise Closed
            self._items.append(item)
            self._changed.notify_all()

    def get(self, limit_s: float | None = None) -> Any:
        """The next item; :class:`queue.Empty` if there is none within the limit."""
        end = None if limit_s is None else time.monotonic() + limit_s
        with self._changed:
            while not self._items and not self._is_closed:
                left_s = None if end is None else end - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise queue.Empty
                self._changed.wait(left_s)
            if self._is_closed:
                raise Closed
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._items.clear()
            self._changed.notify_all()


class ThreadPool:
    """Workers as threads; what a runtime does inside them must release the interpreter lock to overlap.

    They stand in a row, or side by side, where each takes the next sample.
    """

    def __init__(self, stages: Sequence[Stage], queue_size: int, *, side_by_side: bool = False) -> None:
        self._stages = stages
        between = [] if side_by_side else [Link(queue_size) for _ in stages[1:]]
        self._links = [Link(math.inf), *between, Link(math.inf)]
        self._errors: list[tuple[Stage, str]] = []
        self._news: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._times = [[0.0, 0.0] for _ in stages]
        self._threads = [
            threading.Thread(target=self._life, args=(i, 0 if side_by_side else i), name=s.name, daemon=True)
            for i, s in enumerate(stages)
        ]

    def start(self) -> None:
        """Return when every stage is made."""
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + START_LIMIT_S
        waiting = set(range(len(self._stages)))
        while waiting:
            try:
                waiting.discard(self._news.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise _not_ready(self._stages[min(waiting)]) from None
            self._check()

    def _life(self, i: int, link: int) -> None:
        def add(busy_s: float, blocked_s: float) -> None:
            self._times[i][0] += busy_s
            self._times[i][1] += blocked_s

        try:
            _live(self._stages[i], self._links[link], self._links[link + 1], lambda: self._news.put(i), add)
        except Closed:
            pass
        except BaseException as error:  # whatever a stage raises belongs to the run's caller
            self._errors.append((self._stages[i], _text(error)))
            self._news.put(i)
            self._close_links()

    def put(self, sample: Any) -> None:
        """Give a sample to the first worker; there is always room."""
        with self._failures():
            self._links[0].put(sample)

    def get(self, limit_s: float) -> Any:
        """What comes out next; :class:`queue.Empty` if nothing does within the limit."""
        with self._failures():
            return self._links[-1].get(limit_s)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except Closed:
            self._check()
            raise

    def _check(self) -> None:
        if self._errors:
            raise _failed(*self._errors[0])

    def times(self) -> list[tuple[float, float]]:
        """Seconds that each worker was busy, and was waiting for room, since it was made."""
        return [(busy, blocked) for busy, blocked in self._times]

    def close(self, is_idle: bool, limit_s: float | None = None) -> None:
        """End the workers. What they have begun they end first; what is in the queues is of no use to anybody."""
        self._close_links()
        deadline = time.monotonic() + (_CLOSE_LIMIT_S if limit_s is None else limit_s)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _close_links(self) -> None:
        for link in self._links:
            link.close()


class _ProcessLink(ProcessQueue):
    """A queue between processes that tells if an item cannot be sent."""

    on_error: Callable[[str], None]

    def _on_queue_feeder_error(self, error: BaseException, item: Any) -> None:  # called by the thread that sends
        self.on_error(_text(error))


class ProcessPool:
    """Workers as processes of their own, which end with this one whatever happens to it."""

    def __init__(self, stages: Sequence[Stage], queue_size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._stages = stages
        sizes = [0, *(queue_size for _ in stages[1:]), 0]  # 0: as many as come
        self._links: list[Any] = [_ProcessLink(size, ctx=context) for size in sizes]
        self._times = [context.Array("d", 2) for _ in stages]
        self._errors: list[str] = []
        pipes = [context.Pipe(duplex=False) for _ in stages]
        self._news = [ours for ours, _ in pipes]
        self._their_ends = [theirs for _, theirs in pipes]
        self._processes = [
            context.Process(
                target=_process_life,
                args=(s, self._links[i], self._links[i + 1], self._their_ends[i], self._times[i], os.getpid()),
                name=s.name,
                daemon=True,
            )
            for i, s in enumerate(stages)
        ]

    def start(self) -> None:
        """Return when every stage is made, and the threads that send are there."""
        self._links[0].on_error = self._errors.append
        self._links[0]._ignore_epipe = True  # of samples for workers that have been killed
        with deaf_children(signal.SIGINT):  # a terminal's Ctrl-C is for this process, which ends them
            for process in self._processes:
                process.start()
        # With copies of the workers' ends open here, nobody would hear one of them end: a transfer that it leaves in
        # the middle would keep us reading or writing for ever.
        self._links[0]._reader.close()
        self._links[-1]._writer.close()
        for end in self._their_ends:
            end.close()
        deadline = time.monotonic() + START_LIMIT_S
        waiting = set(range(len(self._stages)))
        while waiting:
            left_s = max(0.0, deadline - time.monotonic())
            told = multiprocessing.connection.wait([self._news[i] for i in waiting], left_s)
            if not told:
                raise _not_ready(self._stages[min(waiting)])
            for i in [i for i in waiting if self._news[i] in told]:
                self._hear(i)
                waiting.remove(i)
        self.put(Begin)
        self.get(START_LIMIT_S)

    def _hear(self, i: int) -> None:
        """Read a worker's news: nothing if it is ready, an exception if it says anything else, or has ended."""
        try:
            message = self._news[i].recv()
        except (EOFError, OSError):
            process = self._processes[i]
            process.join(timeout=1.0)  # its end of the pipe was closed a moment before
            code = process.exitcode
            how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
            name = shown(self._stages[i].name)
            raise StageError(f"stage '{name}' ended before its work was done ({how})") from None
        if message is not None:
            raise _failed(self._stages[i], message)

    def put(self, sample: Any) -> None:
        """Give a sample to the first worker; there is always room."""
        self._links[0].put(sample)

    def get(self, limit_s: float) -> Any:
        """What comes out next; :class:`queue.Empty` if nothing does within the limit."""
        last = self._links[-1]
        told = multiprocessing.connection.wait([*self._news, last._reader], limit_s)
        for i, news in enumerate(self._news):
            if news in told:
                self._hear(i)
        if self._errors:
            raise StageError(f"a sample cannot be sent to another process: {shown(self._errors[0], 300)}")
        if last._reader not in told:
            raise queue.Empty
        try:
            return last.get()
        except (EOFError, OSError):  # the last worker has ended, which its news tell a moment later
            self._hear(len(self._stages) - 1)
            raise

    def times(self) -> list[tuple[float, float]]:
        """Seconds that each worker was busy, and was waiting for room, since it was made."""
        return [(t[0], t[1]) for t in self._times]

    def close(self, is_idle: bool, limit_s: float | None = None) -> None:
        """End the workers: idle ones by an end mark, others at once."""
        started = [p for p in self._processes if p.pid is not None]
        if is_idle:
            self.put(End)
            deadline = time.monotonic() + (_CLOSE_LIMIT_S if limit_s is None else limit_s)
            for process in started:
                process.join(timeout=max(0.0, deadline - time.monotonic()))
        for process in started:
            process.kill()
            process.join()
        for link in self._links:
            link.cancel_join_thread()  # what is still in a queue is of no use to anybody
            link.close()


def _process_life(
    stage: Stage, source: Any, target: Any, news: Any, times: Any, parent: int
) -> None:  # pragma: no cover - runs in another process
    def add(busy_s: float, blocked_s: float) -> None:
        times[0] += busy_s
        times[1] += blocked_s

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        os._exit(1)  # whatever this process is doing or waiting for, nobody wants it

    threading.Thread(target=watch, daemon=True).start()
    target.on_error = news.send
    try:
        _live(stage, source, target, lambda: news.send(None), add)
    except Exception as error:  # whatever a stage raises belongs to the run's caller
        target.cancel_join_thread()
        news.send(_text(error))
