"""Why an op is where it is: the value of the placement if it were moved to each other device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate import evaluate_many
from placewright.graph import FloatArray
from placewright.placement import Placement
from placewright.placers.units import movable_units

NOT_ALLOWED, BREAKS_LIMIT = -1.0, -2.0
_CELLS = 8_000_000  # ops x moves: what some seconds can evaluate
_BATCH_CELLS = 500_000


class Moves(NamedTuple):
    """``value[i, d]`` is the value with op ``op[i]``, and what must move with it, on device ``d``.

    Its own device has the present value. ``NOT_ALLOWED``: it cannot or may not run there; ``BREAKS_LIMIT``: no valid
    placement. Ops that are not listed were not tried.
    """

    op: NDArray[np.int32]
    value: FloatArray  # [ops tried, devices]


def values_if_moved(placement: Placement, cells: int = _CELLS) -> Moves:
    """Try every op on every other device, the heaviest first, as long as ``cells`` (ops x moves) last."""
    problem, device = placement.problem, placement.device_of_op
    assert device is not None
    if placement.replicas is not None or not np.isfinite(placement.value):
        return Moves(np.zeros(0, dtype=np.int32), np.zeros((0, problem.n_devices)))
    units = movable_units(problem)
    n_units = len(units.memory_bytes)
    _, lead = np.unique(units.unit_of_op, return_index=True)
    at = device[lead]
    members = np.split(np.argsort(units.unit_of_op, kind="stable"), np.cumsum(np.bincount(units.unit_of_op))[:-1])
    present = np.where(np.isfinite(units.time_s[np.arange(n_units), at]), units.time_s[np.arange(n_units), at], 0.0)
    most = max(1, cells // (problem.n_ops * max(1, problem.n_devices - 1)))
    tried = np.sort(np.argsort(-present, kind="stable")[:most])
    value = np.where(units.allowed[tried], np.nan, NOT_ALLOWED)
    value[np.arange(len(tried)), at[tried]] = placement.value
    wanted = np.argwhere(np.isnan(value))
    size = max(1, _BATCH_CELLS // problem.n_ops)
    for begin in range(0, len(wanted), size):
        batch = wanted[begin : begin + size]
        rows = np.repeat(device[None, :], len(batch), axis=0)
        for row, (i, d) in zip(rows, batch.tolist(), strict=True):
            row[members[tried[i]]] = d
        found = evaluate_many(problem, rows, placement.priority)
        value[batch[:, 0], batch[:, 1]] = np.where(found.is_valid, found.value, BREAKS_LIMIT)
    ops = np.flatnonzero(np.isin(units.unit_of_op, tried)).astype(np.int32)
    return Moves(ops, value[np.searchsorted(tried, units.unit_of_op[ops])])
