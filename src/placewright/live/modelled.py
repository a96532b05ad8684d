"""Costs without running anything: a roofline of every unit, and a fixed time per operator for the interpreter.

Rates are those of the preset ``h200-xeon``; what a model on ``meta`` would take on another machine only a measurement
tells.
"""

from __future__ import annotations

from typing import Any

import torch

from placewright.cluster import DeviceKind
from placewright.cluster_file import load_cluster
from placewright.graph import OpGraph
from placewright.live import METADATA
from placewright.live.dispatch import DISK, compute_device
from placewright.live.live_problem import CostTable, Place, disk_costs
from placewright.live.measure import Costs
from placewright.live.module_graph import INPUT, OUTPUT, LiveModel
from placewright.live.workload import Workload
from placewright.profiles import CopyCurve

OPERATOR_S = {"cuda": 15e-6, "cpu": 8e-6}  # calling one operator from Python, its launch included
COPY_S = {"in": 15e-6, "out": 40e-6}  # a copy to a GPU; one from it, with the wait for what runs there
TENSOR_CORES = 8.0  # half precision against single precision
FLOPS_SHARE, BANDWIDTH_SHARE = 0.5, 0.6
DISK_BYTES_PER_S = 1e9


def modelled_table(graphs: list[OpGraph], workloads: list[Workload], places: list[Place], dtype: Any) -> CostTable:
    """Modelled seconds of every unit and home on every place, and of copies."""
    cluster = load_cluster("h200-xeon")
    kinds = {"cuda": cluster.kinds[0], "cpu": cluster.kinds[1]}
    bandwidth = cluster.to_host["gpu0"].bandwidth_bytes_per_s or 1.0
    costs: dict[tuple[str, str], Costs] = {}
    copies, rates = {}, {}
    for place in sorted(places, key=lambda p: p.name == DISK):
        sort = "cpu" if place.is_host else "cuda"
        for graph, work in zip(graphs, workloads, strict=True):
            live: LiveModel = graph.metadata[METADATA]
            if place.name == DISK:
                costs[work.phase, DISK] = disk_costs(costs[work.phase, "cpu"], live, DISK_BYTES_PER_S)
            else:
                costs[work.phase, place.name] = _roofline(graph, live, kinds[sort], OPERATOR_S[sort], dtype)
        if not place.is_host:
            sizes = (4096.0, 2.0**26)
            copies[compute_device(place.name)] = {
                way: CopyCurve(sizes, tuple(latency_s + size / bandwidth for size in sizes))
                for way, latency_s in COPY_S.items()
            }
            rates[place.name] = bandwidth
    return CostTable(costs, copies, rates)


def _roofline(graph: OpGraph, live: LiveModel, kind: DeviceKind, operator_s: float, dtype: Any) -> Costs:
    faster = TENSOR_CORES if dtype in (torch.bfloat16, torch.float16) else 1.0
    costs = Costs()
    for name, path, flops in zip(graph.op_names, graph.module_paths, graph.flops.tolist(), strict=True):
        if name in (INPUT, OUTPUT):
            continue
        node = live.nodes[name]
        read = active_bytes(live, path, node.index_numel)
        stacked = live.stacked.get(path, 0)
        if stacked and flops < read:  # a kernel for stacked weights that counts no work
            flops = 2.0 * node.index_numel * live.weight_bytes.get(path, 0.0) / stacked / dtype.itemsize
        arithmetic_s = flops / (kind.flops_per_s * faster * FLOPS_SHARE)
        traffic_s = read / (kind.memory_bandwidth_bytes_per_s * BANDWIDTH_SHARE)
        seconds = max(arithmetic_s, traffic_s) + node.n_operators * operator_s
        costs.time_s[path] = costs.time_s.get(path, 0.0) + seconds
    return costs


def active_bytes(live: LiveModel, path: str, index_numel: int) -> float:
    """Bytes of weights that one call reads: of tables and stacked weights only what the indices name."""
    weights = live.weight_bytes.get(path, 0.0)
    rows = live.stacked.get(path, 0) or live.table_rows.get(path, 0)
    return weights * min(1.0, index_numel / rows) if rows else weights
