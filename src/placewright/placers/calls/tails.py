"""How long it takes at least from the end of a unit to the end of everything; ``core/calls/tails.h`` says how."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placewright import _core
from placewright.graph import FloatArray
from placewright.placers.calls.relaxation import Relaxed, core_relaxed


class Tails(NamedTuple):
    """Least seconds to the end of everything."""

    edge_s: FloatArray  # [edges] from the end of a unit, along this edge; aligned with ``successor``
    start_s: FloatArray  # [units] from the moment that all a unit reads is there, its own time included
    open_s: FloatArray  # [units] from the end of a unit's own work in a piece that may go on with later units


def find_tails(relaxed: Relaxed, should_stop: Callable[[], bool] | None = None) -> Tails:
    """The least times along the paths that seem longest; zeros where the time is over before."""
    n_units = len(relaxed.host_time_s)
    tails = Tails(np.empty(len(relaxed.successor)), np.empty(n_units), np.empty(n_units))
    _core.calls.find_tails(core_relaxed(relaxed), *tails, should_stop)
    return tails
