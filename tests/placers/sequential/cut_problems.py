from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from placewright.evaluate import prove_infeasible
from placewright.placers.sequential.labelling import Energy, labelling_value
from placewright.problems import Problem, Rule
from placewright.testing import random_problem


def small_problem(seed: int, n_devices: int | None = None, *, overhead: bool, **options: Any) -> Problem | None:
    """A random problem that is not infeasible at first sight; every kind of constraint turns up."""
    rng = np.random.default_rng(seed)
    n_devices = n_devices or int(rng.integers(1, 5))
    n_ops = int(rng.integers(1, 9 if n_devices < 4 else 7))
    settings = {name: bool(rng.random() < 0.4) for name in ("classes", "direct", "unsupported", "limits", "backward")}
    problem = random_problem(
        seed, n_ops, n_devices, int(rng.integers(1, n_devices + 1)), "sequential", **{**settings, **options}
    )
    if rng.random() < 0.2:
        problem = problem.with_options(rules=(Rule("forbid", "op[02]", "device0"),))
    if not overhead:
        kinds = tuple(replace(k, segment_overhead_s=0.0) for k in problem.cluster.kinds)
        problem = problem.with_options(cluster=replace(problem.cluster, kinds=kinds))
    return None if prove_infeasible(problem) else problem


def best_fusion(energy: Energy, first: Any, second: Any) -> float:
    """By trying every choice between two labellings."""
    free = np.flatnonzero(first != second)
    best = np.inf
    for goes in itertools.product([False, True], repeat=len(free)):
        label = first.copy()
        chosen = free[np.array(goes, dtype=bool)]
        label[chosen] = second[chosen]
        best = min(best, labelling_value(energy, label))
    return best


def random_label(energy: Energy, rng: np.random.Generator) -> Any:
    """Any device that each unit may be on."""
    allowed = np.isfinite(energy.time_s)
    return np.where(allowed, rng.random(allowed.shape), -1.0).argmax(axis=1).astype(np.int32)
