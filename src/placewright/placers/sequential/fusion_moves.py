"""Fusion of two labellings: every unit takes its device from the one or from the other, by one minimum cut.

Expansions (everyone may go to one device) and swaps (two devices exchange units) are fusions. Copies that no cut can
tell are replaced by what is never too small and is right for the first labelling: if that is the present one, the
result is never worse than it. With two devices and everybody free, nothing is replaced: the cut is the optimum.
``core/sequential/fusion_moves.h`` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placewright import _core
from placewright.graph import FloatArray, IntArray
from placewright.placers.sequential.labelling import Energy

NOBODY = np.zeros(0, dtype=np.int32)


class Fused(NamedTuple):
    """The labelling of the cut, and a lower bound on all fusions that is proven if ``is_exact``."""

    label: IntArray
    bound: float
    is_exact: bool


def fuse(
    energy: Energy,
    first: IntArray,
    second: IntArray,
    unary_s: FloatArray | None = None,
    order: tuple[IntArray, IntArray] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Fused:
    """Fuse two labellings that differ in at most two ways per device: see the module.

    ``unary_s`` [units, devices] replaces the units' times (prices of memory added, for instance). ``order`` holds
    pairs of units (u, v): if u takes its second label, so does v.
    """
    unary_s = energy.time_s if unary_s is None else unary_s
    label = np.empty_like(first)
    bound, is_exact = _core.sequential.fuse(
        energy.core, unary_s, first, second, *(order or (NOBODY, NOBODY)), label, should_stop
    )
    return Fused(label, bound, is_exact)
