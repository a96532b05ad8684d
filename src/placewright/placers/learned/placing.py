"""The part of ``Placer`` that all learned placers share: make a learner, let it step, bring back its best trial."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from placewright.budget import Budget
from placewright.graph import IntArray
from placewright.placers.base import Found, Placer, single_device_values
from placewright.problems import Problem
from placewright.reading import reading

if TYPE_CHECKING:
    from placewright.placement import Placement
    from placewright.placers.learned.rewards import Rewards
    from placewright.placers.learned.training import PlacingLearner, Report, Trials

DEFAULT_EVALUATIONS = 2000
_WARM_UP_EVALUATIONS = 24
_CURVE_POINTS = 300


class LearnedPlacer(Placer):
    """Learns on the problem itself. ``rewards`` makes the source of rewards from a problem, e.g. real execution."""

    executions = ("overlap", "sequential", "calls")
    requires = ("torch", "safetensors")
    extra = "torch"

    def __init__(self, rewards: Callable[[Problem], Rewards] | None = None, given_policy: str | None = None) -> None:
        self.make_rewards = rewards
        self.given_policy = given_policy  # the file, if the user named one

    @property
    def by_rank(self) -> bool:
        """Whether ready ops run by the longest way left, not by arrival, where rewards are simulated."""
        return False

    def place(self, problem: Problem, budget: Budget | None = None, seed: int = 0) -> Placement:
        """As every placer; but where rewards are measured, they decide: single devices are among the trials.

        The placement's value is then still the model's, which may be worse than a single device's.
        """
        from placewright.evaluate import prove_infeasible

        if self.make_rewards is None or prove_infeasible(problem):
            return super().place(problem, budget, seed)
        self.check_installed()
        budget = budget or Budget()
        began = budget.elapsed_s()
        found = self.search(problem, budget, seed)
        return self._finished(problem, found, seed, budget.elapsed_s() - began)

    @abstractmethod
    def learner(self, problem: Problem, rewards: Rewards, seed: int) -> PlacingLearner:
        """A new learner for a problem."""

    def warm_up(self, problem: Problem) -> None:
        if self.make_rewards is None:  # real execution has nothing to compile
            self.search(problem, Budget(10.0, evaluations=_WARM_UP_EVALUATIONS), 0)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        if self.given_policy is None:
            return self._search(problem, budget, seed)
        # Weights may be well formed and still give no chances to draw from, now or after some steps.
        with reading(self.given_policy, "a policy"):
            return self._search(problem, budget, seed)

    def _search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        from placewright.evaluate import lower_bound
        from placewright.placers.learned.rewards import MeasuredRewards, SimulatedRewards
        from placewright.placers.learned.training import one_thread, run_learner

        measured = self.make_rewards is not None
        rewards = self.make_rewards(problem) if self.make_rewards else SimulatedRewards(problem, by_rank=self.by_rank)
        wanted = budget.evaluations or DEFAULT_EVALUATIONS

        reports: list[Report] = []

        def after_step(report: Report) -> None:
            reports.append(report)
            note = f"mean {report.mean:.4g}, {report.groups} groups"
            budget.report(report.best, evaluations=report.evaluations, note=note)

        with one_thread():
            learner = self.learner(problem, rewards, seed)
            budget.knows(learner.trials.known)
            after_step(learner.step(wanted))  # the starts, however short the time is
            bound = 0.0 if measured else lower_bound(problem)
            run_learner(learner, budget, wanted, done=rewards.evaluations, bound=bound, after_step=after_step)
        best = learner.trials.best_device_of_op
        if best is None:
            return Found(None, evaluations=rewards.evaluations, note="no valid placement was met")
        if isinstance(rewards, MeasuredRewards):
            best, best_s = rewards.confirmed(*_candidates(problem, learner.trials))
            return Found(best, evaluations=rewards.evaluations, note=f"measured {best_s:.6g} s", curve=_curve(reports))
        return Found(best, priority=learner.trials.order(), evaluations=rewards.evaluations, curve=_curve(reports))


def _curve(reports: list[Report]) -> dict[str, list[float]]:
    """Evaluations so far, best and mean value of evenly many of the steps, the last one always."""
    valid = [r for r in reports if math.isfinite(r.best) and math.isfinite(r.mean)]
    kept = valid[:: -(-len(valid) // _CURVE_POINTS) or 1] if valid else []
    kept += valid[-1:] if valid and kept[-1] is not valid[-1] else []
    return {
        "evaluations": [r.evaluations for r in kept],
        "best": [float(f"{r.best:.6g}") for r in kept],
        "mean": [float(f"{r.mean:.6g}") for r in kept],
    }


def _candidates(problem: Problem, trials: Trials) -> tuple[IntArray, IntArray]:
    """The best trials, and everything on each device that can hold everything."""
    single = [d for d, value in enumerate(single_device_values(problem).values()) if math.isfinite(value)]
    rows = np.array([row for _, row in trials.top], dtype=np.int32).reshape(-1, problem.n_ops)
    alone = np.repeat(np.array(single, dtype=np.int32)[:, None], problem.n_ops, axis=1)
    return rows, alone.reshape(-1, problem.n_ops)
