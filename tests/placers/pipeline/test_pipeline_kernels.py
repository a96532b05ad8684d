"""The core's loops over units and ideals against plain twins."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from pipeline_problems import random_ops
from pipeline_reference_dp import all_ideals

from placewright import _core
from placewright.placers.pipeline.bisection import new_task
from placewright.placers.pipeline.bounds import suffix_masks
from placewright.placers.pipeline.lattice import GaveUp, Lattice, enumerate_ideals
from placewright.placers.pipeline.stage_loads import build_model
from placewright.placers.pipeline.units import Floats, Ints, Units, build_units, compressed_rows, topological_order

SEEDS = range(40)


def never() -> bool:
    return False


def drawn_units(seed: int) -> Units:
    rng = np.random.default_rng(seed)
    ops = random_ops(
        seed, op_count=int(rng.integers(1, 10)), kinds=int(rng.integers(1, 4)), edge_share=float(rng.choice([0.1, 0.3]))
    )
    return build_units(ops, merge_trivial=False)[0]


def members_of(lattice: Lattice) -> list[frozenset[int]]:
    sets = [frozenset[int]()]
    for ideal in range(1, lattice.parent.size):
        sets.append(sets[lattice.parent[ideal]] | {int(lattice.last_unit[ideal])})
    return sets


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lattice_holds_every_ideal_once_and_every_edge(seed: int) -> None:
    units = drawn_units(seed)
    lattice = enumerate_ideals(units, 100_000, never)
    assert isinstance(lattice, Lattice)
    sets, expected = members_of(lattice), all_ideals(units)
    assert len(sets) == len(expected)
    assert set(sets) == set(expected)
    assert lattice.level_ptr.tolist() == [sum(len(s) < c for s in sets) for c in range(units.memory_bytes.size + 2)]
    for ideal, held in enumerate(sets):
        assert held == {u for u in held if u <= lattice.last_unit[ideal]}
        edges = slice(lattice.edge_ptr[ideal], lattice.edge_ptr[ideal + 1])
        added = lattice.edge_unit[edges].tolist()
        ready = [u for u in range(units.memory_bytes.size) if u not in held and held | {u} in set(expected)]
        assert added == ready
        assert [sets[target] for target in lattice.edge_target[edges]] == [held | {u} for u in added]


def test_enumeration_gives_up_with_what_it_has() -> None:
    units = build_units(random_ops(1, op_count=12, edge_share=0.1), merge_trivial=False)[0]
    whole = enumerate_ideals(units, 100_000, never)
    assert isinstance(whole, Lattice)
    most = whole.parent.size - 1
    largest = max(size for size in whole.level_ptr.tolist() if size <= most)
    assert enumerate_ideals(units, most, never) == GaveUp("too_many_ideals", largest)
    assert enumerate_ideals(units, most, lambda: True) == GaveUp("timeout", 1)


def plain_order(units: Units, priority: Floats, depth_first: bool) -> list[int]:
    ptr, successor = units.successor_ptr.tolist(), units.successor.tolist()
    missing = np.bincount(units.successor, minlength=len(ptr) - 1).tolist()
    by_priority = partial(sorted, key=lambda unit: priority[unit])
    ready = by_priority([unit for unit in range(len(missing)) if missing[unit] == 0])
    order = []
    while ready:
        order.append(unit := ready.pop(-1 if depth_first else 0))
        freed = []
        for after in successor[ptr[unit] : ptr[unit + 1]]:
            missing[after] -= 1
            if missing[after] == 0:
                freed.append(after)
        ready += by_priority(freed)
    return order


@pytest.mark.parametrize("depth_first", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_orders_are_those_of_a_stack_and_a_queue(seed: int, depth_first: bool) -> None:
    units = drawn_units(seed)
    priority = np.random.default_rng(seed).integers(0, 4, units.memory_bytes.size).astype(float)
    order = topological_order(units.successor_ptr, units.successor, priority, depth_first)
    assert order.tolist() == plain_order(units, priority, depth_first)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_ruled_out_costs_more_than_the_other_devices_are_worth(seed: int) -> None:
    units = drawn_units(seed)
    task = new_task(units, build_model(units, max_replicas=2), never)
    lattice = enumerate_ideals(units, 100_000, never)
    if task is None:
        return
    assert isinstance(lattice, Lattice)
    threshold, remaining = task.lower * 1.2, task.vectors.remaining
    masks = suffix_masks(lattice, task.prices, remaining, threshold, never)
    assert masks is not None
    bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")[:, : len(remaining)].astype(bool)
    expected = np.ones_like(bits)
    rest = [[u for u in range(units.memory_bytes.size) if u not in held] for held in members_of(lattice)]
    for cost, time_price, memory_worth, left in zip(*task.prices, strict=True):
        worth = remaining @ (time_price * threshold + memory_worth)
        worth[(remaining[:, left] > 0).any(axis=1)] = np.inf
        expected &= worth >= np.array([cost[r].sum() for r in rest])[:, None] - 1e-9 * cost.sum()
    assert np.array_equal(bits, expected)


def plain_merging(forward: Floats, backward: Floats, stays: Any, edges: set[frozenset[int]], least: float) -> Ints:
    edges, into = set(edges), list(range(len(forward)))
    while True:
        leaves = [
            (leaf, edge)
            for leaf in range(len(forward))
            for edge in [[edge for edge in edges if leaf in edge]]
            if len(edge) == 1 and not stays[leaf] and forward[leaf].max() < least and backward[leaf].sum() < least
        ]
        if not leaves:
            return np.array(into)
        leaf, [edge] = leaves[0]
        (other,) = edge - {leaf}
        edges.remove(edge)
        into = [other if one == leaf else one for one in into]
        forward[other] += forward[leaf]
        backward[other] += backward[leaf]


@pytest.mark.parametrize("seed", SEEDS)
def test_negligible_leaves_are_merged_in_the_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 12))
    edges = {frozenset((int(rng.integers(0, v)), v)) for v in range(1, count) if rng.random() < 0.9}
    edges |= {frozenset(map(int, rng.choice(count, 2, replace=False))) for _ in range(int(rng.integers(0, 3)))}
    forward, backward = rng.integers(0, 3, (2, count, 2)) * 0.25
    stays = rng.random(count) < 0.2
    degree, neighbour_xor = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for one, other in map(tuple, edges):
        degree[[one, other]] += 1
        neighbour_xor[one] ^= other
        neighbour_xor[other] ^= one
    merged = np.empty(count, np.int64)
    changed = np.array([forward, backward])
    _core.pipeline.merge_leaves(*changed, stays, degree, neighbour_xor, 0.6, merged)
    expected = plain_merging(forward.copy(), backward.copy(), stays, edges, 0.6)
    assert sorted(_parts(merged)) == sorted(_parts(expected))


def _parts(label: Ints) -> list[list[int]]:
    return [np.flatnonzero(label == one).tolist() for one in np.unique(label)]


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_touches_are_equal_in_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 10))
    sets = [sorted({int(u) for u in rng.integers(0, 3, rng.integers(0, 3))}) for _ in range(count)]
    ptr, touched = compressed_rows(
        np.repeat(np.arange(count), [len(s) for s in sets]), np.array([u for s in sets for u in s], np.int64), count
    )
    producer, backward = rng.integers(0, 2, count), rng.random(count) < 0.5
    other, same = rng.integers(0, count, count), np.empty(count, np.bool_)
    _core.pipeline.compare_touches(ptr, touched, producer, backward, other, same)
    rows = list(zip(sets, producer, backward, strict=True))
    assert same.tolist() == [rows[t] == rows[o] for t, o in enumerate(other)]


def plain_prices(time: Floats, memory: Floats, price: Floats, rounds: int) -> Floats:
    best_total, best, units = -1.0, price / price.sum(), range(len(time))
    for step in range(rounds):
        price = price / price.sum()
        cost = np.where(
            np.isfinite(time), price[0] * np.where(np.isfinite(time), time, 0.0) + price[1] * memory, np.inf
        )
        choice = cost.argmin(axis=1)
        if cost.min(axis=1).sum() > best_total:
            best_total, best = cost.min(axis=1).sum(), price.copy()
        load = np.zeros_like(price)
        np.add.at(load[0], choice, time[units, choice])
        np.add.at(load[1], choice, memory[units, choice])
        price = price * np.exp(load / max(load.max(), 1e-300) / (1 + 0.1 * step))
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_prices_are_those_of_multiplicative_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units, kinds = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    time, memory = rng.random((2, units, kinds))
    time[:, 1:][rng.random((units, kinds - 1)) < 0.3] = np.inf
    start, best = np.stack([np.ones(kinds), np.full(kinds, 0.5)]), np.empty((2, kinds))
    _core.pipeline.weigh(time, memory, start, 40, best)
    assert best == pytest.approx(plain_prices(time, memory, start, 40))


def test_a_load_model_names_the_array_that_does_not_fit() -> None:
    units = drawn_units(1)
    model = build_model(units)
    with pytest.raises(ValueError, match="argument 'sync': its shape is"):
        model._replace(sync=model.sync[:0]).in_core()
