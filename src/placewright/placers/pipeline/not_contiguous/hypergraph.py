"""Balanced hypergraph partitioning as a placer: blocks are the accelerators, cut tensors cost communication."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.placers.pipeline.not_contiguous.units import Communication, IntArray, Objective, Units, evaluate

# The partitioner does not end on some tiny graphs, so it is not asked about them.
FEWEST_UNITS, FEWEST_UNITS_PER_BLOCK = 24, 4
SECONDS_PER_UNIT = 2e-4  # generously: it cannot be interrupted
WEIGHT_STEPS = 1_000_000  # integer steps of the largest vertex or edge weight


class PartitionResult(NamedTuple):
    """`value` is inf when the assignment breaks a memory limit, which partitioning does not look at."""

    device_of_unit: IntArray | None
    value: float
    reason: str  # why there is no assignment; empty when there is one


def partition(
    units: Units,
    objective: Objective = "1f1b",
    communication: Communication = "added",
    *,
    kinds: list[int] | None = None,
    imbalance: float = 0.03,
    threads: int = 1,
    seed: int = 0,
) -> PartitionResult:
    """Partition among the devices of `kinds` (default: those with costly transfers, or all if there are none).

    Vertex weights are times on the fastest chosen kind, block weights follow each kind's speed, the weight of a
    tensor is what its producer and one reader pay. With one thread the result depends on the seed alone.
    """
    chosen = kinds if kinds is not None else _accelerator_kinds(units)
    devices = np.flatnonzero(np.isin(units.kind_of_device, chosen))
    if len(devices) == 0:
        return PartitionResult(None, np.inf, "no device of the chosen kinds")
    work = (units.forward_time + units.backward_time)[:, chosen]
    if not np.isfinite(work).all():
        return PartitionResult(None, np.inf, "a unit is not supported on every chosen kind")
    few = units.unit_count < max(FEWEST_UNITS, FEWEST_UNITS_PER_BLOCK * len(devices))
    if few or len(devices) == 1 or not units.tensor_count:
        block = _longest_first(work[:, [chosen.index(k) for k in units.kind_of_device[devices].tolist()]])
    else:
        block = _blocks(units, chosen, work, devices, imbalance, threads, seed)
    device_of_unit = devices[block].astype(np.int32)
    return PartitionResult(device_of_unit, evaluate(units, device_of_unit, objective, communication), "")


def _longest_first(time_on_device: np.ndarray) -> np.ndarray:
    """Heaviest unit first, each to where it would end earliest."""
    load = np.zeros(time_on_device.shape[1])
    block = np.zeros(len(time_on_device), dtype=np.int64)
    for unit in np.argsort(-time_on_device.min(axis=1), kind="stable"):
        block[unit] = np.argmin(load + time_on_device[unit])
        load[block[unit]] += time_on_device[unit, block[unit]]
    return block


def _accelerator_kinds(units: Units) -> list[int]:
    costly = (units.tensor_in.sum(axis=0) + units.tensor_out.sum(axis=0) > 0) & (units.kind_count > 0)
    return np.flatnonzero(costly if costly.any() else units.kind_count > 0).tolist()


def _blocks(
    units: Units, chosen: list[int], work: np.ndarray, devices: np.ndarray, imbalance: float, threads: int, seed: int
) -> np.ndarray:
    import mtkahypar

    total = work.sum(axis=0)
    fastest = int(np.argmin(total))
    vertex = _integers(work[:, fastest])
    price = (units.tensor_in[:, chosen] + units.tensor_out[:, chosen]).max(axis=1, initial=0.0)
    edges = [
        units.tensor_unit[units.tensor_ptr[t] : units.tensor_ptr[t + 1]].tolist() for t in range(units.tensor_count)
    ]
    engine = mtkahypar.initialize(threads, False)
    mtkahypar.set_seed(seed)
    context = engine.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.logging = False
    context.set_partitioning_parameters(len(devices), imbalance, mtkahypar.Objective.KM1)
    position = {kind: i for i, kind in enumerate(chosen)}
    speed = np.array([1.0 / max(total[position[k]], 1e-300) for k in units.kind_of_device[devices].tolist()])
    if speed.max() > speed.min() * (1 + 1e-9):
        share = (1 + imbalance) * vertex.sum() * speed / speed.sum()
        context.set_individual_target_block_weights(np.ceil(share + vertex.max()).astype(int).tolist())
    graph = engine.create_hypergraph(
        context, units.unit_count, len(edges), edges, vertex.tolist(), np.maximum(_integers(price), 1).tolist()
    )
    return np.array(graph.partition(context).get_partition())


def _integers(weight: np.ndarray) -> np.ndarray:
    return np.round(weight * (WEIGHT_STEPS / max(float(weight.max(initial=0.0)), 1e-300))).astype(np.int64)
