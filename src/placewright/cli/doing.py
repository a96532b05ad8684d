"""What is being done now, for people who wait: a line with a clock on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

SHOWN_AFTER_S = 0.5  # on a terminal; what is quicker only flickers
TOLD_AFTER_S = 3.0  # elsewhere
_TOLD_EVERY_S = 60.0
_REDRAWN_EVERY_S = 0.2
_ERASE = "\r\x1b[2K"

Say = Callable[[str], None]


class _Task:
    """One thing that is being done, and how far it is."""

    def __init__(self, what: str, limit_s: float) -> None:
        self.what, self.detail, self.limit_s = what, "", limit_s
        self.began = time.monotonic()
        self.told_at_s = -math.inf

    def text(self) -> str:
        clock = _clock_text(time.monotonic() - self.began)
        if math.isfinite(self.limit_s):
            clock += f" of {_clock_text(self.limit_s)}"
        return f"{self.what}: {clock}{' · ' if self.detail else ''}{self.detail}"


def _clock_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


_tasks: list[_Task] = []  # the innermost last
_is_quiet = False
_drawing = threading.RLock()
_drawn = False


def what() -> str:
    """What is being done, in words that follow "while"."""
    task = _innermost()
    return task.what if task else ""


@contextlib.contextmanager
def doing(what: str, limit_s: float = math.inf) -> Iterator[Say]:
    """Something that may take long, in words that follow "while"; what it gives takes news on how far it is.

    Nothing is shown under ``--quiet``.
    """
    task = _Task(what, limit_s)
    _tasks.append(task)

    def say(detail: str) -> None:
        task.detail = detail

    try:
        yield say
    finally:
        _tasks.remove(task)
        clear()


def note(text: str) -> None:
    """Print a line on stderr that the moving line does not run into."""
    with _drawing:
        clear()
        with contextlib.suppress(OSError, ValueError):  # a closed or full stderr: nobody to tell
            print(f"placewright: {text}", file=sys.stderr, flush=True)


def clear() -> None:
    """Take the moving line away."""
    global _drawn
    with _drawing:
        if _drawn:
            _drawn = False
            with contextlib.suppress(OSError, ValueError):
                print(_ERASE, end="", file=sys.stderr, flush=True)


def be_quiet(is_quiet: bool) -> None:
    """Whether to show nothing, from now on."""
    global _is_quiet
    _is_quiet = is_quiet


def forget() -> None:
    """In a forked worker: what is being done is shown by the process that made it."""
    global _drawing, _drawn
    _drawing, _drawn = threading.RLock(), False
    _tasks.clear()


def show_always() -> None:
    """Show what is being done from now on, in a process that is one command line."""
    threading.Thread(target=_tick, name="placewright-clock", daemon=True).start()


def _tick() -> None:
    while True:
        time.sleep(_REDRAWN_EVERY_S)
        show()


def show() -> None:
    """Show what is being done if it has taken long enough."""
    with _drawing, contextlib.suppress(OSError, ValueError):
        task = _innermost()
        if _is_quiet or task is None:
            return
        if sys.stderr.isatty():
            _draw(task)
        else:
            _tell(task)


def _innermost() -> _Task | None:
    """What was begun last; other threads begin and end things meanwhile, so it is looked at once."""
    return next(iter(_tasks[-1:]), None)


def _draw(task: _Task) -> None:
    global _drawn
    if time.monotonic() - task.began < SHOWN_AFTER_S:
        return
    text = task.text()[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
    print(f"{_ERASE}{text}", end="\r", file=sys.stderr, flush=True)
    _drawn = True


def _tell(task: _Task) -> None:
    elapsed_s = time.monotonic() - task.began
    if elapsed_s >= max(TOLD_AFTER_S, task.told_at_s + _TOLD_EVERY_S):
        task.told_at_s = elapsed_s
        note(task.text())
