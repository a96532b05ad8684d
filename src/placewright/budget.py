"""How long a placer may work, and how it tells what it has reached."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from placewright.errors import InputError
from placewright.text import shown

_UNIT_S = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Progress(NamedTuple):
    """A placer's state at one moment; what it does not know is infinite or zero."""

    seconds: float
    value: float = math.inf
    bound: float = 0.0
    evaluations: int = 0
    note: str = ""


class Budget:
    """Time and evaluations a placer may spend; interruptible from another thread or a signal handler.

    Placers ask :meth:`expired` at least every tenth of a second and then return the best they have.

    >>> Budget(seconds=0.0).expired()
    True
    """

    def __init__(
        self,
        seconds: float = 30.0,
        evaluations: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.seconds = seconds
        self.evaluations = evaluations
        self.is_interrupted = False
        self._on_progress = on_progress
        self._start = time.monotonic()

    def elapsed_s(self) -> float:
        """Seconds since the budget was made."""
        return time.monotonic() - self._start

    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return 0.0 if self.is_interrupted else max(0.0, self.seconds - self.elapsed_s())

    def expired(self) -> bool:
        """True when the placer has to come to an end."""
        return self.is_interrupted or self.elapsed_s() >= self.seconds

    def interrupt(self) -> None:
        """Ask the placer to come to an end now."""
        self.is_interrupted = True

    def report(self, value: float = math.inf, bound: float = 0.0, evaluations: int = 0, note: str = "") -> None:
        """Tell whoever watches what has been reached."""
        if self._on_progress is not None:
            self._on_progress(Progress(self.elapsed_s(), value, bound, evaluations, note))

    def part(self, seconds: float) -> Budget:
        """A budget for a sub-task: at most ``seconds`` and never longer than this one; interrupted together with it."""
        return _PartBudget(self, min(seconds, self.remaining_s()))


class _PartBudget(Budget):
    def __init__(self, whole: Budget, seconds: float) -> None:
        super().__init__(seconds, whole.evaluations, whole._on_progress)
        self._whole = whole

    def expired(self) -> bool:
        return self._whole.expired() or super().expired()


def parse_seconds(text: str) -> float:
    """Read a duration such as ``30s``, ``1.5m``, ``2h`` or ``500ms``; a bare number means seconds.

    >>> parse_seconds("1.5m")
    90.0
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?\s*", text)
    if match is None:
        raise InputError(f"'{shown(text)}' is not a duration; expected for example 30s, 5m or 2h")
    return float(match[1]) * _UNIT_S[match[2] or ""]
