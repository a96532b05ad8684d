"""``rnn``: a sequence model reads the groups and writes a device for each (after Mirhoseini et al., ICML 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.placers.learned.placing import LearnedPlacer
from placewright.problems import Problem

if TYPE_CHECKING:
    from placewright.placers.learned.rewards import Rewards
    from placewright.placers.learned.rnn_learner import RnnLearner


class RnnPlacer(LearnedPlacer):
    """An LSTM reads op types, shapes and adjacency of the groups; another one, with attention, writes the devices."""

    name = "rnn"
    summary = "a learned sequence-to-sequence policy over groups (ColocRL)"

    def learner(self, problem: Problem, rewards: Rewards, seed: int) -> RnnLearner:
        from placewright.placers.learned.rnn_learner import RnnLearner

        return RnnLearner(problem, rewards, seed)
