"""Plans of the list kernels on random problems: feasible, equal to a plain twin's, and run so by the evaluator."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from list_problems import planned

from placewright.api import load
from placewright.budget import Budget
from placewright.evaluate import check, evaluate, evaluate_many
from placewright.placers import get_placer
from placewright.placers.overlap.attempts import Schedule
from placewright.placers.overlap.favourites import favourites_by_programme, heaviest_favourites, op_edges
from placewright.placers.overlap.list_costs import list_costs
from placewright.placers.overlap.schedulers import rank_scheduler, start_scheduler
from placewright.placers.overlap.starts import LIST_SCHEDULERS, constructive_starts
from placewright.problems import Problem
from placewright.testing import random_problem


def problem_of(seed: int, *, quiet: bool = False, n_ops: int = 12, **options: Any) -> Problem:
    """A random problem; ``quiet``: no link keeps a channel busy, and no two times are equal."""
    problem = random_problem(seed, n_ops, 1 + seed % 4, 1 + seed % 3, "overlap", direct=seed % 2 == 0, **options)
    if not quiet:
        return problem
    cluster = problem.cluster
    silent = {
        side: {key: replace(link, busy="none") for key, link in (getattr(cluster, side) or {}).items()}
        for side in ("to_host", "from_host", "direct")
    }
    rng = np.random.default_rng(seed)
    problem = problem.with_options(
        cluster=replace(cluster, **silent), op_time_s=problem.op_time_s + rng.uniform(0.1, 1.0, problem.op_time_s.shape)
    )  # fmt: skip
    copies = rng.exponential(1.0, (problem.graph.n_tensors, len(problem.links.links)))
    return problem.with_options(tensor_copy_s=copies)


def route_s(problem: Problem, t: int, s: int, d: int) -> float:
    """Time of a copy that waits for nothing."""
    links = problem.links
    legs = [links.direct[s, d]] if links.direct[s, d] >= 0 else [links.to_host[s], links.from_host[d]]
    return 0.0 if s == d else sum(float(problem.tensor_copy_s[t, leg]) for leg in legs if leg >= 0)


def least_ready(problem: Problem, plan: Schedule, v: int, d: int) -> float:
    g = problem.graph
    inputs = g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]].tolist()
    makers = [(t, int(g.tensor_producer[t])) for t in inputs]
    return max((plan.finish_s[u] + route_s(problem, t, int(plan.device[u]), d) for t, u in makers), default=0.0)


def plans(problem: Problem) -> list[Schedule]:
    return [planned(problem, rank_scheduler, list_costs(problem).upward_s), planned(problem, start_scheduler)]


@pytest.mark.parametrize("seed", range(60))
def test_plans_are_feasible(seed: int) -> None:
    problem = problem_of(seed, classes=seed % 3 == 0, limits=seed % 5 == 0)
    if np.isinf(list_costs(problem).time_s).all(axis=1).any():
        pytest.skip("some class has no device")
    for plan in plans(problem):
        assert problem.allowed[np.arange(problem.n_ops), plan.device].all()
        assert (plan.device == plan.device[problem.group_of_op]).all()
        for v in range(problem.n_ops):
            assert plan.start_s[v] >= least_ready(problem, plan, v, int(plan.device[v])) - 1e-9
        for d in range(problem.n_devices):
            busy = (plan.device == d) & (plan.finish_s > plan.start_s)  # what takes no time may be inside another op
            here = sorted((plan.start_s[v], plan.finish_s[v]) for v in np.flatnonzero(busy))
            assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(here))


def idles_beside_a_ready_op(problem: Problem, plan: Schedule) -> bool:
    for d in range(problem.n_devices):
        here = sorted(np.flatnonzero(plan.device == d).tolist(), key=lambda v: plan.start_s[v])
        for i, later in product(range(len(here)), here):
            if plan.start_s[later] > plan.start_s[here[i]]:
                free = plan.finish_s[here[i - 1]] if i else 0.0
                ready = max(free, least_ready(problem, plan, later, d))
                if ready < plan.start_s[here[i]]:
                    return True
    return False


def test_the_evaluator_follows_the_plan_where_nothing_queues_and_no_device_idles_beside_a_ready_op() -> None:
    followed = 0
    for seed in range(150):
        problem = problem_of(seed, quiet=True)
        for plan in plans(problem):
            if idles_beside_a_ready_op(problem, plan):
                continue
            followed += 1
            value = evaluate(problem, plan.device, plan.start_s).value
            assert value == pytest.approx(plan.finish_s.max(), rel=1e-12)
    assert followed > 150


def plain_etf(problem: Problem) -> list[int]:
    """Earliest start by looking at every ready op on every device."""
    costs, n = list_costs(problem), problem.n_ops
    plan = Schedule(np.full(n, -1, dtype=np.int32), np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))
    free, placed, g = [0.0] * problem.n_devices, set[int](), problem.graph
    while len(placed) < n:
        makers = {v: set(g.tensor_producer[g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]]]) for v in range(n)}
        choices = []
        for v, d in product(range(n), range(problem.n_devices)):
            if v not in placed and makers[v] <= placed and np.isfinite(costs.time_s[v, d]):
                start = max(free[d], least_ready(problem, plan, v, d))
                slower = costs.time_s[v, d] - costs.time_s[v].min()
                choices.append((start + slower, -costs.upward_s[v], v, d, start))
        _, _, v, d, start = min(choices)
        plan.device[v], plan.start_s[v], plan.finish_s[v] = d, start, start + costs.time_s[v, d]
        free[d] = plan.finish_s[v]
        placed.add(v)
    return plan.device.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_etf_agrees_with_its_plain_form_where_nothing_queues(seed: int) -> None:
    problem = problem_of(seed, quiet=True, n_ops=15)
    assert planned(problem, start_scheduler).device.tolist() == plain_etf(problem)


@pytest.mark.parametrize("seed", range(20))
def test_no_op_has_two_favourites_and_none_is_the_favourite_of_two(seed: int) -> None:
    problem = problem_of(seed, n_ops=20)
    edges = op_edges(problem)
    costly = {(int(u), int(v)) for u, v, c in zip(*edges, strict=True) if c > 0}
    for favourite in (favourites_by_programme(problem, 10.0), heaviest_favourites(problem)):
        assert favourite is not None
        chosen = [(u, int(v)) for u, v in enumerate(favourite) if v >= 0]
        assert set(chosen) <= costly
        assert len({v for _, v in chosen}) == len(chosen)


@pytest.mark.parametrize("placer", LIST_SCHEDULERS)
def test_tight_memory_is_mostly_mastered(placer: str) -> None:
    possible = found = 0
    for seed in range(40):
        problem = random_problem(seed, 6, 3, 2, "overlap", direct=True, classes=seed % 2 == 0)
        every = np.array(list(product(range(3), repeat=6)), dtype=np.int32)
        peaks = [evaluate(problem, row).memory_bytes for row in every[:: 1 + seed % 7]]
        limit = float(np.quantile([p.max() for p in peaks], 0.1))
        devices = tuple(replace(d, memory_bytes=limit) for d in problem.cluster.devices)
        problem = problem.with_options(cluster=replace(problem.cluster, devices=devices))
        if not evaluate_many(problem, every).is_valid.any():
            continue
        possible += 1
        answer = get_placer(placer).search(problem, Budget(), 0)
        if answer.device_of_op is not None:
            found += 1
            assert check(problem, answer.device_of_op, answer.priority) == ()
    assert possible > 20
    assert found >= 0.85 * possible


def test_starts_are_valid_and_sorted() -> None:
    problem = load("zoo:layered?ops=200&ccr=2", cluster="p100x2")
    found = constructive_starts(problem, Budget(), 0)
    assert {s.placer for s in found} == set(LIST_SCHEDULERS)
    assert [s.value for s in found] == sorted(s.value for s in found)
    for start in found:
        assert check(problem, start.device_of_op, start.priority) == ()
        assert evaluate(problem, start.device_of_op, start.priority).value == start.value


def test_starts_are_for_overlap_only_and_the_first_needs_no_budget() -> None:
    problem = load("zoo:layered?ops=60", cluster="p100x2")
    assert constructive_starts(problem.with_options(execution="calls"), Budget(), 0) == []
    assert [s.placer for s in constructive_starts(problem, Budget(seconds=0.0), 0)] == [LIST_SCHEDULERS[0]]
