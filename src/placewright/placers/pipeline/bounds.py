"""Lower bounds on what a set of units needs, used to discard states that cannot finish.

Put prices on a second of each kind and on a byte of each kind. A unit costs at least its cheapest
kind's price, and devices that finish within a threshold can pay no more than what their time and
memory are worth. Hence for any prices, units whose costs exceed the worth of the remaining devices
do not fit on them. Prices are chosen by multiplicative weights on the fractional assignment
problem; poor prices make the test weaker, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from placewright import _core
from placewright.placers.pipeline.lattice import Lattice
from placewright.placers.pipeline.stage_loads import LoadModel
from placewright.placers.pipeline.units import Bools, Floats, Ints
from placewright.placers.pipeline.vectors import Words

_ROUNDS = 120
_SAMPLE = 1000
_SLACK = 1e-9  # as in core/pipeline/bounds.cpp


class Prices(NamedTuple):
    """`D` price systems; each says nothing about devices of the kinds it leaves out."""

    unit_cost: Floats  # [D, U]
    time_price: Floats  # [D, K]
    memory_worth: Floats  # [D, K] worth of all memory of one device
    leaves_out: Bools  # [D, K]


def find_prices(model: LoadModel, target: float) -> Prices:
    """Price systems that are tight for loads around `target`."""
    systems = []
    kinds = np.flatnonzero(model.kind_count > 0)
    for subset in _kind_subsets(kinds):
        supported = np.asarray(np.isfinite(model.time[:, subset]).any(axis=1))
        if not supported.all():
            free = np.zeros(subset.size)
            systems.append(_system(model, subset, (~supported).astype(float), free, free))
        for counts in _mixes(model.kind_count[subset]):
            prices = _price_resources(model, subset, counts, supported, target)
            systems.append(_system(model, subset, *prices))
    if not systems:
        empty = np.zeros((0, model.kind_count.size))
        return Prices(np.zeros((0, model.memory.size)), empty, empty, empty > 0)
    return Prices(*(np.array(column) for column in zip(*systems, strict=True)))


def lowest_possible(model: LoadModel, prices: Prices) -> float:
    """A lower bound on the largest load of any pipeline; inf if the units cannot be hosted."""
    bound = float(_single_unit_loads(model).max(initial=0.0))
    for unit_cost, time_price, memory_worth, left in zip(*prices, strict=True):
        if (model.kind_count[left] > 0).any():
            continue
        worth_per_second = float(time_price @ model.kind_count)
        excess = float(unit_cost.sum()) * (1 - _SLACK) - float(memory_worth @ model.kind_count)
        if excess > 0:
            bound = max(bound, excess / worth_per_second if worth_per_second > 0 else np.inf)
    return bound


def _single_unit_loads(model: LoadModel) -> Floats:
    """Least share of a unit's compute time that some device has to bear."""
    loads = np.full(model.memory.size, np.inf)
    for kind, replicas in zip(model.option_kind, model.option_replicas, strict=True):
        sync = 2 * (replicas - 1) / replicas * model.sync[:, kind]
        np.minimum(loads, model.time[:, kind] / replicas + sync, out=loads)
    return loads


def _kind_subsets(kinds: Ints) -> list[Ints]:
    """Sets of kinds that may be all that is left: every set for few kinds, else the extremes."""
    sizes = {1, kinds.size - 1, kinds.size} if kinds.size > 3 else set(range(1, kinds.size + 1))
    return [np.array(chosen) for size in sorted(sizes) for chosen in combinations(kinds, size)]


def _mixes(counts: Ints) -> list[Floats]:
    """Proportions of kinds to tune prices for: as given, and with one kind half used up."""
    mixes = [counts.astype(float)]
    if 2 <= counts.size <= 3:
        for kind in range(counts.size):
            halved = counts.astype(float)
            halved[kind] /= 2
            mixes.append(halved)
    return mixes


def _system(
    model: LoadModel, subset: Ints, unit_cost: Floats, time_price: Floats, memory_worth: Floats
) -> tuple[Floats, Floats, Floats, Bools]:
    prices = np.zeros((2, model.kind_count.size))
    prices[0, subset], prices[1, subset] = time_price, memory_worth
    left_out = np.ones(model.kind_count.size, np.bool_)
    left_out[subset] = False
    return unit_cost, prices[0], prices[1], left_out


def _price_resources(
    model: LoadModel, subset: Ints, counts: Floats, supported: Bools, target: float
) -> tuple[Floats, Floats, Floats]:
    """Cost of every unit, price of time and worth of memory on the kinds of `subset`."""
    limit = model.kind_memory[subset]
    limited = np.isfinite(limit) & (limit > 0)
    time_share = model.time[:, subset] / (counts * max(target, 1e-300))
    memory_share = model.memory[:, None] / np.where(limited, counts * limit, np.inf)
    # Good prices are enough, and a sample of the units gives them.
    sample = np.flatnonzero(supported)[:: max(1, model.memory.size // _SAMPLE)]
    start, price = np.stack([np.ones(subset.size), limited * 0.5]), np.empty((2, subset.size))
    of_sample = np.ascontiguousarray(time_share[sample]), np.ascontiguousarray(memory_share[sample])
    _core.pipeline.weigh(*of_sample, start, _ROUNDS, price)
    cost = np.where(np.isfinite(time_share), price[0] * time_share, np.inf)
    cost = (cost + price[1] * memory_share).min(axis=1)
    unit_cost = np.where(supported, cost, 0.0)
    return unit_cost, price[0] / (counts * max(target, 1e-300)), price[1] / counts


def suffix_masks(
    lattice: Lattice,
    prices: Prices,
    remaining: Ints,
    threshold: float,
    should_stop: Callable[[], bool],
) -> Words | None:
    """For each ideal, the device-count vectors whose remaining devices may host the other units.

    `remaining[v, k]` is the number of unused devices of kind `k` in vector `v`; bit `v` of the
    result for an ideal is clear only if the rest provably does not fit within `threshold`. None if
    stopped.
    """
    words = (remaining.shape[0] + 63) // 64
    masks = np.full((lattice.parent.size, words), np.uint64(2**64 - 1))
    in_core = lattice.in_core()
    for unit_cost, time_price, memory_worth, left in zip(*prices, strict=True):
        if should_stop():
            return None
        worth = remaining @ (time_price * threshold + memory_worth)
        worth[(remaining[:, left] > 0).any(axis=1)] = np.inf
        order = np.argsort(worth, kind="stable")
        if not _core.pipeline.clear_unaffordable(in_core, unit_cost, order, worth[order], masks, should_stop):
            return None
    return masks
