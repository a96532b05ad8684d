"""Segments that wait for each other, run by one worker thread per device."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from placewright.errors import PlacewrightError
from placewright.frontends.base import one_line
from placewright.text import shown


class ExecutionError(PlacewrightError):
    """The runtime refused or failed; the message says where."""

    exit_code = 2  # as for other models that cannot be used


class Task(NamedTuple):
    """One segment: what to call, on which device, after which other tasks; ``label`` names it in errors."""

    device: str
    run: Callable[[], object]
    after: frozenset[int]
    label: str


class Dataflow:
    """Runs all tasks once per call, each device's in the order given, which must be a possible one."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        by_device: dict[str, list[int]] = {}
        for t, task in enumerate(tasks):
            by_device.setdefault(task.device, []).append(t)
        self._done = [threading.Event() for _ in tasks]
        self._round = threading.Barrier(len(by_device) + 1)
        self._finished = threading.Barrier(len(by_device) + 1)
        self._errors: list[str] = []
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._life, args=(mine,), name=device, daemon=True)
            for device, mine in by_device.items()
        ]
        for thread in self._threads:
            thread.start()

    def run_once(self) -> None:
        """Run every task; raises :class:`ExecutionError` with the first failure."""
        for event in self._done:
            event.clear()
        self._errors.clear()
        self._round.wait()
        self._finished.wait()
        if self._errors:
            raise ExecutionError(self._errors[0])

    def close(self) -> None:
        """End the workers."""
        if not self._is_closed:
            self._is_closed = True
            self._round.wait()
            for thread in self._threads:
                thread.join()

    def _life(self, mine: list[int]) -> None:
        while True:
            self._round.wait()
            if self._is_closed:
                return
            for t in mine:
                task = self._tasks[t]
                for before in task.after:
                    self._done[before].wait()
                try:
                    if not self._errors:
                        task.run()
                except Exception as error:  # raised again by the caller's thread
                    where = f"segment {t} on '{shown(task.device)}' (from '{shown(task.label)}')"
                    self._errors.append(f"{where} failed: {one_line(error, 300)}")
                finally:
                    self._done[t].set()
            self._finished.wait()


def order_by_start(after: Sequence[frozenset[int]], start: Sequence[float]) -> list[int]:
    """An order of tasks that respects what each comes after, by planned start where that leaves a choice.

    >>> order_by_start([frozenset(), frozenset(), frozenset({0})], [3.0, 1.0, 0.0])
    [1, 0, 2]
    """
    readers: list[list[int]] = [[] for _ in after]
    for t, before in enumerate(after):
        for b in before:
            readers[b].append(t)
    pending = [len(before) for before in after]
    ready = [(start[t], t) for t in range(len(after)) if not pending[t]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, t = heapq.heappop(ready)
        order.append(t)
        for r in readers[t]:
            pending[r] -= 1
            if not pending[r]:
                heapq.heappush(ready, (start[r], r))
    return order
