"""How many steps a search takes, and how far on its way it is."""

from __future__ import annotations

import math

_SLICES = 200  # between two looks at the clock, at least
_SLICE_S = 0.06  # between two looks at the clock, at most
_UNIT = 2.0  # plans are a power of this
_CAUTION = 0.9  # of the time is planned with


class Pace:
    """A planned number of steps, taken in slices; where the clock is shown, the plan is cut to what time will do."""

    def __init__(self, steps: int, n_slices: int = _SLICES, share: float = 0.0) -> None:
        self.share = share  # of the way, done
        self.steps = steps
        self._slice = max(1, steps // n_slices)
        self._left = float(steps)
        self._done, self._seconds = 0, math.inf

    def next_steps(self, remaining_s: float | None = None) -> int:
        """The steps of the next slice, and on with ``share``; at the end of the way there are always more."""
        if remaining_s is not None:
            self._shorten(remaining_s)
        if self._left > 0:
            self.share = min(1.0, self.share + (1 - self.share) * min(1.0, self._slice / self._left))
        self._left -= self._slice
        self._done += self._slice
        if self._left < 0.5 * self._slice:
            self.share = 1.0
        return self._slice

    def _shorten(self, remaining_s: float) -> None:
        """Forgiving at first, for the pace may pick up, and strict towards the end."""
        if math.isinf(self._seconds):
            self._seconds = max(remaining_s, 1e-9)
        spent_s = self._seconds - remaining_s
        if spent_s > 0.05 * self._seconds:
            possible = self._done / spent_s * remaining_s
            if self._left > possible * (1 + 0.5 * remaining_s / self._seconds):
                self._left = possible


def planned(steps_per_s: float, seconds: float, most: float = math.inf) -> Pace:
    """A plan for at most so many seconds, in coarse units: a speed that is measured again leads to the same plan."""
    wanted = min(max(1.0, steps_per_s * seconds * _CAUTION), 1e15)
    steps = min(_UNIT ** math.floor(math.log(wanted, _UNIT) + 1e-9), most)
    slices = max(_SLICES, 2 ** math.ceil(math.log2(max(1.0, seconds / _SLICE_S))))
    return Pace(max(1, int(steps)), slices)
