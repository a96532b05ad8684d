"""Training one policy on several problems, with checkpoints; the policy then fits other graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from placewright.budget import OPTIMAL_GAP, Budget
from placewright.evaluate import lower_bound
from placewright.placers.learned.features import Vocabulary
from placewright.placers.learned.hsdag import new_learner, new_policy
from placewright.placers.learned.hsdag_settings import Settings
from placewright.placers.learned.policy_file import Policy, save_policy
from placewright.placers.learned.rewards import SimulatedRewards
from placewright.placers.learned.stored import Stored, restore_optimiser, restore_weights
from placewright.placers.learned.training import Checkpoint, HasTrials, Report, Resumable, one_thread
from placewright.problems import Problem
from placewright.profiles import graph_fingerprint
from placewright.reading import reading

LONG_STEP_S = 0.5


class Lesson(NamedTuple):
    """Where training stands on one problem."""

    number: int
    report: Report
    is_finished: bool


class School:
    """Learners of several problems that share one HSDAG policy; they step in turns until all evaluations are done."""

    def __init__(self, problems: Sequence[Problem], settings: Settings, evaluations: int, seed: int) -> None:
        self.problems, self.settings, self.evaluations, self.seed = tuple(problems), settings, evaluations, seed
        self.vocabulary = Vocabulary.of(p.graph for p in problems)
        self.policy, self.optimiser = new_policy(settings, self.vocabulary, problems[0].n_devices, seed)
        self.learners = [
            new_learner(
                p, SimulatedRewards(p, by_rank=settings.by_rank), settings, self.vocabulary, self.policy,
                self.optimiser, seed + i,
            )
            for i, p in enumerate(problems)
        ]  # fmt: skip
        self._bounds = [lower_bound(p) for p in problems]
        self._next = 0

    def step(self) -> Lesson | None:
        """One step on the next problem that is not finished; ``None`` if all are."""
        for _ in self.learners:
            i = self._next
            self._next = (i + 1) % len(self.learners)
            if not self._is_done(i):
                report = self.learners[i].step(self.evaluations - self.learners[i].trials.evaluations)
                return Lesson(i, report, self._is_done(i))
        return None

    def is_finished(self) -> bool:
        """Every problem has had its evaluations, or is solved and proven so."""
        return all(self._is_done(i) for i in range(len(self.learners)))

    def _is_done(self, i: int) -> bool:
        trials = self.learners[i].trials
        return trials.evaluations >= self.evaluations or trials.best_value <= self._bounds[i] * (1 + OPTIMAL_GAP)

    def state(self) -> dict[str, Any]:
        """Everything that the next steps depend on."""
        return {
            "policy": self.policy.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "learners": [learner.state() for learner in self.learners],
            "next": self._next,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where another school of the same settings stood."""
        found, n = Stored(state, "state"), len(self.learners)
        restore_weights(self.policy, found.value("policy"), "policy")
        restore_optimiser(self.optimiser, found.value("optimiser"), "optimiser")
        for learner, saved in zip(self.learners, found.listed("learners", n, n), strict=True):
            learner.restore(Stored(saved, "learners").data)
        self._next = found.whole("next", n - 1)

    def as_policy(self) -> Policy:
        """The policy as it is now, with its history."""
        history = {
            "models": [p.graph.name for p in self.problems],
            "evaluations": [learner.trials.evaluations for learner in self.learners],
            "best": [learner.trials.best_value for learner in self.learners],
            "seed": self.seed,
        }
        weights = self.policy.state_dict()
        return Policy("hsdag", weights, self.settings.document(), self.vocabulary.op_types, history)


class AnySchool(Resumable, Protocol):
    """What :func:`train` needs of a training on several problems."""

    problems: tuple[Problem, ...]
    evaluations: int
    seed: int

    @property
    def settings(self) -> Any:
        """Has a ``document``."""

    @property
    def learners(self) -> Sequence[HasTrials]:
        """One per problem."""

    def step(self) -> Lesson | None:
        """Learn a little; ``None`` if all is done."""

    def is_finished(self) -> bool:
        """Nothing is left to do."""

    def as_policy(self) -> Policy:
        """The policy as it is now."""


def checkpoint_of(school: AnySchool, output: Path, every_s: float = 10.0) -> Checkpoint:
    """The file beside ``output`` from which the same training can go on."""
    settings = {
        "settings": school.settings.document(),
        "evaluations": school.evaluations,
        "seed": school.seed,
        "problems": [
            [graph_fingerprint(p.graph), p.execution, p.cluster.name, f"{p.op_device_time_s[p.allowed].sum():.9g}"]
            for p in school.problems
        ],
    }
    return Checkpoint(output.with_name(f"{output.name}.checkpoint"), settings, every_s)


def new_school(
    placer: str, problems: Sequence[Problem], evaluations: int, seed: int, start: str | None = None
) -> AnySchool:
    """A school for the policy of one placer, from random weights or (gdp) from the file ``start``."""
    if placer == "hsdag":
        from placewright.placers.learned.hsdag_settings import settings_for as hsdag_settings

        return School(problems, hsdag_settings("ours"), evaluations, seed)
    from placewright.placers.learned.gdp_school import GdpSchool
    from placewright.placers.learned.gdp_settings import settings_for, settings_of
    from placewright.placers.learned.policy_file import load_policy

    if start is None:
        return GdpSchool(problems, settings_for("ours"), evaluations, seed)
    stored = load_policy(start, "gdp")
    with reading(start, "a policy"):
        return GdpSchool(problems, settings_of(stored.settings), evaluations, seed, start=stored)


def train(
    school: AnySchool, output: Path, budget: Budget, *, resume: bool, watch: Callable[[Lesson], None] = lambda _: None
) -> bool:
    """Train until all is done or the budget ends, write the policy, and say whether all was done.

    An unfinished training leaves its checkpoint beside ``output``; ``resume`` goes on from it, step for step as if it
    had never stopped.
    """
    checkpoint = checkpoint_of(school, output)
    is_resumed = resume and checkpoint.load(school)
    # Numbers out of a file may be well formed and still lead to none.
    with one_thread(), reading(checkpoint.path, "a checkpoint") if is_resumed else nullcontext():
        while not budget.expired():
            began = time.monotonic()
            lesson = school.step()
            if lesson is None:
                break
            watch(lesson)
            # Whoever stops a training does not wait for long steps: each of them is kept.
            checkpoint.save(school, now=time.monotonic() - began > LONG_STEP_S)
    finished = school.is_finished()
    if not finished:
        checkpoint.save(school, now=True)
    save_policy(output, school.as_policy())
    if finished:
        checkpoint.path.unlink(missing_ok=True)
    return finished
