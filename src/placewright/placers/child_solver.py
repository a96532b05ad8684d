"""A solver in a process of its own: a problem goes in as bytes, news come out as lines of JSON.

A separate process, because the constraint solver and the linear solver load clashing versions of one shared library,
and because it can be ended at any moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from typing import Any

Line = dict[str, Any]
_sending = threading.Lock()  # a solver's callbacks come from different threads


class ChildSolver:
    """Handle on a running solve: poll `lines`, then `close`."""

    def __init__(self, module: str, problem: bytes) -> None:
        """`module` reads the problem with `received_problem` and answers with `send`."""
        command = [sys.executable, "-m", module]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.arrived: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self.finished = False
        threading.Thread(target=self._listen, args=(problem,), daemon=True).start()

    def _listen(self, problem: bytes) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(len(problem).to_bytes(8, "little") + problem)
            self.process.stdin.flush()  # it stays open: its end tells the child that nobody waits any more
            for line in self.process.stdout:
                self.arrived.put(json.loads(line))
        except (OSError, ValueError):
            pass  # ended by itself, or closed by us
        self.arrived.put({"name": "done"})

    def lines(self) -> list[Line]:
        """What has arrived since the last call; the last line of a solve is named ``done``."""
        found: list[Line] = []
        while not self.arrived.empty():
            found.append(self.arrived.get())
        self.finished |= any(line["name"] == "done" for line in found)
        return found

    def close(self) -> None:
        """End the solve, finished or not."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # what it had not read yet
            self.process.stdin.close()


def received_problem() -> bytes:
    """In the child: the problem. From then on the child ends when the process that started it does."""
    size_bytes = int.from_bytes(sys.stdin.buffer.read(8), "little")
    problem = sys.stdin.buffer.read(size_bytes)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return problem


def _end_with_parent() -> None:
    # Not through the stream: at the end of the interpreter a thread must not hold its lock.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def send(name: str, **content: object) -> None:
    """In the child: one line of news."""
    with _sending:
        print(json.dumps({"name": name, **content}), flush=True)
