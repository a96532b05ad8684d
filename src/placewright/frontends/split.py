"""Splits in the published format (``{"fpgas": [...], "cpus": [...]}``): what goes to which device, by node id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.cluster import Cluster, Device
from placewright.documents import Fields
from placewright.errors import InputError
from placewright.evaluate.checking import Fault
from placewright.files import write_whole
from placewright.frontends.workload import MAX_DEVICES, op_ids
from placewright.problems import Problem
from placewright.text import shown, shown_list


class Split(NamedTuple):
    """A split matched to a problem.

    ``problem`` is the one asked about, or a wider one if the split uses more devices than there are; then ``faults``
    says so.
    """

    problem: Problem
    device_of_op: NDArray[np.int32]
    faults: tuple[Fault, ...]


def is_split(document: Any) -> bool:
    """True if a decoded JSON document looks like a split."""
    return isinstance(document, dict) and "fpgas" in document and "cpus" in document


def match_split(document: Any, problem: Problem, where: str) -> Split:
    """Match a decoded split to a problem by node ids (op numbers for problems from elsewhere).

    A node that is not listed follows its colocation class; that class must lie on one device.
    """
    top = Fields(document, where)
    accelerators = [d for d, host in zip(problem.cluster.devices, problem.cluster.is_host, strict=True) if not host]
    hosts = [d for d, host in zip(problem.cluster.devices, problem.cluster.is_host, strict=True) if host]
    stage_lists = {"fpgas": _stages(top, "fpgas"), "cpus": _stages(top, "cpus")}
    problem, faults = _widened(problem, accelerators, hosts, stage_lists, where)
    position = {i: v for v, i in enumerate(op_ids(problem))}
    device = np.full(problem.n_ops, -1, dtype=np.int32)
    host_flags = problem.cluster.is_host
    for name, indices in (("fpgas", np.flatnonzero(~host_flags)), ("cpus", np.flatnonzero(host_flags))):
        for d, ids in zip(indices.tolist(), _compact(stage_lists[name], len(indices)), strict=False):
            unknown = [i for i in ids if i not in position]
            if unknown:
                raise InputError(
                    f"{where}: '{name}' names nodes that the problem does not have: "
                    + shown_list([str(i) for i in unknown])
                )
            for i in ids:
                if device[position[i]] not in (-1, d):
                    raise InputError(f"{where}: node {i} is on two devices, expected one")
                device[position[i]] = d
    return Split(problem, _follow_classes(problem, device, where), faults)


def split_document(problem: Problem, device_of_op: NDArray[np.int32]) -> dict[str, Any]:
    """A placement in the published split format, as plain data."""
    from placewright.evaluate import evaluate

    ids, evaluation = op_ids(problem), evaluate(problem, device_of_op)
    document: dict[str, Any] = {"fpgas": [], "cpus": []}
    for d, host in enumerate(problem.cluster.is_host.tolist()):
        nodes = sorted(ids[v] for v in np.flatnonzero(device_of_op == d).tolist())
        document["cpus" if host else "fpgas"].append({"load": float(evaluation.load[d]), "nodes": nodes})
    document["maxLoad" if problem.objective == "throughput" else "totalLatency"] = evaluation.value
    return document


def write_split(problem: Problem, device_of_op: NDArray[np.int32], path: str | Path) -> None:
    """Write a placement as a split that other programs for the published problems read."""
    write_whole(path, json.dumps(split_document(problem, device_of_op), indent=1) + "\n")


def _stages(top: Fields, name: str) -> list[list[int]]:
    stages = []
    for i, entry in enumerate(top.list_of(name)):
        f = Fields(entry, f"{top.where}: {name}[{i}]")
        nodes = f.list_of("nodes")
        stages.append([Fields({"node": n}, f"{f.where}: nodes[{k}]").integer("node") for k, n in enumerate(nodes)])
    return stages


def _compact(stages: list[list[int]], room: int) -> list[list[int]]:
    """Keep the order of devices; drop empty ones only where there would be too many."""
    return stages if len(stages) <= room else [s for s in stages if s]


def _widened(
    problem: Problem, accelerators: list[Device], hosts: list[Device], stages: dict[str, list[list[int]]], where: str
) -> tuple[Problem, tuple[Fault, ...]]:
    devices, faults = list(problem.cluster.devices), []
    for name, present in (("fpgas", accelerators), ("cpus", hosts)):
        used, limit = len([s for s in stages[name] if s]), len(present)
        if used <= limit:
            continue
        if not present:
            raise InputError(f"{where}: '{name}' lists nodes, but the problem has no such device")
        if used > MAX_DEVICES:
            raise InputError(f"{where}: '{name}' uses {used} devices, expected at most {MAX_DEVICES}")
        taken = {d.name for d in devices}
        fresh = (n for n in (f"{present[0].kind}{i}" for i in range(len(devices) + used)) if n not in taken)
        devices += [Device(next(fresh), present[0].kind, present[0].memory_bytes) for _ in range(used - limit)]
        what = "accelerators" if name == "fpgas" else "cores"
        text = f"the split uses {used} {what}, the problem allows {limit}"
        faults.append(Fault("device-count", text, limit=float(limit), value=float(used)))
    if not faults:
        return problem, ()
    if problem.cluster.direct:
        raise InputError(f"{where}: {faults[0].message}")
    return problem.with_options(cluster=_with_devices(problem.cluster, devices)), tuple(faults)


def _with_devices(cluster: Cluster, devices: list[Device]) -> Cluster:
    def links(of: Any) -> dict[str, Any]:
        by_kind = {d.kind: of[d.name] for d in cluster.devices if d.name in of}
        return {d.name: by_kind[d.kind] for d in devices if d.kind in by_kind}

    return Cluster(cluster.name, cluster.kinds, tuple(devices), links(cluster.to_host), links(cluster.from_host))


def _follow_classes(problem: Problem, device: NDArray[np.int32], where: str) -> NDArray[np.int32]:
    ids = op_ids(problem)
    of_class: dict[int, set[int]] = {}
    for v in np.flatnonzero(device >= 0).tolist():
        of_class.setdefault(int(problem.group_of_op[v]), set()).add(int(device[v]))
    for v in np.flatnonzero(device < 0).tolist():
        candidates = of_class.get(int(problem.group_of_op[v]), set())
        if len(candidates) != 1:
            name = f"node {ids[v]} ('{shown(problem.graph.op_names[v])}')"
            reason = "its class is nowhere either" if not candidates else "its class is on several devices"
            raise InputError(f"{where}: {name} is missing and {reason}; expected every node or one of its class")
        device[v] = candidates.pop()
    return device
