"""``hdp``: a grouper puts ops into groups, a sequence model places the groups (after Mirhoseini et al., ICLR 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from placewright.placers.learned.placing import LearnedPlacer
from placewright.problems import Problem

if TYPE_CHECKING:
    from placewright.placers.learned.hdp_learner import HdpLearner
    from placewright.placers.learned.rewards import Rewards


class HdpPlacer(LearnedPlacer):
    """Both networks learn together from the placements' times. ``by_rank``: ready ops run by the longest way left."""

    name = "hdp"
    summary = "a learned grouper and a learned placer of groups (HDP)"

    def __init__(self, rewards: Callable[[Problem], Rewards] | None = None, by_rank: bool = False) -> None:
        super().__init__(rewards)
        self._by_rank = by_rank

    @property
    def by_rank(self) -> bool:
        return self._by_rank

    def learner(self, problem: Problem, rewards: Rewards, seed: int) -> HdpLearner:
        from placewright.placers.learned.hdp_learner import HdpLearner

        return HdpLearner(problem, rewards, seed)
