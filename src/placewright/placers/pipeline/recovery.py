"""Recover a pipeline from the states reached by a threshold search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from placewright.placers.pipeline.lattice import Lattice
from placewright.placers.pipeline.stage_loads import LoadModel, Stage, stage_load
from placewright.placers.pipeline.vectors import Vectors, Words, has_bit

_TRIES = 64


def trace(
    model: LoadModel,
    lattice: Lattice,
    vectors: Vectors,
    reached: Words,
    value: npt.NDArray[np.float32],
    threshold: float,
) -> list[Stage]:
    """Walk back from the full ideal to the empty one over reached states.

    `value` holds the least value seen of each state; without it, any way back is taken.
    """
    ideal = lattice.parent.size - 1
    full = [v for v in range(vectors.used.shape[0]) if has_bit(reached[ideal], v)]
    vector = full[0] if value.size == 0 else min(full, key=lambda v: float(value[ideal, v]))
    compute, memory = _prefix_sums(model, lattice)
    stages: list[Stage] = []
    while ideal > 0:
        # Rounding differs between the walk and a load computed afresh.
        before, option = _predecessor(
            model, lattice, vectors, reached, value, compute, memory, ideal, vector,
            threshold * (1 + 1e-10) + 1e-300,
        )  # fmt: skip
        kind, replicas = int(model.option_kind[option]), int(model.option_replicas[option])
        units = np.empty(model.memory.size, np.int64)
        count = _difference(lattice, before, ideal, units)
        stages.append(Stage(kind, replicas, np.sort(units[:count])))
        vector -= int(vectors.option_shift[option])
        ideal = int(before)
    return stages[::-1]


@njit(cache=True, nogil=True)
def _prefix_sums(model, lattice):  # type: ignore[no-untyped-def]
    """Finite compute time on each kind, and memory, of every ideal."""
    ideals = lattice.parent.size
    compute = np.zeros((ideals, model.kind_count.size))
    memory = np.zeros(ideals)
    for ideal in range(1, ideals):
        unit = lattice.last_unit[ideal]
        memory[ideal] = memory[lattice.parent[ideal]] + model.memory[unit]
        for kind in range(model.kind_count.size):
            time = model.time[unit, kind] if np.isfinite(model.time[unit, kind]) else 0.0
            compute[ideal, kind] = compute[lattice.parent[ideal], kind] + time
    return compute, memory


@njit(cache=True, nogil=True)
def _predecessor(  # type: ignore[no-untyped-def]
    model, lattice, vectors, reached, value, compute, memory, ideal, vector, threshold
):
    """A reached ideal and an option whose stage leads to `ideal`, the best of the first few."""
    best_value, best_ideal, best_option = np.inf, -1, -1
    units = np.empty(model.memory.size, np.int64)
    guided = value.shape[0] > 0
    goal = value[ideal, vector] * (1 + 1e-6) if guided else 0.0
    tries = 0
    for option in range(model.option_kind.size):
        kind, replicas = model.option_kind[option], model.option_replicas[option]
        earlier = vector - vectors.option_shift[option]
        if earlier < 0 or not has_bit(vectors.option_allowed[option], earlier):
            continue
        least_compute = compute[ideal, kind] - threshold * replicas - 1e-9 * compute[-1, kind]
        least_memory = memory[ideal] - model.kind_memory[kind] - 1e-9 * memory[-1]
        for before in range(ideal):
            if not has_bit(reached[before], earlier):
                continue
            if compute[before, kind] < least_compute or memory[before] < least_memory:
                continue
            known = value[before, earlier] if guided else 0.0
            if known >= best_value:
                continue
            count = _difference(lattice, before, ideal, units)
            if count < 0:
                continue
            load = stage_load(model, units[:count], kind, replicas)
            if load > threshold:
                continue
            tries += 1
            if max(load, known) < best_value:
                best_value, best_ideal, best_option = max(load, known), before, option
            if best_value <= goal or (not guided and tries >= _TRIES):
                return best_ideal, best_option
    return best_ideal, best_option


@njit(cache=True, nogil=True)
def _difference(lattice, smaller, larger, units):  # type: ignore[no-untyped-def]
    """Fill in the units of `larger` not in `smaller`, return their number; -1 if not a subset."""
    count = 0
    while smaller != larger:
        small_unit, large_unit = lattice.last_unit[smaller], lattice.last_unit[larger]
        if small_unit > large_unit:
            return -1
        if small_unit == large_unit:
            smaller = lattice.parent[smaller]
        else:
            units[count] = large_unit
            count += 1
        larger = lattice.parent[larger]
    return count
