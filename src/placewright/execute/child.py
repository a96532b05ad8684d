"""A process that works for this one over a socket pair, with fewer instructions than the processor has.

The instruction set is chosen once per process, by an environment variable. The child ends when its end of the pair is
closed, so it never outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.execute.dataflow import ExecutionError
from placewright.execute.workers import deaf_children
from placewright.text import shown

_END_LIMIT_S = 5.0


class Child:
    """A running ``python -m MODULE FD``; it answers messages with (True, value) or (False, why not)."""

    def __init__(self, module: str, device: str, instruction_set: str) -> None:
        self.device = device
        ours, theirs = socket.socketpair()
        with theirs, deaf_children(signal.SIGINT, signal.SIGTERM):  # it ends when we do, and not before
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "ONEDNN_MAX_CPU_ISA": instruction_set.upper()},
                stdin=subprocess.DEVNULL,
            )
        self._connection: Any = Connection(ours.detach())

    def ask(self, *message: Any) -> Any:
        """Send a message and wait for the answer."""
        self.say(*message)
        return self.answer()

    def say(self, *message: Any) -> None:
        """Send a message only."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._lost() from error

    def answer(self) -> Any:
        """What the child answers; raises :class:`ExecutionError` if it could not, or has ended."""
        try:
            is_done, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        if not is_done:
            raise ExecutionError(f"device '{shown(self.device)}': {shown(str(value), 300)}")
        return value

    def send_array(self, array: NDArray[Any]) -> None:
        """Send an array's bytes."""
        try:
            self._connection.send_bytes(as_bytes(np.ascontiguousarray(array)))
        except OSError as error:
            raise self._lost() from error

    def receive_array(self, array: NDArray[Any]) -> None:
        """Fill an array with what the child sends."""
        try:
            self._connection.recv_bytes_into(as_bytes(array))
        except (EOFError, OSError) as error:
            raise self._lost() from error

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _lost(self) -> ExecutionError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_S)
        code = self._process.returncode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
        return ExecutionError(f"the worker process of device '{shown(self.device)}' ended ({how})")


def as_bytes(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def parent_connection() -> Any:
    """The child's end of the pair."""
    return Connection(int(sys.argv[1]))
