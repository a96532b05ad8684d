"""How long a placer may work, and how it tells what it has reached."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from placewright.errors import InputError
from placewright.text import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from placewright.graph import FloatArray

OPTIMAL_GAP = 1e-9  # value and bound this close: the rest is rounding
_UNIT_S = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Progress(NamedTuple):
    """A placer's state at one moment; what it does not know is infinite or zero."""

    seconds: float
    value: float = math.inf
    bound: float = 0.0
    evaluations: int = 0
    note: str = ""


class Incumbent(NamedTuple):
    """The best valid placement that placers working on one budget know."""

    device_of_op: NDArray[np.int32]
    value: float
    priority: FloatArray | None = None
    replicas: NDArray[np.int32] | None = None
    placer: str = ""


class Budget:
    """Time and evaluations a placer may spend; interruptible from another thread or a signal handler.

    Parts of a budget share one ``incumbent``, which searches may start from, and one proven ``bound``; a part has
    expired when the two meet.

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
        self.incumbent: Incumbent | None = None
        self.bound = 0.0
        self._known: list[Callable[[], Incumbent | None]] = []
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
        return self.is_interrupted or self.elapsed_s() >= self.seconds or self.is_closed()

    def is_closed(self) -> bool:
        """True when the incumbent is proven optimal."""
        return self.incumbent is not None and self.bound >= self.incumbent.value * (1 - OPTIMAL_GAP)

    def offer(self, incumbent: Incumbent) -> bool:
        """Take a valid placement as the incumbent if it is better than the present one."""
        if self.incumbent is not None and incumbent.value >= self.incumbent.value:
            return False
        self.incumbent = incumbent
        return True

    def raise_bound(self, bound: float) -> None:
        """Take a proven lower bound of every valid placement if it is better than the present one."""
        self.bound = max(self.bound, bound)

    def interrupt(self) -> None:
        """Ask the placer to come to an end now."""
        self.is_interrupted = True

    def knows(self, best: Callable[[], Incumbent | None]) -> None:
        """Leave a way to ask for the best placement of a search that goes on, from another thread.

        It is asked only when nobody waits for the search any more; what it gives is checked, so it may be half made.
        """
        self._known.append(best)

    def known(self) -> Iterator[Incumbent]:
        """The incumbent, and what searches on this budget know beside it."""
        for best in (lambda: self.incumbent, *self._known):
            with contextlib.suppress(Exception):  # the search changes what is read here
                found = best()
                if found is not None:
                    yield found

    def apart(self, seconds: float, evaluations: int | None = None) -> Budget:
        """A budget interrupted together with this one, but with an incumbent, a bound and a clock of its own."""
        return _ApartBudget(self, seconds, evaluations)

    def report(self, value: float = math.inf, bound: float = 0.0, evaluations: int = 0, note: str = "") -> None:
        """Tell whoever watches what has been reached; a ``bound`` is proven for every valid placement."""
        self.raise_bound(bound)
        if self._on_progress is not None:
            self._on_progress(Progress(self.elapsed_s(), value, bound, evaluations, note))

    def part(self, seconds: float) -> Budget:
        """A budget for a sub-task: at most ``seconds`` and never longer than this one; interrupted together with it."""
        return _PartBudget(self, min(seconds, self.remaining_s()))


class _ApartBudget(Budget):
    """For work on something else, or that must not end because the whole is solved."""

    def __init__(self, whole: Budget, seconds: float, evaluations: int | None) -> None:
        self._whole = whole
        super().__init__(seconds, evaluations)

    @property
    def is_interrupted(self) -> bool:
        return self._is_interrupted or self._whole.is_interrupted

    @is_interrupted.setter
    def is_interrupted(self, is_interrupted: bool) -> None:
        self._is_interrupted = is_interrupted


class _PartBudget(_ApartBudget):
    """Shares what is known with the budget it is a part of."""

    def __init__(self, whole: Budget, seconds: float) -> None:
        super().__init__(whole, seconds, whole.evaluations)
        self._on_progress, self._known = whole._on_progress, whole._known

    def expired(self) -> bool:
        return self._whole.expired() or super().expired()

    @property
    def incumbent(self) -> Incumbent | None:
        return self._whole.incumbent

    @incumbent.setter
    def incumbent(self, incumbent: Incumbent | None) -> None:
        if incumbent is not None:
            self._whole.incumbent = incumbent

    @property
    def bound(self) -> float:
        return self._whole.bound

    @bound.setter
    def bound(self, bound: float) -> None:
        self._whole.bound = max(self._whole.bound, bound)


def parse_seconds(text: str) -> float:
    """Read a duration such as ``30s``, ``1.5m``, ``2h`` or ``500ms``; a bare number means seconds.

    >>> parse_seconds("1.5m")
    90.0
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?\s*", text)
    if match is None:
        raise InputError(f"'{shown(text)}' is not a duration; expected for example 30s, 5m or 2h")
    return float(match[1]) * _UNIT_S[match[2] or ""]
