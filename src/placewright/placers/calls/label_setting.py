"""The relaxed problem solved by labels on the lattice of ideals; ``core/calls/label_setting.h`` says how."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from placewright import _core
from placewright.graph import FloatArray
from placewright.placers.calls.frontier import core_ideals
from placewright.placers.calls.relaxation import Relaxed, core_relaxed
from placewright.placers.calls.tails import Tails
from placewright.placers.pipeline.lattice import Lattice


class Ration(NamedTuple):
    """What pieces use up, and how much of it there is."""

    per_piece: float
    per_unit: FloatArray  # [units]
    limit: float


class Solution(NamedTuple):
    """Groups of units in the order in which they can be run; host units are groups of one."""

    value: float
    groups: list[tuple[list[int], bool]]  # units, whether they run on the host

    @property
    def n_pieces(self) -> int:
        return sum(not on_host for _, on_host in self.groups)


class Outcome(NamedTuple):
    """``bound`` holds for the relaxed problem; ``solution`` is the best one below the cutoff, where it can be told."""

    bound: float
    solution: Solution | None
    is_finished: bool
    is_blended: bool  # labels were replaced by minima
    visits: int


def solve_labels(
    relaxed: Relaxed,
    lattice: Lattice,
    frontiers: _core.calls.Frontiers,
    tails: Tails,
    cutoff: float,
    width: int,
    should_stop: Callable[[], bool],
    ration: Ration | None = None,
) -> Outcome:
    """Bound the relaxed problem from below; solve it if ``width`` labels per ideal are enough.

    With a ``ration`` the answer, bound included, is about solutions that keep to it. Without, fewer pieces are
    preferred where nothing else differs.
    """
    found = _core.calls.solve_labels(
        core_relaxed(relaxed), core_ideals(lattice), frontiers, tails.open_s, cutoff, width, ration, should_stop
    )
    solution = None if found.solution is None else Solution(found.solution.value, found.solution.groups)
    return Outcome(found.bound, solution, found.is_finished, found.is_blended, found.n_visits)
