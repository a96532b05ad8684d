"""Random small problems and their optimum by enumeration."""

from __future__ import annotations

import itertools

import numpy as np

from placewright.placers.pipeline.not_contiguous.units import Units, combine_loads, evaluate, load_table, units_from_ops
from placewright.placers.pipeline.units import Ops


def random_ops(rng: np.random.Generator) -> Ops:
    count = int(rng.integers(3, 10))
    kinds = int(rng.integers(1, 4))
    counts = rng.integers(1, 3, size=kinds)
    time = rng.uniform(0.0, 10.0, size=(count, kinds)) * rng.choice([0.1, 1.0, 1.0], size=(count, 1))
    time[rng.random((count, kinds)) < 0.1] = np.inf
    for row in time:
        if not np.isfinite(row).any():
            row[int(rng.integers(kinds))] = rng.uniform(1, 5)
    backward_from = int(rng.integers(count // 2, count + 1)) if rng.random() < 0.6 else count
    colocation = np.full(count, -1, dtype=np.int64)
    for op in range(backward_from, count):
        if rng.random() < 0.8:
            mate = int(rng.integers(backward_from)) if backward_from else op
            colocation[op] = colocation[mate] = mate
    consumers = [[j for j in range(i + 1, count) if rng.random() < 0.35] for i in range(count)]
    producers = [i for i in range(count) if consumers[i]]
    cost = rng.uniform(0.0, 4.0) * rng.uniform(0.0, 1.0, size=(len(producers), 1))
    factor_in = rng.choice([0.0, 1.0, 1.0], size=(1, kinds))
    asymmetry = rng.choice([1.0, 0.5])
    memory = rng.uniform(0.0, 4.0, size=count)
    limit = np.where(rng.random(kinds) < 0.5, memory.sum() * rng.uniform(0.4, 1.0, size=kinds), np.inf)
    return Ops(
        time,
        memory,
        np.arange(count) >= backward_from,
        colocation,
        np.array(producers, dtype=np.int32),
        np.cumsum([0] + [len(consumers[p]) for p in producers]).astype(np.int32),
        np.array([c for p in producers for c in consumers[p]], dtype=np.int32),
        cost * factor_in,
        cost * factor_in * asymmetry,
        counts.astype(np.int64),
        limit,
    )


def random_units(seed: int) -> Units:
    rng = np.random.default_rng(seed)
    while True:
        units, _ = units_from_ops(random_ops(rng))
        if units.device_count**units.unit_count <= 20_000:
            return units


def brute_force(units: Units, objective: str, communication: str, accept=lambda device_of_unit: True) -> float:
    """The optimum by trying everything; inf when no assignment is valid."""
    best = np.inf
    for choice in itertools.product(range(units.device_count), repeat=units.unit_count):
        device_of_unit = np.array(choice, dtype=np.int32)
        if accept(device_of_unit):
            best = min(best, evaluate(units, device_of_unit, objective, communication))
    return best


def op_level_value(ops: Ops, device_of_op: np.ndarray) -> float:
    """Largest load straight from the definition, on ops and edges."""
    kind = np.repeat(np.arange(len(ops.kind_count)), ops.kind_count)
    load = np.zeros(len(kind))
    for op, device in enumerate(device_of_op):
        load[device] += ops.op_time[op, kind[device]]
    for tensor, producer in enumerate(ops.tensor_producer):
        readers = ops.consumer_op[ops.consumer_ptr[tensor] : ops.consumer_ptr[tensor + 1]]
        home = device_of_op[producer]
        away = {int(device_of_op[reader]) for reader in readers} - {int(home)}
        if away:
            load[home] += ops.tensor_out[tensor, kind[home]]
        for device in away:
            load[device] += ops.tensor_in[tensor, kind[device]]
    return float(load.max())


__all__ = ["brute_force", "combine_loads", "load_table", "op_level_value", "random_ops", "random_units"]
