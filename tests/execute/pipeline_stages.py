"""Stages that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
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
