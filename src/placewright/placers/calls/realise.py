"""From a solution of the relaxed problem to a placement: which piece goes to which accelerator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate import evaluate_many
from placewright.graph import FloatArray, sums_by_index
from placewright.placers.calls.groups import Groups
from placewright.placers.calls.label_setting import Solution
from placewright.placers.calls.relaxation import Relaxed, Sorts
from placewright.problems import Problem

_PASSES = 2


def realise(
    problem: Problem,
    groups: Groups,
    sorts: Sorts,
    relaxed: Relaxed,
    solution: Solution,
    should_stop: Callable[[], bool],
) -> NDArray[np.int32] | None:
    """A placement close to the solution, ``None`` if some op has no device; it may break limits.

    Pieces get accelerators of their own as long as there are some. Pieces that are left go to the host, ops that are
    in no unit to a neighbour; then one after another, while there is time, to where the value is least.
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
    for block in unplaced:
        for g in block:
            device[g] = _best_host(problem, groups, g)
    used = sums_by_index(device[device >= 0].astype(np.int64), groups.size_bytes[device >= 0], problem.n_devices)
    for g in np.flatnonzero(device < 0)[::-1].tolist():
        device[g] = _neighbouring(problem, groups, device, used, g)
        if device[g] < 0:
            return None
        used[device[g]] += groups.size_bytes[g]
        unplaced.append([g])
    for _ in range(_PASSES):
        for block in unplaced:
            if should_stop():
                break
            if block:
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


def _neighbouring(problem: Problem, groups: Groups, device: NDArray[np.int32], used: FloatArray, g: int) -> int:
    """A neighbour's device with room, else a host device, else any; -1 if there is none."""
    near = device[groups.neighbour[groups.neighbour_ptr[g] : groups.neighbour_ptr[g + 1]]]
    for d in near[near >= 0][::-1].tolist():
        if groups.allowed[g, d] and used[d] + groups.size_bytes[g] <= groups.limit_bytes[d]:
            return int(d)
    fitting = [_best_host(problem, groups, g), *np.flatnonzero(groups.allowed[g]).tolist()]
    return next((d for d in fitting if d >= 0), -1)


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
