"""``gdp``: one policy for all graphs, trained beforehand; used as it is (zero-shot) or fine-tuned on the problem.

After "GDP: Generalized Device Placement for Dataflow Graphs" (2019) and its successor GO (NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.budget import Budget
from placewright.placers.base import Found
from placewright.placers.learned.placing import LearnedPlacer
from placewright.problems import Problem

if TYPE_CHECKING:
    from placewright.placers.learned.gdp_learner import GdpLearner, Teacher
    from placewright.placers.learned.gdp_pupil import Pupil
    from placewright.placers.learned.rewards import Rewards

SHIPPED = Path(__file__).parent / "policies" / "gdp.safetensors"
ZERO_SHOT_SAMPLES, ZERO_SHOT_MOVES = 8, 192


class GdpPlacer(LearnedPlacer):
    """Starts from ``policy``: a file that ``train`` wrote, by default the one that comes with the package.

    ``policy="none"`` learns from scratch (GDP-one). ``zero_shot`` does not learn: one pass, then ``decode`` up to the
    stage of that name (``policy``, ``list``, ``samples`` or ``search``). ``variant`` is ``ours`` or ``paper``; further
    options are fields of ``gdp_settings.Settings``.
    """

    name = "gdp"
    summary = "one trained policy for all graphs, zero-shot or fine-tuned (GDP)"

    def __init__(
        self, variant: str = "ours", policy: str | None = None, zero_shot: bool = False, decode: str = "search",
        rewards: Callable[[Problem], Rewards] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        from placewright.placers.learned.gdp_decoding import check_stage
        from placewright.placers.learned.gdp_settings import settings_for

        super().__init__(rewards, None if policy == "none" else policy)
        check_stage(decode)
        self.settings, self.zero_shot, self.decode = settings_for(variant, **options), zero_shot, decode
        starts_anew = policy == "none" or (policy is None and variant != "ours")
        self._policy_file = None if starts_anew else policy or str(SHIPPED)

    @property
    def by_rank(self) -> bool:
        return self.settings.by_rank

    def prepared(self, problem: Problem, rewards: Rewards, seed: int) -> tuple[Pupil, Teacher]:
        """The problem as the policy sees it, and the policy."""
        from placewright.placers.learned.features import Vocabulary
        from placewright.placers.learned.gdp_learner import Teacher, new_policy, stored_policy
        from placewright.placers.learned.gdp_pupil import Pupil

        if self._policy_file is None:
            settings, vocabulary = self.settings, Vocabulary.of([problem.graph])
            policy = new_policy(settings, vocabulary, problem.n_devices, seed)
        else:
            policy, vocabulary = stored_policy(self._policy_file, self.settings, problem.n_devices)
            settings = policy.settings
        return Pupil(problem, rewards, settings, vocabulary), Teacher(policy, settings, seed)

    def learner(self, problem: Problem, rewards: Rewards, seed: int) -> GdpLearner:
        from placewright.placers.learned.gdp_learner import GdpLearner

        pupil, teacher = self.prepared(problem, rewards, seed)
        return GdpLearner(pupil, teacher)

    def warm_up(self, problem: Problem) -> None:
        from placewright.api import load

        if self.make_rewards is None:  # real execution has nothing to compile
            tiny = load("zoo:fork-join?blocks=2", cluster="p100x2", execution=problem.execution)
            self.search(tiny, Budget(60.0, evaluations=48), 0)

    def _search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        if not self.zero_shot:
            return super()._search(problem, budget, seed)
        from placewright.placers.learned.gdp_decoding import STAGES, decode
        from placewright.placers.learned.rewards import SimulatedRewards
        from placewright.placers.learned.training import one_thread

        rewards = self.make_rewards(problem) if self.make_rewards else SimulatedRewards(problem, by_rank=self.by_rank)
        with one_thread():
            pupil, teacher = self.prepared(problem, rewards, seed)
            last = STAGES[STAGES.index(self.decode)]
            moves = budget.evaluations or ZERO_SHOT_MOVES
            result = decode(pupil, teacher, last, budget, ZERO_SHOT_SAMPLES, moves)
        note = ", ".join(f"{stage} {value:.6g}" for stage, value in result.stages.items())
        if result.device_of_op is None:
            return Found(None, evaluations=result.evaluations, note=f"no valid placement was met ({note})")
        budget.report(result.value, evaluations=result.evaluations, note=note)
        return Found(result.device_of_op, priority=result.priority, evaluations=result.evaluations, note=note)
