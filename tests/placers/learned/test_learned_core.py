"""The compiled core of the room against plain twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from placewright import _core
from placewright.graph import IntArray
from placewright.placers.learned.features import fractal_dimensions
from placewright.placers.learned.gdp_blocks import Scales, make_blocks, side_by_side
from placewright.placers.learned.groups import GroupGraph, group_graph, repaired
from placewright.testing import random_problem


def problem_of(seed: int) -> Any:
    return random_problem(seed, 5 + seed % 25, 1 + seed % 5, 1 + seed % 3, "overlap", unsupported=seed % 2 == 0)


@pytest.mark.parametrize("seed", range(40))
def test_over_full_devices_are_relieved_like_in_a_plain_twin(seed: int) -> None:
    rng, groups = np.random.default_rng(seed), group_graph(problem_of(seed))
    groups = groups._replace(memory_bytes=rng.integers(0, 5, groups.n_groups) * 1.0)
    rows = rng.integers(0, groups.n_devices, (4, groups.n_groups)).astype(np.int32)
    limit = np.ceil(rng.random(groups.n_devices) * 2 * groups.memory_bytes.sum() / groups.n_devices)
    expected = [plain_repair(groups, row.tolist(), limit.tolist()) for row in rows]
    assert repaired(groups, rows, limit).tolist() == expected


def plain_repair(groups: GroupGraph, row: list[int], limit: list[float]) -> list[int]:
    size = groups.memory_bytes.tolist()
    room = [limit[d] - sum(size[g] for g in range(len(row)) if row[g] == d) for d in range(len(limit))]
    for g in reversed(range(len(row))):
        here = row[g]
        others = [d for d in range(len(room)) if d != here and groups.allowed[g, d] and room[d] >= size[g]]
        if room[here] < 0 and size[g] > 0 and others:
            row[g] = max(others, key=lambda d: (room[d], d))
            room[here] += size[g]
            room[row[g]] -= size[g]
    return row


@pytest.mark.parametrize("seed", range(40))
def test_fractal_dimensions_are_slopes_of_plain_fits(seed: int) -> None:
    groups = group_graph(problem_of(seed))
    near: list[set[int]] = [{v} for v in range(groups.n_groups)]
    for u, v in groups.edges.tolist():
        near[u].add(v)
        near[v].add(u)
    for v, dimension in enumerate(fractal_dimensions(groups).tolist()):
        ball, points = {v}, []
        while (larger := set().union(*(near[w] for w in ball))) != ball:
            ball = larger
            points.append((np.log(len(points) + 1), np.log(len(ball) - 1)))
        slope = np.polyfit(*np.array(points).T, 1)[0] if len(points) > 1 else 0.0
        assert dimension == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_blocks_are_united_like_in_a_plain_twin(seed: int) -> None:
    rng, n, n_devices = np.random.default_rng(seed), 20, 3
    pairs, time_s, size = rng.integers(0, n, (40, 2)), rng.random((n, n_devices)), rng.random(n)
    time_s[rng.random(time_s.shape) < 0.2] = np.inf
    label = np.empty(n, dtype=np.int64)
    _core.learned.unite_blocks(pairs, time_s, size, 2.0, 3.0, label)
    block = {g: [g] for g in range(n)}
    for one, other in pairs.tolist():
        both = sorted({*block[one], *block[other]})
        if block[one] != block[other] and size[both].sum() <= 3.0 and time_s[both].sum(axis=0).min() <= 2.0:
            block.update(dict.fromkeys(both, both))
    assert label.tolist() == [block[g][0] for g in range(n)]


@pytest.mark.parametrize("seed", range(40))
def test_mutants_are_drawn_like_in_a_plain_twin(seed: int) -> None:
    rng, problem = np.random.default_rng(seed), problem_of(seed)
    groups = group_graph(problem)
    scales = side_by_side(tuple(make_blocks(problem, groups, per_device) for per_device in (0, 1, 4)))
    parents = rng.integers(0, groups.n_devices, (1 + seed % 3, groups.n_groups)).astype(np.int32)
    children = np.empty((30, groups.n_groups), dtype=np.int32)
    first = int(rng.integers(1, 2**63))
    _core.learned.Scales(groups.edges, groups.allowed, *scales).mutate(parents, first, children)
    draw = PlainNumbers(first)
    for child in children:
        assert child.tolist() == plain_mutant(parents, groups, scales, draw)


class PlainNumbers:
    def __init__(self, state: int) -> None:
        self.state = state

    def __call__(self, below: int) -> int:
        x = self.state
        x = (x ^ x << 13) % 2**64
        x ^= x >> 7
        self.state = (x ^ x << 17) % 2**64
        return (self.state >> 11) % below


def plain_mutant(parents: IntArray, groups: GroupGraph, scales: Scales, draw: PlainNumbers) -> list[int]:
    n = groups.n_groups
    child: list[int] = parents[0 if draw(2) == 0 else draw(len(parents))].tolist()
    if len(parents) > 1 and draw(8) == 0:
        other = parents[draw(len(parents))].tolist()
        low, high = sorted((draw(n), draw(n)))
        child[low : high + 1] = other[low : high + 1]
    moves = 1
    while moves < 6 and draw(2) == 0:
        moves += 1
    for _ in range(moves):
        scale = min(draw(len(scales.member)), draw(len(scales.member)))
        device, group = draw(groups.n_devices), draw(n)
        if len(groups.edges) and draw(4) > 0:
            for _ in range(8):
                ends, side = groups.edges[draw(len(groups.edges))].tolist(), draw(2)
                if child[ends[side]] != child[ends[1 - side]]:
                    device, group = child[ends[1 - side]], ends[side]
                    break
        block = scales.block_of_group[scale, group]
        for member in scales.member[scale, scales.block_of_group[scale][scales.member[scale]] == block].tolist():
            child[member] = device if groups.allowed[member, device] else child[member]
    return child
