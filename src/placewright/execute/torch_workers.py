"""Threads that ops of a device are called from, kept for the life of the process; all runs share them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

from placewright.forked import Exclusive, after_fork

if TYPE_CHECKING:
    import torch

Job = Callable[[], None]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as malloc.h numbers them

_lock = Exclusive()
_workers: dict[str, SimpleQueue[Job]] = {}
after_fork(_workers.clear)  # a forked process has the queues without their threads


def run_together(here: Job, elsewhere: Sequence[tuple[str, Job]]) -> None:
    """Call ``here`` in this thread and the other jobs in the workers of their names; return when all have ended.

    Jobs must not raise, and may wait for each other.
    """
    if not elsewhere:
        here()
        return
    ended: SimpleQueue[None] = SimpleQueue()
    # Under one lock, so that two callers' jobs stand in the same order in every queue and cannot block each other.
    with _lock:
        for name, job in elsewhere:
            _queue(name).put(_followed(job, ended))
    here()
    for _ in elsewhere:
        ended.get()


def _followed(job: Job, ended: SimpleQueue[None]) -> Job:
    def both() -> None:
        try:
            job()
        finally:
            ended.put(None)

    return both


def _queue(name: str) -> SimpleQueue[Job]:
    if name not in _workers:
        _workers[name] = SimpleQueue()
        threading.Thread(target=_work, args=(_workers[name],), name=name, daemon=True).start()
    return _workers[name]


def _work(jobs: SimpleQueue[Job]) -> None:
    while True:
        jobs.get()()


def _use_one_thread() -> None:
    """Torch waits for ever for threads of its own that a forked process does not have; with one it needs none."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


after_fork(_use_one_thread)


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep what tensors free instead of giving it back, where its C library can be told to.

    Otherwise tensors of some megabytes may cost thousands of page faults in every sample, or none, by chance.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    for option, size in ((_MMAP_THRESHOLD, 32 * 2**20), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20)):
        set_option(option, size)


def own_threads(name: str, device: torch.device, threads: Mapping[str, int] | None) -> int:
    """How many threads ops of a device may use; 0: torch's choice."""
    return threads.get(name, 0) if threads is not None and device.type == "cpu" else 0


@contextlib.contextmanager
def inner_threads(count: int) -> Iterator[None]:
    """Ops called from this thread use so many threads (each calling thread has its own number); 0 changes nothing."""
    import torch

    if not count or torch.get_num_threads() == count:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
