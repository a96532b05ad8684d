"""Shorten very long orders: allow stage boundaries at a limited number of positions only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placewright.placers.pipeline.stage_loads import LoadModel, list_touches
from placewright.placers.pipeline.units import Floats, Ints, Units, contract_tensors


def spread_cuts(units: Units, order: Ints, weight: Floats, count: int) -> Ints:
    """Cut positions, one per stretch of equal weight: the one that fewest costs cross.

    Position `p` cuts before `order[p]`. `weight` is per unit; the ends are not listed.
    """
    crossing = _crossing_cost(units, order)
    cumulative = np.cumsum(weight[order] + weight.sum() / order.size)
    stretch = np.minimum((cumulative / cumulative[-1] * count).astype(np.int64), count - 1)
    by_cost = np.lexsort((crossing[1:], stretch[1:])) + 1
    first = np.unique(stretch[by_cost], return_index=True)[1]
    return np.sort(by_cost[first])


def focus_cuts(cuts: Ints, order: Ints, stages: Sequence[Ints], count: int) -> Ints:
    """Every position near the stage boundaries, and some of the given cuts elsewhere."""
    ends = np.cumsum([units.size for units in stages])[:-1]
    reach = max(1, count // (4 * max(ends.size, 1)))
    near = (ends[:, None] + np.arange(-reach, reach + 1)).reshape(-1)
    kept = np.union1d(np.concatenate([near, ends]), cuts[::4])
    return kept[(kept > 0) & (kept < order.size)]


def merge_segments(units: Units, model: LoadModel, order: Ints, cuts: Ints) -> tuple[LoadModel, Ints]:
    """Model of the segments between cuts, numbered in order, and the segment of each unit."""
    segment = np.empty(order.size, np.int64)
    segment[order] = np.searchsorted(cuts, np.arange(order.size), side="right")
    count = cuts.size + 1
    sizes = np.diff(units.tensor_ptr)
    tensor = np.repeat(np.arange(sizes.size), sizes)
    ptr, touched, cost_in, cost_out, _ = contract_tensors(
        segment[units.tensor_unit[units.tensor_ptr[:-1]]], tensor, segment[units.tensor_unit],
        units.tensor_in, units.tensor_out, units.tensor_is_backward,
    )  # fmt: skip
    merged = model._replace(
        time=_add_up(model.time, segment, count),
        memory=np.bincount(segment, model.memory, count).astype(np.float64),
        sync=_add_up(model.sync, segment, count),
        tensor_in=cost_in,
        tensor_out=cost_out,
        **list_touches(ptr, touched, count),
    )
    return merged, segment


def _add_up(values: Floats, row: Ints, count: int) -> Floats:
    total = np.zeros((count, values.shape[1]))
    np.add.at(total, row, values)
    return total


def _crossing_cost(units: Units, order: Ints) -> Floats:
    """Cost of the tensors that have units on both sides of each position."""
    position = np.empty(order.size, np.int64)
    position[order] = np.arange(order.size)
    if units.tensor_ptr.size == 1:
        return np.zeros(order.size)
    touched = position[units.tensor_unit]
    cost = (units.tensor_in + units.tensor_out).sum(axis=1)
    change = np.zeros(order.size + 1)
    np.add.at(change, np.minimum.reduceat(touched, units.tensor_ptr[:-1]) + 1, cost)
    np.add.at(change, np.maximum.reduceat(touched, units.tensor_ptr[:-1]) + 1, -cost)
    return np.cumsum(change)[:-1]
