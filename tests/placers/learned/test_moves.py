"""What a policy sees of a placement's course and of moves, against plain twins."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.evaluate import evaluate
from placewright.placers.learned.course import Course, course_of, guesses, overtakings
from placewright.placers.learned.groups import group_graph
from placewright.placers.learned.moves import MoveSpace
from placewright.placers.learned.rewards import copy_seconds, ways_left
from placewright.problems import Problem
from placewright.testing import random_problem


def some_course(seed: int, n_ops: int = 12) -> tuple[Problem, Course, np.ndarray]:
    """A random problem under ``overlap`` with the course of a random placement, and its order."""
    problem = random_problem(seed, n_ops, 2 + seed % 3, 1 + seed % 3, "overlap", direct=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    device = np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed], dtype=np.int32)
    rank_s = ways_left(problem, device[None])[0]
    return problem, course_of(problem, device, rank_s), rank_s


@pytest.mark.parametrize("seed", range(30))
def test_the_longest_way_through_the_course_is_the_value(seed: int) -> None:
    problem, course, rank_s = some_course(seed, 25)
    value = evaluate(problem, course.device, -rank_s).value
    assert course.whole_s == pytest.approx(value)
    assert (course.ready_s <= course.start_s + 1e-9 * value).all()
    ways = course.start_s + course.tail_s
    assert (ways <= value * (1 + 1e-9)).all()
    assert course.end_s[course.is_critical].max() == pytest.approx(value)


@pytest.mark.parametrize("seed", range(30))
def test_who_may_be_overtaken_ran_while_a_critical_op_waited(seed: int) -> None:
    _, course, _ = some_course(seed, 25)
    expected = {
        (v, u)
        for v in range(25)
        for u in range(25)
        if course.is_critical[v]
        and course.device[u] == course.device[v]
        and course.position[u] < course.position[v]
        and course.ready_s[v] + 1e-9 * course.whole_s < course.start_s[v]
        and course.ready_s[v] <= course.start_s[u]
    }
    assert {tuple(pair) for pair in overtakings(course).tolist()} == expected


def guessed_by_hand(problem: Problem, course: Course, v: int, to: int) -> tuple[float, float, float, float]:
    """One op to another device, all others where and when they are."""
    g, n = problem.graph, problem.n_ops
    begin, tail = 0.0, 0.0
    for u, w, t in zip(g.edge_producer.tolist(), g.consumer_op.tolist(), g.edge_tensor.tolist(), strict=True):
        if w == v:
            begin = max(begin, course.end_s[u] + float(copy_seconds(problem, t, course.device[u], to)))
        if u == v:
            tail = max(tail, course.tail_s[w] + float(copy_seconds(problem, t, to, course.device[w])))
    there = [u for u in range(n) if course.device[u] == to]
    before = [u for u in there if course.start_s[u] < begin]
    begin = max([begin, *(course.end_s[u] for u in before)])
    end = begin + problem.op_device_time_s[v, to]
    behind = [u for u in there if u not in before]
    pushed = end + max((course.tail_s[u] for u in behind), default=-end)
    mates = [u for u in course.by_device.tolist() if course.device[u] == course.device[v]]
    k = mates.index(v)
    left = 0.0
    if k + 1 < len(mates):
        free = course.end_s[mates[k - 1]] if k > 0 else 0.0
        left = max(course.ready_s[mates[k + 1]], free) + course.tail_s[mates[k + 1]]
    return end + tail, course.start_s[v] + course.tail_s[v], pushed, left


@pytest.mark.parametrize("seed", range(20))
def test_guesses_for_one_op_are_those_by_hand(seed: int) -> None:
    problem, course, _ = some_course(seed)
    moves = [(v, d) for v in range(12) for d in np.flatnonzero(problem.allowed[v]) if d != course.device[v]]
    ops, to = np.array(moves, dtype=np.int64).reshape(-1, 2).T
    found = guesses(problem, course, np.arange(12), ops, to)[0]
    for m, (v, d) in enumerate(moves):
        expected = np.array(guessed_by_hand(problem, course, v, int(d))) / course.whole_s - 1
        np.testing.assert_allclose([column[m] for column in found], expected, atol=1e-9)


def test_the_guess_for_all_ops_to_an_empty_device_is_that_device_s_value() -> None:
    for seed in range(20):
        problem = random_problem(seed, 15, 2, 2, "overlap")
        alone = [evaluate(problem, np.full(15, d, dtype=np.int32)).value for d in range(2)]
        device = np.zeros(15, dtype=np.int32)
        course = course_of(problem, device, ways_left(problem, device[None])[0])
        found = guesses(
            problem, course, np.zeros(15, dtype=np.int64), np.zeros(1, dtype=np.int64), np.ones(1, np.int64)
        )
        assert found[0].change()[0] == pytest.approx(alone[1] / alone[0] - 1)


def test_devices_are_as_busy_as_their_ops_run() -> None:
    problem = random_problem(3, 30, 3, 2, "overlap")
    groups = group_graph(problem)
    device = groups.time_s.argmin(axis=1).astype(np.int32)
    now = MoveSpace(problem, groups).situation(device)
    work = np.bincount(device, groups.time_s[np.arange(groups.n_groups), device], problem.n_devices)
    np.testing.assert_allclose(now.busy[:, -1], work, rtol=1e-9)
    assert (np.diff(now.busy, axis=1) <= now.unit_s / (now.busy.shape[1] - 1) * (1 + 1e-9)).all()
