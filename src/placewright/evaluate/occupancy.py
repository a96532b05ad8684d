"""Memory of every device over time, where the execution model keeps time; else what is resident all along."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate.judging import live_intervals, resident_bytes, simulated
from placewright.graph import FloatArray
from placewright.problems import Problem


class Occupancy(NamedTuple):
    """A device holds ``size_bytes[i]`` from ``time_s[i]`` until the next moment; its maximum is the device's peak."""

    time_s: FloatArray
    size_bytes: FloatArray


def occupancy(problem: Problem, device_of_op: NDArray[np.int32], priority: FloatArray | None = None) -> list[Occupancy]:
    """The occupied memory of each device as a step curve from time 0."""
    device = np.ascontiguousarray(device_of_op, dtype=np.int32)
    resident = resident_bytes(problem, device)
    rows = np.empty((0, 4))
    if problem.execution == "overlap" and problem.track_activations:
        value, record = simulated(problem, device, priority)
        if np.isfinite(value):
            rows = live_intervals(problem, device, record, value)
    return [_steps(rows[rows[:, 0] == d], float(resident[d])) for d in range(problem.n_devices)]


def _steps(intervals: FloatArray, resident: float) -> Occupancy:
    moments = np.concatenate([intervals[:, 1], intervals[:, 2]])
    changes = np.concatenate([intervals[:, 3], -intervals[:, 3]])
    time_s, at = np.unique(np.concatenate([[0.0], moments]), return_inverse=True)
    sums = np.bincount(at[1:], changes, len(time_s)) if len(changes) else np.zeros(len(time_s))
    return Occupancy(time_s, np.maximum(resident + np.cumsum(sums), 0.0))
