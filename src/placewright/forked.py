"""What holds across threads and forks: a forked process has its parent's memory, but none of its other threads."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable


def after_fork(function: Callable[[], object]) -> None:
    """Call it in every process forked from this one, before anything else; nowhere where there is no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


class Exclusive:
    """One thread at a time; the same thread may enter again. In a forked process it is free, whoever held it."""

    def __init__(self) -> None:
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # forked inside: nobody holds the new one
            self._lock.release()
