"""Trials drawn by a policy: changes of a judged placement, one in every section of the graph at once."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.groups import GroupGraph
from placewright.placers.learned.moves import Moves, moved
from placewright.placers.learned.rewards import ways_left
from placewright.placers.learned.sections import WIDE, Place, Sections
from placewright.problems import Problem

MORE_MOVES = (0.35, 0.1)  # chance of a second and of a third move in one change
DRAWS_PER_TRIAL = 4  # what was met before is not tried again, so more is drawn than needed
OVERTAKING = 0.25  # share of the changes that let an op overtake another one, and do nothing else
SHIFTING, SHIFT = 0.4, 0.05  # share of the last changes that put a part forward or back, and by how much of the value
KEEPING_ORDER = 0.5  # share of the other changes that keep the order of now; else the longest way left decides anew


class Drawn(NamedTuple):
    """Trials, and the changes that they are made of: one in each of some sections, or one that belongs to none."""

    rows: IntArray  # [trials, groups]
    rank_s: FloatArray | None  # [trials, ops]
    chosen: NDArray[np.int64]  # [changes, moves]: -1 for none
    trial: NDArray[np.int64]  # [changes]
    section: NDArray[np.int64]  # [changes]
    is_alone: NDArray[np.bool_]  # [changes]: one move, nothing else


class _Changes(NamedTuple):
    rows: IntArray  # [changes, groups]
    rank_s: FloatArray | None  # [changes, ops]
    chosen: NDArray[np.int64]  # [changes, moves]
    section: NDArray[np.int64]  # [changes]
    is_reordered: NDArray[np.bool_]  # [changes]


class Drawer:
    """Draws changes that were not met before; ``ordered``: the order of ready ops can be chosen."""

    def __init__(self, problem: Problem, groups: GroupGraph, sections: Sections, *, ordered: bool) -> None:
        self.problem, self.groups, self.sections, self._ordered = problem, groups, sections, ordered
        self.seen: set[int] = set()

    def note(self, device: IntArray) -> None:
        """A placement was judged without having been drawn."""
        self.seen.update(self._key(device, section) for section in range(WIDE, self.sections.n_sections))

    def draw(
        self, now: Place, moves: Moves, overtakings: NDArray[np.int64], chance: Tensor, wanted: int, progress: float
    ) -> Drawn:
        """Draw as many trials as wanted, or fewer if all was met.

        The first move says whether a trial is one change across sections, or one in each of them. A change is a move by
        its ``chance``, sometimes with a second and a third one of the same section. Where order matters, some changes
        are of the order: an op overtakes another one of ``overtakings``, or a part goes forward or back.
        """
        of_move = torch.from_numpy(self.sections.of_moves(moves))
        wide = int((torch.rand(wanted) < chance[of_move == WIDE].sum()).sum())
        chosen, section = _chosen(chance, of_move, {WIDE: wide}, wanted - wide)
        draws, of_pair = len(chosen), self.sections.of_op[overtakings[:, 0]]
        overtakes = (torch.rand(draws) < OVERTAKING) & torch.from_numpy(np.isin(section, of_pair))
        shifts = ~overtakes & (torch.rand(draws) < SHIFTING * progress) & torch.from_numpy(section != WIDE)
        shifts &= torch.tensor(self._ordered)
        part = chosen[:, 0].numpy()
        chosen[overtakes | (shifts & (torch.rand(draws) < 0.5))] = -1
        rows = moved(now.device, moves, chosen.numpy())
        rank_s = None
        if self._ordered:
            shift_s = SHIFT * now.score_s * torch.randn(draws, dtype=torch.float64) * shifts
            hit = moves.part_of_group[moves.level[part]] == moves.part[part][:, None]
            rank_s = self._ranks(now, rows, _pairs(overtakings, of_pair, section, overtakes.numpy()))
            rank_s += (hit * shift_s.numpy()[:, None])[:, self.groups.group_of_op]
        changes = _Changes(rows, rank_s, chosen.numpy(), section, (overtakes | shifts).numpy())
        return self._assembled(now, changes, self._fresh(changes, {WIDE: wide}, wanted - wide))

    def order_of(self, place: Place) -> FloatArray:
        """[ops]: ranks of a placement, the longest ways left where it has none."""
        if place.rank_s is not None:
            return place.rank_s
        return ways_left(self.problem, place.device[self.groups.group_of_op][None])[0]

    def _ranks(self, now: Place, rows: IntArray, pairs: NDArray[np.int64]) -> FloatArray:
        """[changes, ops]: as now, or by the longest ways left with the differences of now; some ops overtake others."""
        group_of_op, draws = self.groups.group_of_op, len(rows)
        way_s = ways_left(self.problem, now.device[group_of_op][None])[0]
        now_s = way_s if now.rank_s is None else now.rank_s
        overtakes = pairs[:, 0] >= 0
        keeps = (torch.rand(draws) < KEEPING_ORDER).numpy() | overtakes
        ranks = np.where(keeps[:, None], now_s, ways_left(self.problem, rows[:, group_of_op]) + now_s - way_s)
        ranks[overtakes, pairs[overtakes, 0]] = np.nextafter(now_s[pairs[overtakes, 1]], np.inf)
        return ranks

    def _fresh(self, changes: _Changes, wanted: dict[int, int], else_wanted: int) -> NDArray[np.int64]:
        """[changes]: how many of the same section come before it, -1 for those that were met before or are too many."""
        count: dict[int, int] = {}
        number = np.full(len(changes.rows), -1)
        for i, (row, section) in enumerate(zip(changes.rows, changes.section.tolist(), strict=True)):
            if count.get(section, 0) >= wanted.get(section, else_wanted):
                continue
            is_reordered = changes.rank_s is not None and changes.is_reordered[i]
            key = self._key(row, section, changes.rank_s[i] if is_reordered and changes.rank_s is not None else None)
            if key not in self.seen:
                self.seen.add(key)
                number[i] = count.get(section, 0)
                count[section] = number[i] + 1
        return number

    def _assembled(self, now: Place, changes: _Changes, number: NDArray[np.int64]) -> Drawn:
        """Put changes together to trials: the first one of every section, the second one, ...; those of none last."""
        is_wide = changes.section == WIDE
        local = int(number[~is_wide].max(initial=-1)) + 1
        trial = np.where(is_wide & (number >= 0), number + local, number)
        taken = np.flatnonzero(trial >= 0)
        rows = np.repeat(now.device[None], int(trial.max(initial=-1)) + 1, axis=0)
        rank_s = None if changes.rank_s is None else np.repeat(self.order_of(now)[None], len(rows), axis=0)
        for i in taken.tolist():
            differs = changes.rows[i] != now.device
            rows[trial[i], differs] = changes.rows[i, differs]
            if rank_s is not None and changes.rank_s is not None:
                ops = slice(None) if is_wide[i] else self.sections.of_op == changes.section[i]
                rank_s[trial[i], ops] = changes.rank_s[i, ops]
        chosen = changes.chosen[taken]
        alone = (chosen[:, 0] >= 0) & (chosen[:, 1:] < 0).all(axis=1) & ~changes.is_reordered[taken]
        return Drawn(rows, rank_s, chosen, trial[taken], changes.section[taken], alone)

    def _key(self, device: IntArray, section: int, rank_s: FloatArray | None = None) -> int:
        """What was tried: all, or a section and the device that it is entered from."""
        order = [] if rank_s is None else [rank_s]
        if section == WIDE or self.sections.n_sections == 1:
            return _hash(device, *order)
        entry = self.sections.entry[section]
        where = np.array([section, device[entry] if entry >= 0 else -1])
        ours = self.sections.of_op == section
        return _hash(where, device[self.sections.home == section], *(ranks[ours] for ranks in order))


def _chosen(
    chance: Tensor, of_move: Tensor, wanted: dict[int, int], else_wanted: int
) -> tuple[Tensor, NDArray[np.int64]]:
    """[changes, moves] of each section, more than wanted, first moves all different; and the sections."""
    width, chance = 1 + len(MORE_MOVES), chance.clamp(min=1e-30)
    chosen, sections = [torch.zeros((0, width), dtype=torch.int64)], [np.zeros(0, dtype=np.int64)]
    for section in torch.unique(of_move).tolist():
        ours = torch.nonzero(of_move == section)[:, 0]
        draws = min(DRAWS_PER_TRIAL * wanted.get(section, else_wanted), len(ours))
        if draws == 0:
            continue
        some = torch.full((draws, width), -1)
        some[:, 0] = ours[torch.multinomial(chance[ours], draws)]
        for k, share in enumerate(MORE_MOVES):
            more = ours[torch.multinomial(chance[ours], draws, replacement=True)]
            some[:, k + 1] = torch.where(torch.rand(draws) < share, more, some[:, k + 1])
        chosen.append(some)
        sections.append(np.full(draws, section))
    return torch.cat(chosen), np.concatenate(sections)


def _pairs(
    pairs: NDArray[np.int64], of_pair: NDArray[np.int64], section: NDArray[np.int64], wants: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """[changes, 2]: a pair of the same section by chance for those that want one, else -1."""
    out = np.full((len(section), 2), -1, dtype=np.int64)
    by_section = {s: np.flatnonzero(of_pair == s) for s in np.unique(section[wants]).tolist()}
    for i in np.flatnonzero(wants).tolist():
        ours = by_section[section[i]]
        out[i] = pairs[ours[int(torch.randint(len(ours), ()))]]
    return out


def _hash(*arrays: NDArray[Any]) -> int:
    digest = hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
