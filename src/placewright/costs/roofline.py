"""Modelled costs.

An op takes as long as its arithmetic or its memory traffic, whichever is longer, plus a fixed overhead; each sort of
work reaches its own fraction of the device's peak rates. Ops that do no work at run time cost nothing.
"""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, DeviceKind, Efficiency
from placewright.errors import InputError
from placewright.graph import BoolArray, FloatArray, OpGraph, sums_by_index
from placewright.profiles import Profile, modelled_profile
from placewright.text import shown


def roofline_profile(graph: OpGraph, cluster: Cluster) -> Profile:
    """Return modelled times of every op on every kind of the cluster; infinite where the kind does not support it."""
    for kind in cluster.kinds:
        if not (kind.flops_per_s > 0 and kind.memory_bandwidth_bytes_per_s > 0):
            raise InputError(
                f"cluster '{shown(cluster.name)}': kind '{shown(kind.name)}' has no 'flops' and 'memory_bandwidth', "
                "which modelled costs need"
            )
    times = np.stack([roofline_time_s(graph, kind) for kind in cluster.kinds], axis=1)
    return modelled_profile(graph.op_names, tuple(k.name for k in cluster.kinds), times, "roofline model")


def roofline_time_s(graph: OpGraph, kind: DeviceKind) -> FloatArray:
    """Return [ops] modelled seconds on one kind of device."""
    rates = [kind.efficiency.get(c, kind.efficiency.get("default", Efficiency())) for c in graph.op_classes]
    fraction = np.array(rates, dtype=np.float64)
    arithmetic_s = graph.flops / (kind.flops_per_s * fraction[:, 0])
    traffic_s = traffic_bytes(graph) / (kind.memory_bandwidth_bytes_per_s * fraction[:, 1])
    work_s = np.maximum(arithmetic_s, traffic_s)
    is_free = np.array([c == "free" for c in graph.op_classes])
    times = np.where((work_s > 0) & ~is_free, work_s + kind.op_overhead_s, 0.0)
    return np.where(supported_ops(graph, kind), times, np.inf)


def supported_ops(graph: OpGraph, kind: DeviceKind) -> BoolArray:
    """Return [ops]: this kind of device can run the op."""
    sorts = list(zip(graph.op_classes, graph.op_types, strict=True))
    answer = {sort: kind.supports(*sort) for sort in set(sorts)}
    return np.array([answer[sort] for sort in sorts], dtype=np.bool_)


def traffic_bytes(graph: OpGraph) -> FloatArray:
    """Bytes each op reads and writes: its weights, its inputs and its outputs; of a table only the rows looked up."""
    read = sums_by_index(graph.consumer_op, graph.tensor_bytes[graph.edge_tensor], graph.n_ops)
    written = sums_by_index(graph.tensor_producer, graph.tensor_bytes, graph.n_ops)
    is_lookup = np.array([c == "embedding" for c in graph.op_classes])
    weights = np.where(is_lookup, np.minimum(graph.weight_bytes, written), graph.weight_bytes)
    return weights + read + written
