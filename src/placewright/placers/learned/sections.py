"""Sections of a graph that run one after another: what a change in one of them gains can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.course import ends_s
from placewright.placers.learned.groups import GroupGraph
from placewright.placers.learned.moves import Moves
from placewright.problems import Problem

LEAST_OPS = 8  # of a section
FAR = 0.25  # share of all ops: what is read over more of them, like a mask, is part of no section and cuts none
WIDE = -1  # stands for the section of what belongs to none
LEAST_GAIN = 1e-9  # less is rounding


class Place(NamedTuple):
    """A judged placement."""

    device: IntArray  # [groups]
    rank_s: FloatArray | None  # [ops]: the order, None: the rewards' own
    time_s: FloatArray  # [sections]: what each adds to the score

    @property
    def score_s(self) -> float:
        return float(self.time_s.sum())


class Sections(NamedTuple):
    """Ops in topological order, cut where a single op feeds all that follows: its end is the end of a section."""

    of_op: NDArray[np.int64]  # [ops]
    of_group: NDArray[np.int64]  # [groups]: WIDE where its ops are in several sections, or it is the end of one
    home: NDArray[np.int64]  # [groups]: section of the first op
    entry: NDArray[np.int64]  # [sections]: group of the op before the first one, -1 for the first section
    exit: NDArray[np.int64]  # [sections]: group of the last op, -1 for the last section

    @property
    def n_sections(self) -> int:
        return len(self.entry)

    def of_moves(self, moves: Moves) -> NDArray[np.int64]:
        """[moves]: the section that all moved groups belong to."""
        found = np.empty(len(moves.level), dtype=np.int64)
        for level, part in enumerate(moves.part_of_group):
            least = np.full(int(part.max()) + 1, self.n_sections)
            most = np.full(len(least), WIDE)
            np.minimum.at(least, part, self.of_group)
            np.maximum.at(most, part, self.of_group)
            here = moves.level == level
            found[here] = np.where(least == most, least, WIDE)[moves.part[here]]
        return found

    def times_s(self, problem: Problem, op_rows: IntArray, rank_s: FloatArray) -> FloatArray:
        """[batch, sections]: how long each section of judged placements took; sections add up to the whole."""
        times = np.empty((len(op_rows), self.n_sections))
        for row, rank, out in zip(op_rows, rank_s, times, strict=True):
            until = np.zeros(self.n_sections)
            np.maximum.at(until, self.of_op, ends_s(problem, row, rank))
            out[:] = np.diff(np.maximum.accumulate(until), prepend=0.0)
        return times

    def sums(self, of_groups: FloatArray) -> FloatArray:
        """[batch, sections]: sums of [batch, groups], each group in the section where it begins."""
        out = np.zeros((self.n_sections, len(of_groups)))
        np.add.at(out, self.home, of_groups.T)
        return out.T

    def compare(self, a: Place, b: Place, section: int) -> bool:
        """Whether a section begins and ends on the same devices in both placements: only then its times compare."""
        ends = (self.entry[section], self.exit[section])
        return all(end < 0 or a.device[end] == b.device[end] for end in ends)

    def better(self, best: Place, places: Sequence[Place]) -> dict[int, int]:
        """Sections that took less time in other placements than in the best one, with the number of the fastest."""
        found: dict[int, int] = {}
        for section in range(self.n_sections):
            least_s = best.time_s[section] * (1 - LEAST_GAIN)
            for i, place in enumerate(places):
                if place.time_s[section] < least_s and self.compare(best, place, section):
                    found[section], least_s = i, place.time_s[section]
        return found

    def put_together(self, base: Place, others: Sequence[Place], taken: dict[int, int]) -> Place:
        """A placement with some sections of others; all have an order. Its times are guesses until it is judged."""
        device, time_s = base.device.copy(), base.time_s.copy()
        assert base.rank_s is not None
        rank_s = base.rank_s.copy()
        for section, i in taken.items():
            groups, ops, other_s = self.of_group == section, self.of_op == section, others[i].rank_s
            assert other_s is not None
            device[groups], rank_s[ops], time_s[section] = (
                others[i].device[groups],
                other_s[ops],
                others[i].time_s[section],
            )
        return Place(device, rank_s, time_s)


def sections_of(problem: Problem, groups: GroupGraph, *, apart: bool) -> Sections:
    """Cut a graph into sections of some ops each; all of it is one section if it shall not be taken ``apart``."""
    n, graph = problem.n_ops, problem.graph
    last_reader = np.full(n, -1, dtype=np.int64)
    np.maximum.at(last_reader, graph.edge_producer, graph.consumer_op)
    op = np.arange(n)
    far = last_reader - op > FAR * n
    near = (last_reader > op) & ~far
    waiting = np.cumsum(np.bincount(op[near], minlength=n) - np.bincount(last_reader[near], minlength=n))
    ends: list[int] = []
    for i in np.flatnonzero(near & (waiting == 1)).tolist() if apart else []:
        if i + 1 - (ends[-1] + 1 if ends else 0) >= LEAST_OPS and n - 1 - i >= LEAST_OPS:
            ends.append(i)
    of_op = np.searchsorted(np.array(ends, dtype=np.int64), op)
    group, home = groups.group_of_op, of_op[groups.first_op]
    last = np.zeros(groups.n_groups, dtype=np.int64)
    np.maximum.at(last, group, of_op)
    of_group, end_groups = np.where(last == home, home, WIDE), group[ends].astype(np.int64)
    if ends:
        of_group[np.concatenate([end_groups, group[far]])] = WIDE
    none = np.array([-1])
    return Sections(of_op, of_group, home, np.concatenate([none, end_groups]), np.concatenate([end_groups, none]))
