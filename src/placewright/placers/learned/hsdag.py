"""``hsdag``: a policy that embeds the graph, parses it into clusters, and learns from judged placements where they go.

After "A Structure-Aware Framework for Learning Device Placements on Computation Graphs" (NeurIPS 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from placewright.placers.learned.placing import LearnedPlacer
from placewright.problems import Problem
from placewright.reading import reading

if TYPE_CHECKING:
    import torch

    from placewright.placers.learned.features import Vocabulary
    from placewright.placers.learned.hsdag_episodes import EpisodeLearner, EpisodePolicy
    from placewright.placers.learned.hsdag_moves import MoveLearner, MovePolicy
    from placewright.placers.learned.hsdag_settings import Settings
    from placewright.placers.learned.rewards import Rewards


class HsdagPlacer(LearnedPlacer):
    """Learns on the problem itself, from scratch or from ``policy``, a file that ``train`` wrote.

    ``variant`` is ``ours``, ``paper`` or ``released``; further options are fields of ``hsdag_settings.Settings``, and
    ``without`` names feature blocks to leave out.
    """

    name = "hsdag"
    summary = "a learned policy over parsed clusters of the graph (HSDAG)"

    def __init__(
        self, variant: str = "ours", policy: str | None = None, rewards: Callable[[Problem], Rewards] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        from placewright.placers.learned.hsdag_settings import settings_for

        super().__init__(rewards, policy)
        self.settings = settings_for(variant, **options)
        self._policy_file = policy

    @property
    def by_rank(self) -> bool:
        return self.settings.by_rank

    def learner(self, problem: Problem, rewards: Rewards, seed: int) -> MoveLearner | EpisodeLearner:
        from placewright.placers.learned.features import Vocabulary
        from placewright.placers.learned.hsdag_settings import settings_of
        from placewright.placers.learned.policy_file import load_policy
        from placewright.placers.learned.stored import check_weights

        if self._policy_file is None:
            settings, vocabulary = self.settings, Vocabulary.of([problem.graph])
            policy, optimiser = new_policy(settings, vocabulary, problem.n_devices, seed)
        else:
            stored = load_policy(self._policy_file, self.name)
            with reading(self._policy_file, "a policy"):
                settings, vocabulary = settings_of(stored.settings), Vocabulary(stored.op_types)
                check_weights(stored.weights, _skeleton(settings, vocabulary, problem.n_devices), "weights")
                policy, optimiser = new_policy(settings, vocabulary, problem.n_devices, seed)
                policy.load_state_dict(stored.weights)
        return new_learner(problem, rewards, settings, vocabulary, policy, optimiser, seed)


def new_policy(
    settings: Settings, vocabulary: Vocabulary, n_devices: int, seed: int
) -> tuple[MovePolicy | EpisodePolicy, torch.optim.Optimizer]:
    """A policy with random weights, and its optimiser."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = _network(settings, vocabulary, n_devices)
    return policy, torch.optim.Adam(policy.parameters(), lr=settings.learning_rate or 1e-3)


def _network(settings: Settings, vocabulary: Vocabulary, n_devices: int) -> MovePolicy | EpisodePolicy:
    from placewright.placers.learned.hsdag_episodes import EpisodePolicy
    from placewright.placers.learned.hsdag_moves import MovePolicy

    if settings.decide == "moves":
        return MovePolicy(settings, vocabulary)
    return EpisodePolicy(settings, vocabulary, n_devices)


def _skeleton(settings: Settings, vocabulary: Vocabulary, n_devices: int) -> dict[str, torch.Tensor]:
    """What weights such a policy has, without any memory: sizes come from a file."""
    import torch

    with torch.device("meta"):
        return _network(settings, vocabulary, n_devices).state_dict()


def new_learner(
    problem: Problem, rewards: Rewards, settings: Settings, vocabulary: Vocabulary, policy: MovePolicy | EpisodePolicy,
    optimiser: torch.optim.Optimizer, seed: int,
) -> MoveLearner | EpisodeLearner:  # fmt: skip
    """A learner for one problem, by the way that the settings decide."""
    from placewright.placers.learned.hsdag_episodes import EpisodeLearner, EpisodePolicy
    from placewright.placers.learned.hsdag_moves import MoveLearner

    if isinstance(policy, EpisodePolicy):
        return EpisodeLearner(problem, rewards, settings, vocabulary, policy, optimiser, seed)
    return MoveLearner(problem, rewards, settings, vocabulary, policy, optimiser, seed)
