"""Ctrl-C and SIGTERM: at any moment the command ends soon, with the best it has.

The first signal ends what is being done. Work that has found something is asked to come to an end (``until_stopped``),
everything else is left by :class:`Stopped`. If that takes longer than ``LIMIT_S``, because the main thread is inside a
solver or a runtime that hears nothing, a watching thread ends the process: it gives the answer that the work has left
for this case (``last_resort``), or says what was stopped. The second signal ends the process at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from placewright.cli import doing

LIMIT_S = 1.0  # from the first signal until the last resort; with it the command ends within two seconds
_LAST_RESORT = "placewright-last-resort"
_ANSWER_LIMIT_S = 30.0  # writing an answer that has been begun is not cut off before
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal said stop, and there was nothing yet that could be kept; ``what`` was being done."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"stopped while {what}" if what else "stopped")
        self.number = number

    @classmethod
    def now(cls) -> Stopped:
        """The same for a signal that was heard before."""
        return cls(_state.number, doing.what())


class Uncaught(BaseException):
    """Carries :class:`Stopped` past the parser of command lines, which makes an exit without a word of it."""


def uncaught(verb: Callable[..., None]) -> Callable[..., None]:
    """The same verb, whose :class:`Stopped` reaches ``unwrapped``."""

    @functools.wraps(verb)
    def run(*args: Any, **options: Any) -> None:
        _state.is_in_verb = True
        try:
            verb(*args, **options)
        except Stopped as error:
            raise Uncaught from error
        finally:
            _state.is_in_verb = False

    return run


def unwrapped(error: BaseException) -> BaseException:
    """What ended a command line."""
    return error.__cause__ or error if isinstance(error, Uncaught) else error


class _State:
    """What the handler and the watching thread know of the main thread's work. One command line per process."""

    def __init__(self) -> None:
        self.is_in_verb = False
        self.number = 0  # of the first signal
        self.raised: Stopped | None = None  # what the main thread was left by
        self.interrupts: list[Callable[[], None]] = []  # what asks the present work to come to an end
        self.resorts: list[Callable[[], int]] = []  # what gives the best answer so far, and an exit code
        self.answer = threading.Lock()  # whoever holds it gives the answer: the main thread or the watching one
        self.is_answering = False  # the main thread does: the first signal changes nothing any more
        self.exit_code: int | None = None  # the command is over, the interpreter is closing


_state = _State()


def was_stopped() -> bool:
    """Whether a signal has come."""
    return _state.number != 0


def raised() -> Stopped | None:
    """What a signal has raised in this command, if it did: a library may make an error of its own out of it."""
    return _state.raised


def is_last_resort() -> bool:
    """Whether the watching thread is asking, so that the main one will give no answer any more."""
    return threading.current_thread().name == _LAST_RESORT


def exit_code(number: int | None = None) -> int:
    """The exit code of a command that a signal ended: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (number or _state.number or signal.SIGINT)


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Handle both signals; afterwards all is as before. Nothing changes where they are handled already."""
    before = {} if signal.getsignal(SIGNALS[0]) is _on_signal else listen()
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def listen() -> dict[int, Any]:
    """Handle both signals from now on, even if a shell started us with Ctrl-C ignored; return the old handlers."""
    _state.__init__()  # type: ignore[misc]
    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not in the main thread: the caller looks after signals
        for number in SIGNALS:
            before[number] = signal.signal(number, _on_signal)
    return before


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _state.exit_code is not None:
        return  # it is over
    is_first, _state.number = not _state.number, _state.number or number
    if is_first and _state.is_answering:
        return
    if not is_first or not _state.interrupts:
        _state.raised = error = Stopped(number, doing.what())
        if _state.is_in_verb:
            raise error
        raise Uncaught from error
    for interrupt in _state.interrupts:
        interrupt()


@contextlib.contextmanager
def until_stopped(
    interrupt: Callable[[], None], keeps: str, last_resort: Callable[[], int] | None = None
) -> Iterator[None]:
    """Work that the first signal asks to end, by ``interrupt``, and that then gives ``keeps``.

    ``last_resort`` gives the same from another thread, while the work still goes on, and returns the exit code.
    """

    def say_and_interrupt() -> None:
        doing.note(f"interrupted, finishing with {keeps}")
        interrupt()

    _state.interrupts.append(say_and_interrupt)
    if last_resort is not None:
        _state.resorts.append(last_resort)
    try:
        yield
    finally:
        _state.interrupts.remove(say_and_interrupt)
        if last_resort is not None:
            _state.resorts.remove(last_resort)


@contextlib.contextmanager
def kept(last_resort: Callable[[], int]) -> Iterator[None]:
    """Work that :class:`Stopped` ends, whose caller then keeps something; ``last_resort`` as in ``until_stopped``."""
    _state.resorts.append(last_resort)
    try:
        yield
    finally:
        _state.resorts.remove(last_resort)


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Printing and writing the answer: it is not cut off, and the watching thread does not do the same."""
    _state.is_answering = True
    try:
        with _state.answer:
            yield
    finally:
        _state.is_answering = False


def watch() -> None:
    """Start the watching thread, for a process that runs one command line and nothing else."""
    if sys.platform == "win32":  # select takes sockets only there, and the console ends a process that does not
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_forget)
    threading.Thread(target=_watch, args=(reading,), name="placewright-signals", daemon=True).start()


def quiet_where_ignored() -> None:
    """Say nothing where Python ignores what a signal raised, as in ``__del__``: the watching thread ends all."""

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not isinstance(ignored.exc_value, (Stopped, Uncaught)):
            sys.__unraisablehook__(ignored)

    sys.unraisablehook = hook


def _forget() -> None:
    """A forked worker is ended by whoever made it: it does not hear the terminal's Ctrl-C, and SIGTERM ends it."""
    doing.forget()
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _watch(reading: int) -> None:
    first = _next_signal(reading, None)
    second = _next_signal(reading, LIMIT_S)
    if second == 0 and _state.exit_code is None and _state.answer.acquire(blocking=False):
        threading.Thread(target=lambda: _end(_last_resort(first)), name=_LAST_RESORT, daemon=True).start()
    if second == 0 and _state.exit_code is None:
        second = _next_signal(reading, _ANSWER_LIMIT_S)
    time.sleep(LIMIT_S / 4)  # the main thread has a moment to end by itself
    _end(_state.exit_code or exit_code(second or first))


def _next_signal(reading: int, limit_s: float | None) -> int:
    """The next signal of ours, 0 if none comes within the limit."""
    end = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left_s = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([reading], [], [], left_s)[0]:
            return 0
        for number in os.read(reading, 1):
            if number in SIGNALS:
                return number


def _last_resort(number: int) -> int:
    doing.clear()
    for resort in reversed(_state.resorts):
        try:
            return resort()
        except Exception:  # the work goes on beside us, so what it holds may be half made: the next best, then
            continue
    doing.note(str(Stopped(number, doing.what())))
    return exit_code(number)


def _end(code: int) -> None:
    """End the process now, with its workers and without half-written files."""
    with contextlib.suppress(BaseException):
        doing.clear()
        files = sys.modules.get("placewright.files")  # where it is not loaded nothing is being written
        if files is not None:
            files.remove_parts()
        processes = sys.modules.get("multiprocessing")
        for process in processes.active_children() if processes is not None else ():
            process.kill()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    os._exit(code)


def is_over(code: int) -> None:
    """The command has ended with this code; after a signal the process ends without closing libraries in order."""
    _state.exit_code = code
    if was_stopped():
        _end(code)
