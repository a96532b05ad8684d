"""Where limits are tight, filling devices in many orders finds what searches did not meet."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.evaluate import check, prove_infeasible
from placewright.placers import Placer, get_placer
from placewright.placers.base import Found
from placewright.placers.baselines.packing import pack
from placewright.placers.search.anneal import AnnealPlacer
from placewright.problems import EXECUTIONS, Execution, Problem
from placewright.testing import optimum, random_problem


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_most_tight_problems_are_packed_and_every_packing_is_valid(execution: Execution) -> None:
    exist = packed = 0
    for seed in range(40):
        n_ops = 4 if execution == "overlap" else 6
        problem = random_problem(seed, n_ops, 3, 2, execution, classes=True, limits=True, unsupported=True)
        if prove_infeasible(problem):
            continue
        found = pack(problem, 0)
        exists = math.isfinite(optimum(problem))
        exist += exists
        if found.device_of_op is not None:
            packed += 1
            assert exists
            assert check(problem, found.device_of_op) == ()
    assert packed >= 0.9 * exist > 5


class Idle(Placer):
    name, summary = "idle", "finds nothing"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        return Found(None)


def test_auto_answers_where_its_members_find_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(
        p
        for seed in range(100)
        if not prove_infeasible(p := random_problem(seed, 4, 3, 2, "overlap", limits=True, unsupported=True))
        and not get_placer("single").place(p, Budget(1.0)).is_valid
        and math.isfinite(optimum(p))
    )
    monkeypatch.setattr("placewright.placers.auto.get_placer", lambda name: Idle())
    monkeypatch.setattr(AnnealPlacer, "warm_up", lambda *_: None)
    placement = get_placer("auto").place(problem, Budget(0.1))
    assert placement.is_valid
    assert "idle" in placement.note
    assert placement.bound <= optimum(problem) * (1 + 1e-9)


def test_auto_proves_that_nothing_exists_where_its_members_find_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(0, 3, 2, 1, "sequential")
    devices = tuple(replace(d, memory_bytes=10.0) for d in problem.cluster.devices)
    problem = problem.with_options(
        cluster=replace(problem.cluster, devices=devices), memory_bytes=np.array([6.0, 6.0, 6.0])
    )
    assert not prove_infeasible(problem)
    monkeypatch.setattr("placewright.placers.auto.get_placer", lambda name: Idle())
    placement = get_placer("auto").place(problem, Budget(0.1))
    assert placement.status == "infeasible"
    assert "looking at all" in placement.faults[0].message
