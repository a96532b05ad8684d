"""The compiled core of the room against plain twins."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from calls_problems import small_problem
from numpy.typing import NDArray

from placewright import _core
from placewright.placers.calls.frontier import find_frontiers
from placewright.placers.calls.label_setting import Ration, solve_labels
from placewright.placers.calls.relaxation import Relaxed, accelerator_sorts, relax
from placewright.placers.calls.tails import find_tails
from placewright.placers.pipeline.lattice import Lattice, enumerate_ideals
from placewright.testing import random_problem


def relaxed_of(problem: Any) -> Relaxed:
    return relax(problem, accelerator_sorts(problem), negligible_s=0.0, negligible_bytes=0.0)


def lattice_of(relaxed: Relaxed) -> Lattice:
    lattice = enumerate_ideals(relaxed, 100_000, lambda: False)
    assert isinstance(lattice, Lattice)
    return lattice


@pytest.mark.parametrize("seed", range(60))
def test_greedy_fills_like_its_plain_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, n_devices = int(rng.integers(1, 30)), int(rng.integers(1, 6))
    order, allowed = rng.permutation(n), rng.random((n, n_devices)) < rng.choice([0.6, 0.9, 1.0])
    size, limit = rng.integers(0, 10, n) * 1.0, rng.uniform(0, 80, n_devices)
    is_host, placed = rng.random(n_devices) < 0.3, np.full(n, -1, dtype=np.int32)
    fits = _core.calls.fill_greedily(order, allowed, size, limit, is_host, placed)
    expected = plain_fill(order, allowed, size, limit, is_host)
    assert fits == (expected is not None)
    if expected is not None:
        assert placed.tolist() == expected


def plain_fill(
    order: NDArray[Any], allowed: NDArray[Any], size: NDArray[Any], limit: NDArray[Any], is_host: NDArray[Any]
) -> list[int] | None:
    room, placed = limit.tolist(), [-1] * len(order)
    hosts, accelerators = np.flatnonzero(is_host).tolist(), np.flatnonzero(~is_host).tolist()
    in_turn, holds = list(accelerators), False
    used = [0.0] * len(room)
    for u in order.tolist():
        takes = [bool(allowed[u, d]) and used[d] + size[u] <= room[d] for d in range(len(room))]
        if in_turn and holds and not takes[in_turn[0]]:
            in_turn, holds = in_turn[1:], False
        first = [in_turn[0]] if in_turn and takes[in_turn[0]] else []
        holds = holds or bool(first)
        chosen = next((d for d in first + hosts + accelerators if takes[d]), None)
        if chosen is None:
            return None
        placed[u] = chosen
        used[chosen] += size[u]
    return placed


@pytest.mark.parametrize("seed", range(40))
def test_frontiers_are_what_is_still_to_be_read(seed: int) -> None:
    relaxed = relaxed_of(small_problem(seed))
    lattice, tails = lattice_of(relaxed), find_tails(relaxed)
    frontiers = find_frontiers(relaxed, lattice, tails.edge_s, lambda: False)
    assert frontiers is not None
    rows = np.split(relaxed.successor, relaxed.successor_ptr[1:-1])
    edges = np.split(tails.edge_s, relaxed.successor_ptr[1:-1])
    behind: list[set[int]] = [set() for _ in rows]
    for u in reversed(range(len(rows))):
        behind[u] = set(rows[u].tolist()).union(*(behind[v] for v in rows[u].tolist()))
    widest = 0
    for ideal in range(len(lattice.parent)):
        inside, at = set(), ideal
        while at > 0:
            inside.add(int(lattice.last_unit[at]))
            at = int(lattice.parent[at])
        units = [u for u in sorted(inside) if set(rows[u].tolist()) - inside]
        expected = []
        for u in units:
            outside = [v for v in rows[u].tolist() if v not in inside]
            sets = [frozenset(i for i, w in enumerate(units) if v in behind[w]) for v in outside]
            minimal = {s for s in sets if not any(other < s for other in sets)}
            tail = max(float(s) for v, s in zip(rows[u].tolist(), edges[u].tolist(), strict=True) if v not in inside)
            expected.append((u, tail, minimal))
        found = [
            (u, tail, {frozenset(i for i in range(64) if wait >> i & 1) for wait in waits})
            for u, tail, waits in frontiers.slots(ideal)
        ]
        assert found == expected
        widest = max(widest, len(units))
    assert frontiers.widest == widest


@pytest.mark.parametrize("seed", range(20))
def test_tails_are_at_most_what_any_solution_takes(seed: int) -> None:
    """The optimum of the relaxed problem, found by labels alone, is a solution that every tail has to allow."""
    relaxed = relaxed_of(small_problem(seed))
    lattice, tails = lattice_of(relaxed), find_tails(relaxed)
    nothing = tails._replace(
        edge_s=np.zeros_like(tails.edge_s), start_s=np.zeros_like(tails.start_s), open_s=np.zeros_like(tails.open_s)
    )
    bounds = []
    for guide in (tails, nothing):
        frontiers = find_frontiers(relaxed, lattice, guide.edge_s, lambda: False)
        assert frontiers is not None
        bounds.append(solve_labels(relaxed, lattice, frontiers, guide, np.inf, 10_000, lambda: False).bound)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-9)
    assert tails.start_s.max() <= bounds[0] * (1 + 1e-9)


def test_a_long_search_for_labels_ends_with_its_budget() -> None:
    relaxed = relaxed_of(random_problem(0, 18, 3, 2, "calls", limits=True))
    lattice, tails = lattice_of(relaxed), find_tails(relaxed)
    frontiers = find_frontiers(relaxed, lattice, tails.edge_s, lambda: False)
    assert frontiers is not None
    spent = np.random.default_rng(0).random(len(relaxed.host_time_s))  # so that few labels beat others
    began = time.perf_counter()

    def should_stop() -> bool:
        return time.perf_counter() - began > 0.05

    found = solve_labels(relaxed, lattice, frontiers, tails, np.inf, 10**6, should_stop, Ration(0.0, spent, 1e9))
    assert not found.is_finished
    assert found.solution is None
    assert time.perf_counter() - began < 0.5
    assert 0 < found.bound < np.inf
