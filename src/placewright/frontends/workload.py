"""The published JSON problems: a graph with its own devices and costs, and splits of it. Read and written.

Values stay in the file's own unit of time. Kinds are called ``fpga`` (whatever the accelerators are) and ``cpu``; all
traffic goes through host memory, where ``cpu`` devices live. A node's cost of moving its output stands on its
outgoing edges.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.cluster import Cluster, DeviceKind, Link, equal_devices
from placewright.documents import Fields
from placewright.errors import CycleError, InputError
from placewright.files import read_json, write_whole
from placewright.graph import build_graph
from placewright.problems import Problem
from placewright.reading import reading

MAX_DEVICES = 1024  # of each kind; a larger number in a file is taken for a mistake
_COST_TOLERANCE = 1e-6


def is_workload(document: Any) -> bool:
    """True if a decoded JSON document looks like a published problem."""
    return isinstance(document, dict) and "nodes" in document and "edges" in document


def read_workload(path: str | Path) -> Problem:
    """Read a published problem; its objective is latency under ``calls`` until it is changed.

    Raises :class:`InputError` with one line that names file, field and what was expected.
    """
    with reading(path, "a published problem") as where:
        return workload_problem(read_json(path), where)


def workload_problem(document: Any, where: str) -> Problem:
    """Build the problem of a decoded document; ``where`` is the file's name in messages."""
    top = Fields(document, where)
    nodes = [_node(f) for f in _entries(top, "nodes")]
    if not nodes:
        raise InputError(f"{where}: 'nodes' is empty, expected at least one node")
    position = _positions(nodes, where)
    names = _names(nodes)
    tensors, costs = _tensors(top, nodes, position, where)
    try:
        graph, order = build_graph(
            name=Path(where).stem,
            op_names=names,
            tensors=tensors,
            weight_bytes=[n["size"] for n in nodes],
            is_backward=[n["backward"] for n in nodes],
            colocation=_classes([n["class"] for n in nodes]),
        )
    except CycleError as error:
        ids = " -> ".join(str(nodes[v]["id"]) for v in (*error.cycle[:12], error.cycle[0]))
        raise InputError(f"{where}: 'edges' form a cycle of node ids: {ids}; expected an acyclic graph") from error
    graph.metadata["ids"] = tuple(nodes[v]["id"] for v in order)
    graph.metadata["layer_ids"] = tuple(nodes[v]["layer"] for v in order)
    cluster = workload_cluster(
        top.count("maxFPGAs", MAX_DEVICES), top.count("maxCPUs", MAX_DEVICES), top.number("maxSizePerFPGA"), where
    )
    times = np.array([[n["fpga"], n["cpu"]] for n in nodes])[order]
    producers = np.array([order[u] for u in graph.tensor_producer], dtype=np.int64)
    copy_s = np.array([costs[u] for u in producers.tolist()], dtype=np.float64)
    return Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=times,
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=copy_s[:, None] if cluster.link_table().links else np.zeros((graph.n_tensors, 0)),
        objective="latency",
        execution="calls",
        track_activations=False,  # a node's size already holds whatever its profile put there
        time_unit="",
    )


def workload_cluster(fpgas: int, cpus: int, fpga_memory_bytes: float, where: str) -> Cluster:
    """The machine of a published problem: equal accelerators and equal cores around host memory."""
    if fpgas + cpus == 0:
        raise InputError(f"{where}: 'maxFPGAs' and 'maxCPUs' are both 0, expected at least one device")
    link = Link("host link")
    accelerators = equal_devices("fpga", fpgas, fpga_memory_bytes)
    return Cluster(
        name=Path(where).stem,
        kinds=(DeviceKind("fpga"), DeviceKind("cpu", is_host=True)),
        devices=(*accelerators, *equal_devices("cpu", cpus)),
        to_host={d.name: link for d in accelerators},
        from_host={d.name: link for d in accelerators},
    )


def write_workload(problem: Problem, path: str | Path) -> None:
    """Write a problem in the published format; raises :class:`InputError` if the format cannot express it."""
    write_whole(path, json.dumps(workload_document(problem), indent=1) + "\n")


def workload_document(problem: Problem) -> dict[str, Any]:
    """The published format of a problem, as plain data."""
    g = problem.graph
    accelerator, host = _expressible_kinds(problem)
    devices = problem.cluster.devices
    ids = op_ids(problem)
    times = problem.op_time_s
    limits = [d.memory_bytes for d in devices if accelerator is not None and d.kind == accelerator]
    document: dict[str, Any] = {
        "maxSizePerFPGA": _finite_limit(limits[0] if limits else 0.0),
        "maxFPGAs": len(limits),
        "maxCPUs": len(devices) - len(limits),
    }
    kinds = [k.name for k in problem.cluster.kinds]
    fpga = times[:, kinds.index(accelerator)] if accelerator is not None else np.full(g.n_ops, np.inf)
    cpu = times[:, kinds.index(host)] if host is not None else np.zeros(g.n_ops)
    is_grouped = _is_grouped(problem)
    layers = g.metadata.get("layer_ids", (None,) * g.n_ops)
    document["nodes"] = [
        {
            "id": ids[v],
            "name": g.op_names[v],
            "supportedOnFpga": bool(np.isfinite(fpga[v])),
            "cpuLatency": float(cpu[v]),
            "fpgaLatency": float(fpga[v]) if np.isfinite(fpga[v]) else 0.0,
            "isBackwardNode": bool(g.is_backward[v]),
            **({"colorClass": int(problem.group_of_op[v])} if is_grouped[v] else {}),
            **({"layerId": layers[v]} if layers[v] is not None else {}),
            "size": float(problem.memory_bytes[v]),
        }
        for v in range(g.n_ops)
    ]
    copy_s = problem.tensor_copy_s[:, 0] if problem.tensor_copy_s.shape[1] else np.zeros(g.n_tensors)
    document["edges"] = [
        {"sourceId": ids[u], "destId": ids[v], "cost": float(copy_s[t]), "size": float(g.tensor_bytes[t])}
        for t, u, v in zip(g.edge_tensor.tolist(), g.edge_producer.tolist(), g.consumer_op.tolist(), strict=True)
    ]
    return document


def op_ids(problem: Problem) -> tuple[int, ...]:
    """Node ids of the file the problem came from, op numbers if it came from elsewhere."""
    ids = problem.graph.metadata.get("ids")
    return tuple(ids) if ids is not None else tuple(range(problem.n_ops))


def _entries(top: Fields, name: str) -> Iterator[Fields]:
    for i, entry in enumerate(top.list_of(name)):
        yield Fields(entry, f"{top.where}: {name}[{i}]")


def _node(f: Fields) -> dict[str, Any]:
    for refused in ("containedSubnodes", "containedNodes"):
        if refused in f.data:
            raise InputError(f"{f.where}: '{refused}' is not supported, expected plain nodes")
    identity = f.integer("id")
    f = Fields(f.data, f"{f.where} (id {identity})")
    supported = f.flag("supportedOnFpga", default=True)
    return {
        "id": identity,
        "name": f.text("name", default=""),
        "fpga": f.number("fpgaLatency", default=None if supported else 0.0) if supported else math.inf,
        "cpu": f.number("cpuLatency"),
        "backward": f.flag("isBackwardNode", default=False),
        "class": f.integer("colorClass", default=None),
        "layer": f.integer("layerId", default=None),
        "size": f.number("size", default=0.0),
    }


def _positions(nodes: list[dict[str, Any]], where: str) -> dict[int, int]:
    position: dict[int, int] = {}
    for i, node in enumerate(nodes):
        if node["id"] in position:
            raise InputError(
                f"{where}: nodes[{position[node['id']]}] and nodes[{i}] have the same 'id' {node['id']}, "
                "expected unique ids"
            )
        position[node["id"]] = i
    return position


def _names(nodes: list[dict[str, Any]]) -> list[str]:
    names = [n["name"] for n in nodes]
    if all(names) and len(set(names)) == len(names):
        return names
    return [f"{n['name'] or 'node'}#{n['id']}" for n in nodes]


def _tensors(
    top: Fields, nodes: list[dict[str, Any]], position: dict[int, int], where: str
) -> tuple[list[tuple[int, float, list[int]]], dict[int, float]]:
    """One tensor per node with outgoing edges: (producer, bytes, consumers), and each producer's cost."""
    consumers: dict[int, list[int]] = {}
    costs: dict[int, float] = {}
    sizes: dict[int, float] = {}
    for f in _entries(top, "edges"):
        ends = [f.integer("sourceId"), f.integer("destId")]
        for name, end in zip(("sourceId", "destId"), ends, strict=True):
            if end not in position:
                raise InputError(f"{f.where}: '{name}' is {end}, expected the id of a node")
        u, v = position[ends[0]], position[ends[1]]
        cost, size = f.number("cost"), f.number("size", default=0.0)
        if nodes[u]["backward"] and not nodes[v]["backward"]:
            raise InputError(
                f"{f.where}: goes from backward node {ends[0]} to forward node {ends[1]}, expected no such edge"
            )
        if abs(costs.setdefault(u, cost) - cost) > _COST_TOLERANCE:
            raise InputError(
                f"{f.where}: 'cost' is {cost:g}, but another edge out of node {ends[0]} has {costs[u]:g}; "
                "expected equal costs on all edges out of a node"
            )
        consumers.setdefault(u, []).append(v)
        sizes[u] = max(sizes.get(u, 0.0), size)
    return [(u, sizes[u], consumers[u]) for u in sorted(consumers)], costs


def _classes(classes: list[int | None]) -> list[int]:
    number: dict[int, int] = {}
    return [-1 if c is None else number.setdefault(c, len(number)) for c in classes]


def _is_grouped(problem: Problem) -> NDArray[np.bool_]:
    counts = np.bincount(problem.group_of_op, minlength=problem.n_ops)
    return counts[problem.group_of_op] > 1


def _expressible_kinds(problem: Problem) -> tuple[str | None, str | None]:
    """The accelerator kind and the host kind; raises unless the published format can hold the problem."""
    used = [k for k in problem.cluster.kinds if any(d.kind == k.name for d in problem.cluster.devices)]
    accelerators = [k.name for k in used if not k.is_host]
    hosts = [k.name for k in used if k.is_host]
    limits = {d.memory_bytes for d in problem.cluster.devices if d.kind in accelerators}
    limited_hosts = any(math.isfinite(d.memory_bytes) for d in problem.cluster.devices if d.kind in hosts)
    tensors_per_op = np.diff(problem.graph.tensor_ptr)
    unsupported_on_host = hosts and not np.isfinite(problem.op_time_s[:, [k.name for k in used].index(hosts[0])]).all()
    obstacles = {
        "more than one kind of accelerator": len(accelerators) > 1,
        "more than one kind of host device": len(hosts) > 1,
        "accelerators with different memory limits": len(limits) > 1,
        "memory limits on host devices": limited_hosts,
        "operators that no host device supports": bool(unsupported_on_host),
        "direct links": bool(problem.cluster.direct),
        "links of different cost": problem.tensor_copy_s.shape[1] > 1,
        "operators with several outputs": bool((tensors_per_op > 1).any()),
        "results without consumers": bool((np.diff(problem.graph.consumer_ptr) == 0).any()),
        "pin or forbid rules": any(r.action != "together" for r in problem.rules),
    }
    found = [what for what, there in obstacles.items() if there]
    if found:
        raise InputError(f"the published format cannot express {', '.join(found)}")
    return accelerators[0] if accelerators else None, hosts[0] if hosts else None


def _finite_limit(limit_bytes: float) -> float:
    return limit_bytes if math.isfinite(limit_bytes) else 1e30
