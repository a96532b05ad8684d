"""What a policy sees of a move, against plain twins."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.placers.learned.groups import group_graph
from placewright.placers.learned.moves import MoveSpace
from placewright.placers.learned.rewards import copy_seconds
from placewright.problem import Problem
from placewright.testing import random_problem


def way_through(problem: Problem, space: MoveSpace, device: np.ndarray, members: set[int], to: int) -> float:
    """Ops before the part end when they do now, what follows takes as long as now."""
    g, now = problem.graph, space.situation(device)
    ops = device[space.groups.group_of_op]
    longest = 0.0
    for v in members:
        ready, tail = 0.0, 0.0
        for e in range(len(g.consumer_op)):
            u, w, t = int(g.edge_producer[e]), int(g.consumer_op[e]), g.edge_tensor[e]
            if w == v:
                source = to if u in members else ops[u]
                ready = max(ready, now.op_end_s[u] + float(copy_seconds(problem, t, source, to)))
            if u == v:
                target = to if w in members else ops[w]
                tail = max(tail, now.op_left_s[w] + float(copy_seconds(problem, t, to, target)))
        longest = max(longest, ready + problem.op_device_time_s[v, to] + tail)
    return longest / now.unit_s - 1


@pytest.mark.parametrize("seed", range(20))
def test_the_way_through_a_moved_part_is_that_of_a_plain_twin(seed: int) -> None:
    problem = random_problem(seed, 12, 2 + seed % 3, 1 + seed % 3, "overlap", direct=seed % 2 == 0)
    groups = group_graph(problem)
    space, rng = MoveSpace(problem, groups), np.random.default_rng(seed)
    device = np.array([rng.choice(np.flatnonzero(row)) for row in groups.allowed], dtype=np.int32)
    now = space.situation(device)
    labels = rng.integers(0, 4, groups.n_groups)
    moves = space.moves(now, [np.arange(groups.n_groups), labels])
    for m in range(len(moves.part)):
        hit = moves.part_of_group[moves.level[m]] == moves.part[m]
        members = set(np.flatnonzero(hit[groups.group_of_op]).tolist())
        expected = way_through(problem, space, device, members, int(moves.device[m]))
        assert moves.features[m, 9] == pytest.approx(np.clip(10 * expected, -5, 5), rel=1e-5, abs=1e-5)


def test_devices_are_as_busy_as_their_ops_run() -> None:
    problem = random_problem(3, 30, 3, 2, "overlap")
    groups = group_graph(problem)
    device = groups.time_s.argmin(axis=1).astype(np.int32)
    now = MoveSpace(problem, groups).situation(device)
    work = np.bincount(device, groups.time_s[np.arange(groups.n_groups), device], problem.n_devices)
    np.testing.assert_allclose(now.busy[:, -1], work, rtol=1e-9)
    assert (np.diff(now.busy, axis=1) <= now.unit_s / (now.busy.shape[1] - 1) * (1 + 1e-9)).all()
