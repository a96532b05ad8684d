"""``placeto``: groups are visited one after another, and a graph network says where each should go (NeurIPS 2019).

State: the graph with its present placement and a pointer to one group. Reward: the time that a step saves. Several
episodes run side by side, so that every step of theirs is one batch for the network and one for the evaluator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.placers.learned.placing import LearnedPlacer
from placewright.problems import Problem

if TYPE_CHECKING:
    from placewright.placers.learned.placeto_learner import PlacetoLearner
    from placewright.placers.learned.rewards import Rewards


class PlacetoPlacer(LearnedPlacer):
    """Placeto's decision process, features and network; REINFORCE with a baseline per step of the episode."""

    name = "placeto"
    summary = "a learned policy that re-places one group after another (Placeto)"

    def learner(self, problem: Problem, rewards: Rewards, seed: int) -> PlacetoLearner:
        from placewright.placers.learned.placeto_learner import PlacetoLearner

        return PlacetoLearner(problem, rewards, seed)
