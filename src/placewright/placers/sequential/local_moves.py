"""Small moves with memory limits: descent, repair and annealing over single units and exchanges of two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright import _core
from placewright.graph import FloatArray, IntArray
from placewright.placers.sequential.labelling import Energy
from placewright.placers.sequential.large_moves import Stop, never

FIRST_PRICE = 1e-3  # of a byte beyond a limit, in what a byte's share of the units takes
ANNEALING_CHUNK = 20_000  # moves between two looks at the clock


def used_bytes(energy: Energy, label: IntArray) -> FloatArray:
    """Resident bytes per device."""
    return np.bincount(label, energy.memory_bytes, energy.n_devices).astype(np.float64)


def fits(energy: Energy, label: IntArray, limit_bytes: FloatArray) -> bool:
    """True if no device holds more than it can; limits with room for rounding are the caller's."""
    return bool((used_bytes(energy, label) <= limit_bytes).all())


def descended(energy: Energy, label: IntArray, limit_bytes: FloatArray, should_stop: Stop = never) -> IntArray:
    """Move single units while that helps; a device never gets fuller than it may be by a move."""
    labels, better = _core.sequential.MovableLabels(energy.core, label, limit_bytes), np.empty_like(label)
    labels.descend(should_stop)
    labels.write_label(better)
    return better


def repaired(energy: Energy, label: IntArray, limit_bytes: FloatArray, should_stop: Stop = never) -> IntArray | None:
    """Move units out of devices that are too full, cheapest per byte first; ``None`` if that does not get there."""
    labels, better = _core.sequential.MovableLabels(energy.core, label, limit_bytes), np.empty_like(label)
    least = np.where(np.isfinite(energy.time_s), energy.time_s, np.inf).min(axis=1).sum()
    price = FIRST_PRICE * float(least) / max(float(energy.memory_bytes.sum()), 1.0) or 1e-9
    if not labels.repair(price, should_stop):
        return None
    labels.write_label(better)
    return better


def annealed(
    energy: Energy, label: IntArray, limit_bytes: FloatArray, moves: int, seed: int, should_stop: Stop = never
) -> IntArray:
    """Anneal from a labelling within the limits; returns the best one met, within the limits."""
    state = AnnealedLabels(energy, label, limit_bytes)
    finite = energy.time_s[np.isfinite(energy.time_s)]
    hot = float(finite.mean()) + float(energy.copy_s.mean()) if len(energy.home) else float(finite.mean())
    best = label.copy()
    chunks = max(1, moves // ANNEALING_CHUNK)
    above_best = 0.0
    for k in range(chunks):
        if should_stop():
            break
        heat = 0.5 * hot * 1e-3 ** (k / max(1, chunks - 1))
        above_best += state.anneal(min(moves, ANNEALING_CHUNK), heat, seed + k)
        if above_best < 0:
            best, above_best = state.label.copy(), 0.0
    return descended(energy, best, limit_bytes, should_stop)


class AnnealedLabels:
    """A labelling with readers counted per tensor and device, and bytes per device."""

    def __init__(self, energy: Energy, label: IntArray, limit_bytes: FloatArray) -> None:
        self.energy, self.label, self.limit = energy, label.copy(), limit_bytes
        self.used = used_bytes(energy, label)
        self.readers = np.zeros((len(energy.home), energy.n_devices), dtype=np.int32)
        tensor = np.repeat(np.arange(len(energy.home)), np.diff(energy.reader_ptr))
        np.add.at(self.readers, (tensor, label[energy.reader]), 1)

    def anneal(self, moves: int, heat: float, seed: int) -> float:
        """Metropolis moves at one temperature; returns the change of the value."""
        e = self.energy
        return float(
            _anneal(
                e.time_s, e.memory_bytes, e.home, e.copy_s, e.direct, e.to_host, e.from_host, e.touch_ptr, e.touch,
                self.label, self.readers, self.used, self.limit, moves, heat, seed,
            )
        )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def tensor_cost(t: int, s: int, copy_s: Any, direct: Any, to_host: Any, from_host: Any, readers: Any) -> float:
    """Seconds of a tensor's copies from device ``s`` to wherever ``readers`` [tensors, devices] counts any."""
    total = 0.0
    through_host = False
    for d in range(direct.shape[0]):
        if d != s and readers[t, d] > 0:
            if direct[s, d] >= 0:
                total += copy_s[t, direct[s, d]]
            else:
                total += copy_s[t, from_host[d]]
                through_host = True
    if through_host:
        total += copy_s[t, to_host[s]]
    return total


@njit(cache=True, nogil=True)
def _delta(
    v: int, new: int, time_s: Any, home: Any, copy_s: Any, direct: Any, to_host: Any, from_host: Any,
    touch_ptr: Any, touch: Any, label: Any, readers: Any,
) -> float:  # fmt: skip
    old = label[v]
    change = time_s[v, new] - time_s[v, old]
    for k in range(touch_ptr[v], touch_ptr[v + 1]):
        t = touch[k]
        s = label[home[t]]
        change -= tensor_cost(t, s, copy_s, direct, to_host, from_host, readers)
        if home[t] == v:
            change += tensor_cost(t, new, copy_s, direct, to_host, from_host, readers)
        else:
            readers[t, old] -= 1
            readers[t, new] += 1
            change += tensor_cost(t, s, copy_s, direct, to_host, from_host, readers)
            readers[t, old] += 1
            readers[t, new] -= 1
    return change


@njit(cache=True, nogil=True)
def _move(
    v: int, new: int, memory: Any, home: Any, touch_ptr: Any, touch: Any, label: Any, readers: Any, used: Any
) -> None:
    old = label[v]
    for k in range(touch_ptr[v], touch_ptr[v + 1]):
        if home[touch[k]] != v:
            readers[touch[k], old] -= 1
            readers[touch[k], new] += 1
    used[old] -= memory[v]
    used[new] += memory[v]
    label[v] = new


@njit(cache=True, nogil=True)
def _anneal(
    time_s: Any, memory: Any, home: Any, copy_s: Any, direct: Any, to_host: Any, from_host: Any, touch_ptr: Any,
    touch: Any, label: Any, readers: Any, used: Any, limit: Any, moves: int, heat: float, seed: int,
) -> float:  # fmt: skip
    np.random.seed(seed)
    total = 0.0
    n_units, n_devices = time_s.shape
    for _ in range(moves):
        v = np.random.randint(n_units)
        new, old = np.random.randint(n_devices), label[v]
        if new == old or np.isinf(time_s[v, new]):
            continue
        w = -1
        if used[new] + memory[v] > limit[new]:  # only in exchange for another unit
            w = np.random.randint(n_units)
            back = used[new] + memory[v] - memory[w]
            forth = used[old] - memory[v] + memory[w]
            if label[w] != new or np.isinf(time_s[w, old]) or back > limit[new] or forth > limit[old]:
                continue
        change = _delta(v, new, time_s, home, copy_s, direct, to_host, from_host, touch_ptr, touch, label, readers)
        if w >= 0:
            _move(v, new, memory, home, touch_ptr, touch, label, readers, used)
            change += _delta(w, old, time_s, home, copy_s, direct, to_host, from_host, touch_ptr, touch, label, readers)
        if change <= 0.0 or np.random.random() < np.exp(-change / heat):
            if w >= 0:
                _move(w, old, memory, home, touch_ptr, touch, label, readers, used)
            else:
                _move(v, new, memory, home, touch_ptr, touch, label, readers, used)
            total += change
        elif w >= 0:
            _move(v, old, memory, home, touch_ptr, touch, label, readers, used)
    return total
