"""Placements that differ in every way that matters to a runtime: how often, where and between what they cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate import evaluate_many
from placewright.placers.registry import get_placer
from placewright.problems import Problem

_MOST_SEGMENTS = 16
_NOISE = 0.5  # of the logarithm of op times: enough for another list schedule each time
_TRIES_PER_ROW = 50


def diverse_placements(problem: Problem, count: int, seed: int = 0) -> NDArray[np.int32]:
    """[rows, ops] distinct valid placements, at most ``count`` of them; the first ones are the single devices.

    The others in turn: runs of ops along the graph (2 to 16 of them), list schedules of noisy times (which spread
    branches), and op classes as a whole.
    """
    rng = np.random.default_rng(seed)
    found: dict[bytes, NDArray[np.int32]] = {}
    for candidate in _candidates(problem, rng, count * _TRIES_PER_ROW):
        row = candidate[problem.group_of_op].astype(np.int32)
        if row.tobytes() not in found and evaluate_many(problem, row[None]).is_valid[0]:
            found[row.tobytes()] = row
        if len(found) >= count:
            break
    return np.stack(list(found.values())) if found else np.zeros((0, problem.n_ops), dtype=np.int32)


def _candidates(problem: Problem, rng: np.random.Generator, tries: int) -> Iterator[NDArray[np.integer]]:
    for d in range(problem.n_devices):
        yield np.full(problem.n_ops, d)
    if problem.n_devices == 1:
        return
    makers = (_runs, _schedule, _runs, _classes)
    for t in range(tries):
        yield makers[t % len(makers)](problem, rng)


def _runs(problem: Problem, rng: np.random.Generator) -> NDArray[np.integer]:
    """Consecutive ops on one device, then on another; cuts are spread over the time, not over the number of ops."""
    mean_s = np.where(np.isfinite(problem.op_time_s), problem.op_time_s, 0.0).mean(axis=1)
    passed = np.cumsum(mean_s) / max(float(mean_s.sum()), np.finfo(float).tiny)
    n_runs = int(rng.integers(2, _MOST_SEGMENTS + 1))
    run_of_op = np.searchsorted(np.sort(rng.random(n_runs - 1)), passed, side="right")
    steps = rng.integers(1, problem.n_devices, n_runs)
    return np.asarray((np.cumsum(steps) % problem.n_devices)[run_of_op])


def _schedule(problem: Problem, rng: np.random.Generator) -> NDArray[np.integer]:
    noisy = problem.op_time_s * np.exp(_NOISE * rng.standard_normal((problem.n_ops, 1)))
    guess = replace(problem, op_time_s=noisy, objective="latency", execution="overlap")
    placed = get_placer("heft").place(guess).device_of_op
    return placed if placed is not None else np.zeros(problem.n_ops, dtype=np.int32)


def _classes(problem: Problem, rng: np.random.Generator) -> NDArray[np.integer]:
    """Ops of one class go together, fused ops with the first of them."""
    classes, number = np.unique(np.array(problem.graph.op_classes), return_inverse=True)
    return np.asarray(rng.integers(0, problem.n_devices, len(classes))[number])
