"""Large moves: expansions and swaps, each a minimum cut, until none of them helps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placewright.graph import FloatArray, IntArray
from placewright.placers.sequential.fusion_moves import Fused, fuse
from placewright.placers.sequential.labelling import Energy, labelling_value

Stop = Callable[[], bool]


def never() -> bool:
    """The stop of those who have time."""
    return False


def two_way_cut(
    energy: Energy, one: int, other: int, unary_s: FloatArray | None = None, should_stop: Stop = never
) -> Fused:
    """The best labelling with two devices; units that may be on one of them only stay there."""
    can = np.isfinite(energy.time_s)
    first = np.where(can[:, one], one, other).astype(np.int32)
    second = np.where(can[:, other], other, one).astype(np.int32)
    return fuse(energy, first, second, unary_s, should_stop=should_stop)


def expanded(energy: Energy, label: IntArray, to: int, unary_s: FloatArray | None, should_stop: Stop) -> IntArray:
    """Let every unit keep its device or go to the device ``to``."""
    target = np.where(np.isfinite(energy.time_s[:, to]), to, label).astype(np.int32)
    return fuse(energy, label, target, unary_s, should_stop=should_stop).label


def swapped(
    energy: Energy, label: IntArray, one: int, other: int, unary_s: FloatArray | None, should_stop: Stop
) -> IntArray:
    """Share out anew the units of two devices between them."""
    can = np.isfinite(energy.time_s)
    free = ((label == one) | (label == other)) & can[:, one] & can[:, other]
    first = np.where(free, one, label).astype(np.int32)
    return fuse(energy, first, np.where(free, other, label).astype(np.int32), unary_s, should_stop=should_stop).label


def improve_by_cuts(
    energy: Energy, label: IntArray, unary_s: FloatArray | None = None, should_stop: Stop = never
) -> IntArray:
    """Expand to every device in turn, then swap every pair, until nothing gets better."""
    n = energy.n_devices
    best = labelling_value(energy, label, unary_s)
    moves = [(d, -1) for d in range(n)]
    if n > 2:
        moves += [(d, other) for d in range(n) for other in range(d + 1, n)]
    idle = at = 0
    while idle < len(moves) and not should_stop():
        one, other = moves[at % len(moves)]
        at += 1
        if other < 0:
            trial = expanded(energy, label, one, unary_s, should_stop)
        elif (label == one).any() or (label == other).any():
            trial = swapped(energy, label, one, other, unary_s, should_stop)
        else:
            idle += 1
            continue
        value = labelling_value(energy, trial, unary_s)
        idle += 1
        if value < best * (1 - 1e-12):
            label, best, idle = trial, value, 0
    return label


def starting_labels(energy: Energy, unary_s: FloatArray | None = None) -> list[IntArray]:
    """Every unit where it is fastest, and everything on one device as far as it may be there."""
    unary = energy.time_s if unary_s is None else unary_s
    fastest = unary.argmin(axis=1).astype(np.int32)
    can = np.isfinite(energy.time_s)
    alone = [np.where(can[:, d], d, fastest).astype(np.int32) for d in range(energy.n_devices)]
    return [fastest, *sorted(alone, key=lambda label: labelling_value(energy, label, unary_s))]
