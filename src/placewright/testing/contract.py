"""``PlacerContract``: the law for placers. Inherit it in a test module and say which placer is meant.

class TestMyPlacer(PlacerContract):
    @pytest.fixture
    def placer(self):
        return MyPlacer()
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.evaluate import check, evaluate
from placewright.placement import Placement
from placewright.placers.base import Placer, single_device_values
from placewright.problems import Execution, Problem, Rule
from placewright.testing.drawn_problems import random_problem

_CASES = range(6)


class PlacerContract:
    """What must hold for every placer on every execution model it says it is made for."""

    budget_s = 5.0

    @pytest.fixture
    def placer(self) -> Placer:
        """Return the placer under test."""
        raise NotImplementedError("a contract test needs a fixture 'placer'")

    @pytest.fixture(params=["overlap", "sequential", "calls", "pipeline"])
    def execution(self, request: pytest.FixtureRequest, placer: Placer) -> str:
        """Every execution model the placer is made for."""
        if request.param not in placer.executions:
            pytest.skip(f"{placer.name} is not made for {request.param}")
        return str(request.param)

    def place(self, placer: Placer, problem: Problem, seed: int = 0) -> Placement:
        """Run the placer with a small budget."""
        return placer.place(problem, Budget(self.budget_s, evaluations=200), seed)

    @pytest.mark.parametrize("case", _CASES)
    def test_every_op_is_placed_on_an_allowed_device(self, placer: Placer, execution: str, case: int) -> None:
        problem = _problem(case, execution, unsupported=True)
        placement = self.place(placer, problem)
        if placement.device_of_op is None:
            assert placement.status in ("infeasible", "timeout")
            return
        assert placement.device_of_op.shape == (problem.n_ops,)
        assert problem.allowed[np.arange(problem.n_ops), placement.device_of_op].all()

    @pytest.mark.parametrize("case", _CASES)
    def test_the_answer_is_valid_and_its_value_true(self, placer: Placer, execution: str, case: int) -> None:
        problem = _problem(case, execution, limits=True, classes=True)
        placement = self.place(placer, problem)
        if placement.device_of_op is None:
            return
        assert check(problem, placement.device_of_op, placement.priority) == ()
        assert evaluate(problem, placement.device_of_op, placement.priority).value == placement.value

    @pytest.mark.parametrize("case", _CASES)
    def test_never_below_its_bound(self, placer: Placer, execution: str, case: int) -> None:
        placement = self.place(placer, _problem(case, execution))
        assert placement.bound <= placement.value
        assert placement.gap >= 0

    @pytest.mark.parametrize("case", _CASES)
    def test_never_worse_than_the_best_single_device(self, placer: Placer, execution: str, case: int) -> None:
        problem = _problem(case, execution)
        assert self.place(placer, problem).value <= min(single_device_values(problem).values())

    def test_same_seed_same_answer(self, placer: Placer, execution: str) -> None:
        problem = _problem(1, execution, n_ops=14)
        first, second = self.place(placer, problem, seed=7), self.place(placer, problem, seed=7)
        assert first.device_of_op is not None
        assert second.device_of_op is not None
        assert first.device_of_op.tolist() == second.device_of_op.tolist()

    def test_forbidden_devices_stay_empty(self, placer: Placer, execution: str) -> None:
        problem = _problem(2, execution, n_devices=3).with_options(rules=(Rule("forbid", ".*", "device1"),))
        placement = self.place(placer, problem)
        assert placement.device_of_op is not None
        assert not (placement.device_of_op == 1).any()

    def test_pinned_ops_stay_put(self, placer: Placer, execution: str) -> None:
        problem = _problem(3, execution, n_devices=3).with_options(rules=(Rule("pin", "^op[01]$", "device2"),))
        placement = self.place(placer, problem)
        if placement.device_of_op is not None:
            assert (placement.device_of_op[:2] == 2).all()

    def test_one_device_takes_everything(self, placer: Placer, execution: str) -> None:
        problem = _problem(4, execution, n_devices=1, n_kinds=1)
        placement = self.place(placer, problem)
        assert placement.device_of_op is not None
        assert not placement.device_of_op.any()

    def test_too_little_memory_is_proven_infeasible(self, placer: Placer, execution: str) -> None:
        problem = _problem(5, execution)
        tiny = tuple(replace(d, memory_bytes=0.0) for d in problem.cluster.devices)
        problem = problem.with_options(
            cluster=replace(problem.cluster, devices=tiny), memory_bytes=np.ones(problem.n_ops)
        )
        placement = self.place(placer, problem)
        assert placement.status == "infeasible"
        assert placement.device_of_op is None
        assert placement.faults

    def test_an_expired_budget_still_gets_an_answer(self, placer: Placer, execution: str) -> None:
        placement = placer.place(_problem(1, execution), Budget(seconds=0.0), 0)
        assert placement.is_valid

    def test_provenance_is_kept(self, placer: Placer, execution: str) -> None:
        placement = self.place(placer, _problem(0, execution), seed=3)
        assert (placement.placer, placement.seed) == (placer.name, 3)
        assert placement.seconds >= 0


def _problem(
    case: int, execution: str, n_ops: int = 9, n_devices: int = 3, n_kinds: int = 2, **options: bool
) -> Problem:
    direct, backward = case % 2 == 0, case % 3 == 0
    model = cast(Execution, execution)
    return random_problem(100 + case, n_ops, n_devices, n_kinds, model, direct=direct, backward=backward, **options)
