"""Work of foreign libraries on foreign files, in a process that may hang, crash or ask for all memory.

The process runs one file of this package, never the caller's script, so scripts need no main guard. It answers
questions, bytes to bytes, and ends with the one that asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from placewright.errors import PlacewrightError
from placewright.text import bytes_text, shown

MOST_BYTES = 2 * 2**30  # of memory beyond what imports take
_LENGTH = struct.Struct("<Q")
_BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")  # each thread reserves memory


class Ended(Exception):
    """There is no answer: the process took too long, or crashed. The message says which."""


class Refused(Exception):
    """The library raised an error; the process goes on. The message is the error's."""


class Apart:
    """A process that runs ``script``; it begins at once, and is waited for only when it is asked something."""

    def __init__(self, script: Path, most_bytes: int = MOST_BYTES) -> None:
        self._is_late = False
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-P", str(script), json.dumps([str(p) for p in sys.path]), str(most_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **dict.fromkeys(_BLAS, "1")},
        )

    def ask(self, question: bytes, limit_s: float) -> Any:
        """What the process answers within a time; errors of our own come through."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        clock = threading.Timer(limit_s, self._stop)
        clock.daemon = True
        clock.start()
        try:
            _write(self._process.stdin, question)
            answer = _read(self._process.stdout)
        except OSError:
            answer = None
        finally:
            clock.cancel()
        if answer is None:
            raise Ended(f"it takes longer than {limit_s:.0f} s" if self._is_late else self._how_it_ended())
        kind, value = pickle.loads(answer)  # made by this package, in a process that runs nothing out of the file
        if isinstance(value, PlacewrightError):
            raise value
        if kind == "memory":
            raise Ended(f"it needs more than {bytes_text(MOST_BYTES)} of memory")
        if kind == "error":
            raise Refused(value)
        return value

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()

    def __enter__(self) -> Apart:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stop(self) -> None:
        self._is_late = True
        self._process.kill()

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        return f"the library crashed (signal {-code})" if code < 0 else f"the process ended (exit {code})"


def serve(answer: Callable[[bytes], Any], most_bytes: int) -> None:
    """In the process: answer questions until nobody asks. What was imported before does not count as memory."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    _limit_memory(most_bytes)
    while (question := _read(questions)) is not None:
        try:
            made: tuple[str, Any] = ("done", answer(question))
        except PlacewrightError as error:
            made = ("refused", error)
        except MemoryError:
            made = ("memory", None)
        except Exception as error:
            made = ("error", shown(f"{type(error).__name__}: {error}", 1000))
        _write(answers, pickle.dumps(made))


def _limit_memory(most_bytes: int) -> None:
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + most_bytes, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):  # another system: the limit of time is left
        pass


def _write(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    size = _LENGTH.unpack(head)[0]
    content = stream.read(size)
    return content if len(content) == size else None
