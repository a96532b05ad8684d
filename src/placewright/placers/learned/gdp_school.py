"""Training one GDP policy on many problems at once (GDP-batch, pre-training), with exact resume.

While the network learns from one batch of problems, the placements that it drew for the next are judged on all cores.
What is learnt depends on the seed and the number of steps alone, however fast either side is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from placewright.errors import InputError
from placewright.placers.learned.features import Vocabulary
from placewright.placers.learned.gdp_learner import Teacher, fitted_policy, new_policy
from placewright.placers.learned.gdp_pupil import Pupil, Rollout, check_same_devices
from placewright.placers.learned.gdp_settings import Settings
from placewright.placers.learned.policy_file import Policy
from placewright.placers.learned.rewards import SimulatedRewards
from placewright.placers.learned.schooling import Lesson
from placewright.placers.learned.stored import Stored, whole_number
from placewright.placers.learned.training import Report
from placewright.problems import Problem

BATCH = 8  # problems that are learnt from together


class _Pending(NamedTuple):
    """Problems whose placements are being judged."""

    numbers: list[int]
    results: list[Future[tuple[Rollout, Report]]]


class GdpSchool:
    """Pupils that share one policy."""

    def __init__(
        self, problems: Sequence[Problem], settings: Settings, evaluations: int, seed: int, where: str = "cpu",
        start: Policy | None = None,
    ) -> None:  # fmt: skip
        check_same_devices(list(problems), settings)
        self.problems, self.settings, self.evaluations, self.seed = tuple(problems), settings, evaluations, seed
        self.vocabulary = Vocabulary(start.op_types) if start else Vocabulary.of(p.graph for p in problems)
        n_devices = problems[0].n_devices
        if start is None:
            policy = new_policy(settings, self.vocabulary, n_devices, seed)
        else:
            policy = fitted_policy(start, settings, self.vocabulary, n_devices, seed)
        self.teacher = Teacher(policy, settings, seed, where)
        self._pool = ThreadPoolExecutor(max(2, min(BATCH, os.cpu_count() or 1)), thread_name_prefix="gdp-judge")
        self.learners = list(
            self._pool.map(
                lambda p: Pupil(p, SimulatedRewards(p, by_rank=settings.by_rank), settings, self.vocabulary, where),
                problems,
            )
        )
        self.origin: dict[str, Any] = {}  # what else a policy's history should tell
        self.steps = 0
        self._pending: _Pending | None = None

    def step(self) -> Lesson | None:
        """Draw placements for the next problems, learn from the last ones; ``None`` if all is done."""
        if self.is_finished():
            self._learn()
            return None
        if self.steps == 0:
            list(self._pool.map(lambda pupil: pupil.start(pupil.problem.n_devices), self.learners))
        numbers = self._next_numbers()
        if self._pending is not None and set(numbers) & set(self._pending.numbers):
            self._learn()
        graphs = [(self.learners[i].graphs[s], s) for i in numbers for s in [self.learners[i].next_scale()]]
        asked = self.teacher.ask(graphs, self.settings.samples)
        mutants = self.settings.mutants
        results = [self._pool.submit(self.learners[i].judge, a, mutants) for i, a in zip(numbers, asked, strict=True)]
        self._learn()
        self._pending = _Pending(numbers, results)
        self.steps += 1
        report = results[0].result()[1] if len(self.learners) == 1 else self._report(numbers[0])
        return Lesson(numbers[0], report, self._is_done(numbers[0]))

    def is_finished(self) -> bool:
        """Every problem has had its evaluations."""
        return all(self._is_done(i) for i in range(len(self.learners)))

    @property
    def progress(self) -> float:
        done = sum(self._asked_for(i) for i in range(len(self.learners))) / (self.evaluations * len(self.learners))
        return min(1.0, done)

    def _asked_for(self, i: int) -> int:
        """Evaluations of a problem, those under way included: counting finished ones would depend on the clock."""
        s, pupil = self.settings, self.learners[i]
        return pupil.problem.n_devices + pupil.visits * (s.samples + 1 + s.mutants)

    def regret(self) -> float:
        """How far the policy's own placements, when last asked, were above the best known ones (geometric mean)."""
        ratios = [pupil.greedy_value / pupil.trials.best_value for pupil in self.learners]
        finite = [math.log(r) for r in ratios if math.isfinite(r)]
        return math.exp(sum(finite) / len(finite)) - 1 if finite else math.inf

    def _is_done(self, i: int) -> bool:
        return self._asked_for(i) >= self.evaluations

    def _report(self, i: int) -> Report:
        trials = self.learners[i].trials
        return Report(trials.best_value, trials.best_value, self.learners[i].groups.n_groups, trials.evaluations)

    def _next_numbers(self) -> list[int]:
        """The next problems of a round in which each has its turn once, in an order of its own."""
        n = len(self.learners)
        per_round = max(1, -(-n // BATCH))
        order = np.random.default_rng((self.seed, self.steps // per_round)).permutation(n)
        return np.array_split(order, per_round)[self.steps % per_round].tolist()

    def _learn(self) -> None:
        if self._pending is None:
            return
        numbers, results = self._pending
        rollouts = [result.result()[0] for result in results]
        graphs = [self.learners[i].graphs[r.scale] for i, r in zip(numbers, rollouts, strict=True)]
        self.teacher.learn(graphs, rollouts, self.progress)
        self._pending = None

    def state(self) -> dict[str, Any]:
        """Everything that the next steps depend on; waits for what is being judged."""
        pending: dict[str, Any] | None = None
        if self._pending is not None:
            rollouts = [list(result.result()[0]) for result in self._pending.results]
            pending = {"numbers": self._pending.numbers, "rollouts": rollouts}
        return {
            "teacher": self.teacher.state(),
            "learners": [pupil.state() for pupil in self.learners],
            "steps": self.steps,
            "pending": pending,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where another school of the same settings stood."""
        found, n = Stored(state, "state"), len(self.learners)
        self.teacher.restore(found.part("teacher").data)
        for pupil, saved in zip(self.learners, found.listed("learners", n, n), strict=True):
            pupil.restore(Stored(saved, "learners").data)
        self.steps, self._pending = found.whole("steps"), None
        if found.value("pending") is not None:
            pending = found.part("pending")
            numbers = [whole_number(i, "pending: 'numbers'", n - 1) for i in pending.listed("numbers", 1, n)]
            if len(set(numbers)) != len(numbers):
                raise InputError("pending: 'numbers' are not distinct")
            rollouts = pending.listed("rollouts", len(numbers), len(numbers))
            done = [self.learners[i].rollout(r) for i, r in zip(numbers, rollouts, strict=True)]
            results = [_finished(r, self._report(i)) for r, i in zip(done, numbers, strict=True)]
            self._pending = _Pending(numbers, results)

    def as_policy(self) -> Policy:
        """The policy as it is now, with its history."""
        history = {
            "models": [p.graph.name for p in self.problems],
            "evaluations": [pupil.trials.evaluations for pupil in self.learners],
            "best": [pupil.trials.best_value for pupil in self.learners],
            "seed": self.seed,
            "steps": self.steps,
            **self.origin,
        }
        weights = {name: tensor.cpu() for name, tensor in self.teacher.policy.state_dict().items()}
        return Policy("gdp", weights, self.settings.document(), self.vocabulary.op_types, history)


def _finished(rollout: Rollout, report: Report) -> Future[tuple[Rollout, Report]]:
    result: Future[tuple[Rollout, Report]] = Future()
    result.set_result((rollout, report))
    return result


def best_device() -> str:
    """Where the network runs unless told otherwise."""
    return "cuda" if torch.cuda.is_available() else "cpu"
