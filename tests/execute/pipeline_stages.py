"""Stages that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def adder(amount: int) -> Callable[[Any], Any]:
    return lambda x: x + amount


def sleeper(seconds: float) -> Callable[[Any], Any]:
    def work(x: Any) -> Any:
        time.sleep(seconds)
        return x

    return work


def fails_at(value: int) -> Callable[[Any], Any]:
    def work(x: Any) -> Any:
        if x == value:
            raise ValueError(f"cannot do {x}")
        return x

    return work


def dies_at(value: int) -> Callable[[Any], Any]:
    def work(x: Any) -> Any:
        if x == value:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    return work


def never_ready() -> Callable[[Any], Any]:
    raise RuntimeError("no such device")


def makes_much(n_bytes: int) -> Callable[[Any], Any]:
    """Results that do not fit into a pipe, so that a kill mostly hits their transfer."""
    return lambda x: bytes(n_bytes)


def says_pid(folder: str, name: str) -> Callable[[Any], Any]:
    """Leaves its process number in a file, then works on."""
    Path(folder, name).write_text(str(os.getpid()))
    return sleeper(0.01)


def slow_at_first(first_s: float, seconds: float) -> Callable[[Any], Any]:
    """Takes longer for its first sample, as what is loaded at first use does."""
    waits = iter([first_s])

    def work(x: Any) -> Any:
        time.sleep(next(waits, seconds))
        return x

    return work


def leaves_at(value: int) -> Callable[[Any], Any]:
    def work(x: Any) -> Any:
        if x == value:
            raise SystemExit(3)
        return x

    return work


def makes_functions() -> Callable[[Any], Any]:
    """Results that cannot be sent to another process."""
    return lambda x: lambda: x
