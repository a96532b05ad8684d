"""A placement carried over to a live model: devices, stages and planned starts by the runtime's own op names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placewright.errors import InputError
from placewright.evaluate import timeline
from placewright.execute.live import Executor, LiveModel, devices_by_name
from placewright.graph import OpGraph
from placewright.placement import Placement
from placewright.transfer import transfer_placement


def start_placement(live: LiveModel, placement: Placement) -> Executor:
    """The model compiled on the placement's devices, every device's work in the planned order."""
    return live.start(live_devices(live, placement), placement.problem.cluster, planned_starts(placement, live.graph))


def live_devices(live: LiveModel, placement: Placement) -> dict[str, str]:
    """The device of every op of the live model."""
    moved = transfer_placement(placement, placement.problem.graph, live.graph)
    return devices_by_name(live.graph, moved.device_of_op.tolist(), placement.problem.cluster)


def live_stages(live: LiveModel, placement: Placement) -> tuple[dict[str, str], dict[str, int]]:
    """Device and stage of the live model's ops; an op that would come before what it reads moves to the later stage."""
    if placement.stage is None or placement.device_of_op is None:
        raise InputError("only a contiguous pipeline can be run as stages; place without --no-contiguous")
    graph = live.graph
    stage = transfer_placement(placement.stage, placement.problem.graph, graph).device_of_op.copy()
    for v in range(graph.n_ops):
        for t in graph.input_tensor[graph.input_ptr[v] : graph.input_ptr[v + 1]]:
            stage[v] = max(stage[v], stage[graph.tensor_producer[t]])
    by_stage = dict(zip(placement.stage.tolist(), placement.device_of_op.tolist(), strict=True))
    names = placement.problem.cluster.device_names
    devices = {name: names[by_stage[s]] for name, s in zip(graph.op_names, stage.tolist(), strict=True)}
    numbers = np.unique(stage, return_inverse=True)[1].tolist()
    return devices, dict(zip(graph.op_names, numbers, strict=True))


def planned_starts(placement: Placement, graph: OpGraph) -> Mapping[str, float] | None:
    """When each op of the runtime's graph is planned to start, by name or by module path.

    Ops that must share a device run as one, so the first of them says when.
    """
    problem = placement.problem
    if problem.execution != "overlap" or placement.device_of_op is None:
        return None
    group_start = np.full(problem.n_ops, np.inf)
    for span in timeline(problem, placement.device_of_op, placement.priority):
        if span.op >= 0:
            group = problem.group_of_op[span.op]
            group_start[group] = min(group_start[group], span.start_s)
    starts = group_start[problem.group_of_op].tolist()
    start = dict(zip(problem.graph.op_names, starts, strict=True))
    by_path = dict(zip(problem.graph.module_paths, starts, strict=True))
    known = {n: start.get(n, by_path.get(p, np.inf)) for n, p in zip(graph.op_names, graph.module_paths, strict=True)}
    return {n: s for n, s in known.items() if np.isfinite(s)}
