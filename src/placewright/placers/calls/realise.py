"""From a solution of the relaxed problem to a placement: which piece goes to which accelerator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate import evaluate_many
from placewright.graph import sums_by_index
from placewright.placers.calls.groups import Groups
from placewright.placers.calls.labels import Solution
from placewright.placers.calls.relaxed import Relaxed, Sorts
from placewright.problem import Problem

_PASSES = 2


def realise(
    problem: Problem, groups: Groups, sorts: Sorts, relaxed: Relaxed, solution: Solution
) -> NDArray[np.int32] | None:
    """A placement close to the solution, ``None`` if some op has no device; it may break limits.

    Pieces get accelerators of their own as long as there are some. Pieces that are left, and ops that are in no unit,
    then go one after another where the value is least.
    """
    device = np.full(len(groups.size_bytes), -1, dtype=np.int32)
    left = [list(devices) for devices in sorts.devices]
    unplaced: list[list[int]] = []
    for units, on_host in solution.groups:
        members = groups.of_op[np.flatnonzero(np.isin(relaxed.unit_of_op, units))]
        block = [g for g in np.unique(members).tolist() if device[g] < 0]
        home = -1 if on_host or not block else _own_accelerator(groups, left, block)
        if home >= 0:
            device[block] = home
        elif on_host:
            for g in block:
                device[g] = _best_host(problem, groups, g)
        else:
            unplaced.append(block)
    apart = [[g] for g in range(len(device)) if device[g] < 0 and not any(g in block for block in unplaced)]
    unplaced = [block for block in unplaced if block] + apart[::-1]
    for block in unplaced:
        for g in block:
            host = _best_host(problem, groups, g)
            device[g] = host if host >= 0 else _any_device(groups, g)
    if (device < 0).any():
        return None
    for _ in range(_PASSES):
        for block in unplaced:
            _settle(problem, groups, device, block)
    return device[groups.of_op]


def _own_accelerator(groups: Groups, left: list[list[int]], block: list[int]) -> int:
    """Take the fastest accelerator that is still free and may hold the block; -1 if there is none."""
    size = float(groups.size_bytes[block].sum())
    fitting = [
        (float(groups.time_s[block, devices[0]].sum()), i)
        for i, devices in enumerate(left)
        if devices and groups.allowed[block][:, devices[0]].all() and size <= groups.limit_bytes[devices[0]]
    ]
    return left[min(fitting)[1]].pop(0) if fitting else -1


def _best_host(problem: Problem, groups: Groups, g: int) -> int:
    hosts = [d for d in np.flatnonzero(problem.arrays.is_host).tolist() if groups.allowed[g, d]]
    return min(hosts, key=lambda d: float(groups.time_s[g, d]), default=-1)


def _any_device(groups: Groups, g: int) -> int:
    fitting = np.flatnonzero(groups.allowed[g])
    return int(fitting[0]) if len(fitting) else -1


def _settle(problem: Problem, groups: Groups, device: NDArray[np.int32], block: list[int]) -> None:
    """Move the block to the device where the value is least, among those with room."""
    used = sums_by_index(device.astype(np.int64), groups.size_bytes, problem.n_devices)
    size, now = float(groups.size_bytes[block].sum()), int(device[block[0]])
    options = [
        d
        for d in range(problem.n_devices)
        if d != now and groups.allowed[block][:, d].all() and used[d] + size <= groups.limit_bytes[d]
    ]
    rows = np.repeat(device[None, :], len(options) + 1, axis=0)
    for row, d in zip(rows[1:], options, strict=True):
        row[block] = d
    result = evaluate_many(problem, rows[:, groups.of_op], threads=1)
    values = np.where(np.isfinite(result.value), result.value, np.inf) + np.where(result.is_valid, 0.0, 1e200)
    device[:] = rows[int(values.argmin())]
