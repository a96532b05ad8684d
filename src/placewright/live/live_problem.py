"""A live model as a :class:`Problem`: units and own code, measured or modelled seconds, memory with its margin."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placewright.cluster import Cluster, Device, DeviceKind, Link
from placewright.graph import FloatArray, OpGraph
from placewright.live import METADATA
from placewright.live.dispatch import compute_device
from placewright.live.measure import Costs
from placewright.live.module_graph import INPUT, OUTPUT, LiveModel
from placewright.problems import Problem, Rule
from placewright.profiles import CopyCurve

MARGIN = 0.02  # of a device's memory, kept free
LIBRARY_BYTES = 40 * 2**20  # what CUDA libraries take for themselves, where it was not measured


@dataclass(frozen=True)
class Place:
    """A device of the placement. ``memory_bytes`` is what may be used, of it ``reserved_bytes`` for working memory."""

    name: str
    memory_bytes: float = math.inf
    reserved_bytes: float = 0.0
    window_bytes: float = 0.0  # where streamed weights arrive

    @property
    def is_host(self) -> bool:
        return compute_device(self.name) == "cpu"

    @property
    def room_bytes(self) -> float:
        return max(0.0, self.memory_bytes - self.reserved_bytes - self.window_bytes)


@dataclass(frozen=True)
class CostTable:
    """All that was measured or modelled: seconds per workload and place, and copies to and from host memory."""

    costs: dict[tuple[str, str], Costs]  # (phase, place)
    copies: dict[str, dict[str, CopyCurve]] = field(default_factory=dict)  # by compute device: "in", "out"
    streaming_bytes_per_s: dict[str, float] = field(default_factory=dict)  # by GPU, from pinned host memory
    scales: dict[str, float] = field(default_factory=dict)  # by place, and "copies": what calibration found


def live_problem(
    graphs: list[OpGraph], counts: dict[str, float], places: list[Place], table: CostTable, caller: str
) -> Problem:
    """Join everything. The objective is seconds of all phases, each as often as it counts."""
    graph = graphs[0]
    live: LiveModel = graph.metadata[METADATA]
    cluster = _cluster(places, table)
    times = np.zeros((graph.n_ops, len(places)))
    share = _shares(graph, live)
    for column, place in enumerate(places):
        scale = table.scales.get(place.name, 1.0)
        for v, (name, path) in enumerate(zip(graph.op_names, graph.module_paths, strict=True)):
            if name in (INPUT, OUTPUT):
                continue
            for phase, count in counts.items():
                seconds = table.costs[phase, place.name].time_s.get(path, math.inf)
                times[v, column] += count * seconds * share[v] * scale
    memory = graph.weight_bytes.copy()
    seen: set[str] = set()
    for v, path in enumerate(graph.module_paths):
        if path in live.cache_bytes and path not in seen:
            seen.add(path)
            memory[v] += live.cache_bytes[path]
    links = cluster.link_table().links
    copies = np.zeros((graph.n_tensors, len(links)))
    curves = {link.name: _curve(link.name, table) for link in links}
    for phase_graph, count in zip(graphs, counts.values(), strict=True):
        sizes = _sizes_like(graph, phase_graph)
        for column, link in enumerate(links):
            curve = curves[link.name]
            if curve is not None:
                copies[:, column] += count * curve.copy_s(sizes) * table.scales.get("copies", 1.0)
    return Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=times,
        memory_bytes=memory,
        tensor_copy_s=copies,
        execution="sequential",
        track_activations=False,
        rules=(Rule("pin", r"^\(caller's ", caller),),
    )


def _cluster(places: list[Place], table: CostTable) -> Cluster:
    kinds = tuple(DeviceKind(p.name, is_host=p.is_host, runtime_device=compute_device(p.name)) for p in places)
    devices = tuple(Device(p.name, p.name, p.room_bytes) for p in places)
    to_host, from_host, direct = {}, {}, {}
    for place in places:
        device = compute_device(place.name)
        if not place.is_host:
            to_host[place.name] = _link(f"{device} to host", table.copies[device]["out"])
            from_host[place.name] = _link(f"host to {device}", table.copies[device]["in"])
        for other in places:
            if other is not place and compute_device(other.name) == device:
                direct[place.name, other.name] = Link("same device", math.inf)
    return Cluster("live", kinds, devices, to_host, from_host, direct)


def _link(name: str, curve: CopyCurve) -> Link:
    latency_s, bandwidth = curve.fit()
    return Link(name, bandwidth, latency_s)


def _curve(link: str, table: CostTable) -> CopyCurve | None:
    for device, curves in table.copies.items():
        if link == f"{device} to host":
            return curves["out"]
        if link == f"host to {device}":
            return curves["in"]
    return None


def _shares(graph: OpGraph, live: LiveModel) -> list[float]:
    """Which part of its unit's or home's time an op takes, by its number of operators."""
    totals: dict[str, float] = defaultdict(float)
    for name, path in zip(graph.op_names, graph.module_paths, strict=True):
        totals[path] += live.nodes[name].n_operators if name not in (INPUT, OUTPUT) else 0
    return [
        live.nodes[name].n_operators / totals[path] if totals[path] else 0.0
        for name, path in zip(graph.op_names, graph.module_paths, strict=True)
    ]


def _sizes_like(graph: OpGraph, other: OpGraph) -> FloatArray:
    """Sizes of another phase's tensors for the tensors of this graph; one without counterpart grows like the rest."""
    if graph is other:
        return graph.tensor_bytes
    known: dict[Any, list[float]] = defaultdict(list)
    for key, size in zip(_tensor_keys(other), other.tensor_bytes.tolist(), strict=True):
        known[key].append(size)
    growth = float(other.tensor_bytes.sum() / max(1.0, graph.tensor_bytes.sum()))
    sizes = []
    for key, size in zip(_tensor_keys(graph), graph.tensor_bytes.tolist(), strict=True):
        sizes.append(known[key].pop(0) if known[key] else size * growth)
    return np.array(sizes)


def _tensor_keys(graph: OpGraph) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (
            graph.op_names[u],
            tuple(graph.op_names[v] for v in graph.consumer_op[graph.consumer_ptr[t] : graph.consumer_ptr[t + 1]]),
        )
        for t, u in enumerate(graph.tensor_producer.tolist())
    ]


def streamed_costs(costs: Costs, live: LiveModel, bytes_per_s: float) -> Costs:
    """Costs where weights come from host memory at every forward: their copy, or the compute it hides behind."""
    time_s = {}
    for path in live.units.paths:
        if path in costs.time_s and live.weight_bytes.get(path, 0.0) >= 2**20:
            time_s[path] = max(costs.time_s[path], live.weight_bytes[path] / bytes_per_s)
    return Costs(time_s)


def disk_costs(costs: Costs, live: LiveModel, bytes_per_s: float) -> Costs:
    """Costs where weights are read from a mapped file: units only, each as long as reading it takes, plus compute."""
    units = live.units.paths
    return Costs({p: costs.time_s[p] + live.weight_bytes.get(p, 0.0) / bytes_per_s for p in units if p in costs.time_s})
