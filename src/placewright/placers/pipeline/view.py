"""A problem as the searches for pipelines see it, and their answers as placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import FloatArray
from placewright.placers.pipeline.stage_loads import Stage
from placewright.placers.pipeline.units import Ops
from placewright.problems import Problem, once_per_problem


class PipelineView(NamedTuple):
    """Ops against sorts of devices that can be exchanged for each other.

    ``is_exact``: all copies go through host memory, so that a stage's load depends on the stage alone. With direct
    links the cheapest way in and out is charged instead: loads are then lower bounds, and so is the optimum.
    """

    ops: Ops
    devices: list[list[int]]  # per sort
    sync_s: FloatArray | None  # [ops, sorts]
    is_exact: bool


@once_per_problem
def pipeline_view(problem: Problem) -> PipelineView:
    """Translate a problem; devices are of one sort if they differ in nothing but their names."""
    g, links = problem.graph, problem.links
    sorts = _sorts(problem)
    first = [s[0] for s in sorts]
    time = problem.op_device_time_s[:, first]
    columns_in = [_least_copy(problem, d, inwards=True) for d in first]
    columns_out = [_least_copy(problem, d, inwards=False) for d in first]
    kind = problem.cluster.device_kind[first]
    ops = Ops(
        op_time=np.ascontiguousarray(time),
        memory_bytes=np.ascontiguousarray(problem.memory_bytes, dtype=np.float64),
        is_backward=g.is_backward,
        colocation=problem.group_of_op.astype(np.int64),
        tensor_producer=g.tensor_producer,
        consumer_ptr=g.consumer_ptr,
        consumer_op=g.consumer_op,
        tensor_in=np.stack(columns_in, axis=1),
        tensor_out=np.stack(columns_out, axis=1),
        kind_count=np.array([len(s) for s in sorts], dtype=np.int64),
        kind_memory=np.array([problem.cluster.devices[d].memory_bytes for d in first]),
    )
    sync = None if problem.sync_s is None else problem.sync_s[:, kind]
    return PipelineView(ops, sorts, sync, is_exact=bool((links.direct < 0).all()))


def staffed(
    view: PipelineView, stages: Sequence[Stage], unit_of_op: NDArray[np.int64], n_devices: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Give every stage devices of its sort; return the device of each op and the replicas per device."""
    left = [list(devices) for devices in view.devices]
    device_of_unit = np.zeros(int(unit_of_op.max()) + 1, dtype=np.int32)
    replicas = np.ones(n_devices, dtype=np.int32)
    for stage in stages:
        if len(stage.units):
            lead, *_ = taken = [left[stage.kind].pop(0) for _ in range(stage.replicas)]
            device_of_unit[stage.units] = lead
            replicas[lead] = len(taken)
    return device_of_unit[unit_of_op], replicas


def _sorts(problem: Problem) -> list[list[int]]:
    sorts: dict[tuple[int, bytes], list[int]] = {}
    for i, group in enumerate(problem.cluster.device_groups()):
        for d in group:
            sorts.setdefault((i, problem.allowed[:, d].tobytes()), []).append(d)
    return list(sorts.values())


def _least_copy(problem: Problem, d: int, *, inwards: bool) -> FloatArray:
    """[tensors]: the least that device ``d`` pays for bringing a tensor in or sending it out."""
    links, copy_s = problem.links, problem.tensor_copy_s
    host = (links.from_host if inwards else links.to_host)[d]
    through_host = copy_s[:, host] if host >= 0 else np.zeros(problem.graph.n_tensors)
    others = [e for e in range(problem.n_devices) if e != d]
    direct = [int(links.direct[e, d] if inwards else links.direct[d, e]) for e in others]
    busy_bit = 2 if inwards else 1
    ways = [through_host] if not others or any(link < 0 for link in direct) else []
    ways += [
        copy_s[:, link] if links.busy[link] & busy_bit else np.zeros_like(through_host)
        for link in set(direct)
        if link >= 0
    ]
    return np.asarray(np.min(ways, axis=0))
