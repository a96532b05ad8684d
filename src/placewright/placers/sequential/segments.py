"""Placements in few segments: two segments by one cut, and moves that merge, split and shift segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from placewright import _core
from placewright.evaluate.judging import find_segments, judge_of
from placewright.graph import BoolArray, IntArray
from placewright.placers.sequential.fusion_moves import Fused, fuse
from placewright.placers.sequential.labelling import energy_of, labelling_value
from placewright.placers.sequential.large_moves import Stop
from placewright.placers.sequential.local_moves import used_bytes
from placewright.placers.units import movable_units
from placewright.problems import Problem

MOST_SHIFTS = 200  # segments that are split and shifted one by one


class Score(NamedTuple):
    """What a labelling is worth, faults first: bytes and segments beyond the limits, then the evaluator's value."""

    excess_bytes: float
    excess_segments: int
    value: float

    @property
    def is_valid(self) -> bool:
        return self.excess_bytes == 0 and self.excess_segments == 0


def counts_segments(problem: Problem) -> bool:
    """True if segments cost anything or are limited."""
    return problem.max_segments is not None or bool(problem.arrays.segment_overhead_s.max() > 0)


def score_of(problem: Problem, label: IntArray) -> Score:
    """Judge a labelling of units by the evaluator's rules."""
    energy, a = energy_of(problem), problem.arrays
    over = np.maximum(used_bytes(energy, label) - a.memory_limit_bytes, 0.0).sum()
    value, excess = labelling_value(energy, label), 0
    if counts_segments(problem):
        segment, count = segments_of(problem, label)
        device = label[movable_units(problem).unit_of_op]
        value += judge_of(problem).overheads(device, segment, count, np.empty(problem.n_devices))
        excess = max(0, count - (problem.max_segments or count))
    return Score(float(over), excess, value)


def segments_of(problem: Problem, label: IntArray) -> tuple[IntArray, int]:
    """Each op's segment in running order, and how many there are."""
    count, segment = find_segments(problem, label[movable_units(problem).unit_of_op])
    return segment, count


def least_overhead(problem: Problem, segments: int) -> float:
    """The least overhead of that many segments, neighbours on different devices."""
    cheapest = np.sort(problem.arrays.segment_overhead_s)
    if segments == 1 or len(cheapest) == 1:
        return float(cheapest[0]) * segments
    return float(cheapest[0]) * ((segments + 1) // 2) + float(cheapest[1]) * (segments // 2)


def two_segments(
    problem: Problem, one: int, other: int, among: BoolArray | None = None, label: IntArray | None = None,
    should_stop: Stop | None = None,
) -> Fused | None:  # fmt: skip
    """The best labelling that runs on ``one`` first and then on ``other``; ``None`` if rules do not let it.

    ``among`` [units] restricts this to some units, the rest keeps its ``label``.
    """
    energy = energy_of(problem)
    free = np.ones(energy.n_units, dtype=np.bool_) if among is None else among
    before, after = unit_edges(problem)
    inside = free[before] & free[after]
    before, after = before[inside], after[inside]
    can = np.isfinite(energy.time_s)
    must_end, must_begin = ~can[:, one] & free, ~can[:, other] & free
    _core.sequential.mark_what_follows(before, after, must_end)
    _core.sequential.mark_what_precedes(before, after, must_begin)
    if (must_end & must_begin).any():
        return None
    rest = np.zeros(energy.n_units, dtype=np.int32) if label is None else label
    first = np.where(free, np.where(must_end, other, one), rest).astype(np.int32)
    second = np.where(free, np.where(must_begin, one, other), rest).astype(np.int32)
    return fuse(energy, first, second, order=(before, after), should_stop=should_stop)


def unit_edges(problem: Problem) -> tuple[IntArray, IntArray]:
    """(before, after) units of all edges that lead from one unit to another, in running order."""
    unit, g = movable_units(problem).unit_of_op, problem.graph
    before, after = unit[g.edge_producer], unit[g.consumer_op]
    outer = before != after
    return before[outer], after[outer]


class _Segments(NamedTuple):
    """Where a labelling's segments lie: first and last segment of each unit, device of each segment."""

    low: IntArray
    high: IntArray
    device: IntArray


def _segments(problem: Problem, label: IntArray) -> _Segments:
    segment, count = segments_of(problem, label)
    unit = movable_units(problem).unit_of_op
    low, high = np.full(len(label), count, dtype=np.int32), np.full(len(label), -1, dtype=np.int32)
    np.minimum.at(low, unit, segment)
    np.maximum.at(high, unit, segment)
    device = np.empty(count, dtype=np.int32)
    device[segment] = label[unit]
    return _Segments(low, high, device)


def _moves(problem: Problem, label: IntArray, at: _Segments, j: int, should_stop: Stop) -> Iterator[IntArray]:
    """Labellings one move of segment ``j`` away: merged with a neighbour, shifted against the next one, split."""
    can, count = movable_units(problem).allowed, len(at.device)
    own = int(at.device[j])
    members = (at.low == j) & (at.high == j)
    for d in sorted({int(at.device[i]) for i in (j - 1, j + 1) if 0 <= i < count}):
        yield np.where(members & can[:, d], d, label).astype(np.int32)
    if count > MOST_SHIFTS:
        return
    cuts = [(d, members) for d in range(can.shape[1]) if d != own]
    if j + 1 < count:
        cuts.append((int(at.device[j + 1]), (at.low >= j) & (at.high <= j + 1)))
    for d, among in cuts:
        for one, other in ((own, d), (d, own)):
            fused = two_segments(problem, one, other, among, label, should_stop)
            if fused is not None:
                yield fused.label


def improve_segments(problem: Problem, label: IntArray, should_stop: Stop) -> IntArray:
    """Take every segment move that helps, going round and round until none does."""
    best, at = score_of(problem, label), _segments(problem, label)
    j = idle = 0
    while idle < len(at.device) and not should_stop():
        j, idle = j % len(at.device), idle + 1
        for trial in _moves(problem, label, at, j, should_stop):
            score = score_of(problem, trial)
            if score < best:
                label, best, at, idle = trial, score, _segments(problem, trial), 0
                break
            if should_stop():
                break
        j += 1 if idle else 0
    return label
