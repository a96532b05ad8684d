"""Let a running kernel know that the time is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

_LOOK_EVERY_S = 0.03


@contextmanager
def stop_flag(should_stop: Callable[[], bool]) -> Iterator[NDArray[np.bool_]]:
    """An array of one flag for a kernel to look at; set as soon as ``should_stop`` says so."""
    flag = np.array([should_stop()])
    left = threading.Event()

    def watch() -> None:
        while not left.wait(_LOOK_EVERY_S):
            flag[0] = flag[0] or should_stop()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield flag
    finally:
        left.set()
        watcher.join()
