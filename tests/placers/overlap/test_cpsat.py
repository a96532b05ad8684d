from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.evaluate import check, evaluate
from placewright.placers import get_placer
from placewright.placers.overlap.complete_search import search_completely
from placewright.placers.overlap.schedule_model import ScheduleModel, instance_of
from placewright.placers.overlap.schedule_search import Incumbent, improve_parts, start_times
from placewright.placers.search.chains import Point
from placewright.problems import Problem
from placewright.testing import optimum, random_problem

pytest.importorskip("ortools")


def small_problem(seed: int, most_ops: int = 6) -> Problem:
    return random_problem(
        seed, min(most_ops, 4 + seed % 3), 2 + seed % 2, 1 + seed % 2, "overlap", classes=seed % 3 == 0,
        direct=seed % 2 == 0, limits=seed % 4 < 2, unsupported=seed % 5 == 0,
    )  # fmt: skip


def test_the_models_optimum_is_a_bound_and_contains_the_best_run() -> None:
    """In one child for all problems: importing the solver here would clash with the linear one."""
    here = str(Path(__file__).parent)
    program = f"import sys; sys.path.insert(0, {here!r}); from test_cpsat import solve_models; solve_models()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 40


def solve_models() -> None:
    """For problems whose optimum is known: the model holds the optimal run, and its optimum is not above it."""
    from ortools.sat.python import cp_model

    met = 0
    for seed in range(80):
        problem = small_problem(seed)
        best = search_completely(problem, Budget(60))
        device = best.device_of_op
        if device is None or best.value == 0:
            continue
        start = start_times(problem, Point(device, best.priority))
        everything = np.ones(problem.n_ops, dtype=np.bool_)
        model = ScheduleModel(cp_model, instance_of(problem, device, start, everything), best.value)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, 20
        status = solver.solve(model.model)
        assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), seed
        assert solver.best_objective_bound / model.scale <= best.value * (1 + 1e-9), seed
        # The optimal run itself, rounded down, must satisfy the model.
        for v, s in enumerate(start):
            model.model.add(model.start[v] == int(np.floor(s * model.scale)))
            model.model.add(model.x[v][int(device[v])] == 1)
        assert cp_model.CpSolver().solve(model.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE), seed
        met += 1
    print(met)


@pytest.mark.parametrize("seed", range(40))
def test_small_problems_are_solved_to_the_optimum(seed: int) -> None:
    problem = small_problem(seed, most_ops=5)
    placement = get_placer("cpsat").place(problem, Budget(20, evaluations=200), 0)
    best = optimum(problem)
    if np.isinf(best):
        assert placement.status == "infeasible"
    else:
        assert placement.status == "optimal"
        assert placement.value == pytest.approx(best, rel=1e-12)


def test_larger_problems_come_with_a_bound_that_is_not_above_the_value() -> None:
    problem = random_problem(3, 30, 3, 2, "overlap", direct=True)
    placement = get_placer("cpsat").place(problem, Budget(4), 0)
    assert placement.is_valid
    assert placement.bound <= placement.value
    assert check(problem, placement.device_of_op, placement.priority) == ()


def test_parts_never_make_it_worse_and_keep_the_bound() -> None:
    problem = random_problem(5, 60, 3, 2, "overlap", direct=True, classes=True)
    start = np.zeros(problem.n_ops, dtype=np.int32)
    value = evaluate(problem, start).value
    budget = Budget(8, evaluations=1)
    better = improve_parts(problem, Incumbent(Point(start), value, 0.5), budget, 0)
    assert better.value < value
    assert better.bound == 0.5
    assert budget.bound <= 0.5  # nor is the bound of a part told to others
    assert evaluate(problem, better.point.device_of_op, better.point.priority).value == better.value
