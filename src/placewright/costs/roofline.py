"""Modelled costs.

An op takes as long as its arithmetic or its memory traffic, whichever is longer, plus a fixed overhead.
"""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster
from placewright.errors import InputError
from placewright.graph import FloatArray, OpGraph
from placewright.profile import Profile, modelled_profile
from placewright.text import shown


def roofline_profile(graph: OpGraph, cluster: Cluster) -> Profile:
    """Return modelled times of every op on every kind of the cluster."""
    traffic = traffic_bytes(graph)
    columns = []
    for kind in cluster.kinds:
        if not (kind.flops_per_s > 0 and kind.memory_bandwidth_bytes_per_s > 0):
            raise InputError(
                f"cluster '{shown(cluster.name)}': kind '{shown(kind.name)}' has no 'flops' and 'memory_bandwidth', "
                "which modelled costs need"
            )
        work = np.maximum(graph.flops / kind.flops_per_s, traffic / kind.memory_bandwidth_bytes_per_s)
        columns.append(np.where(work > 0, work + kind.op_overhead_s, 0.0))
    times = np.stack(columns, axis=1)
    return modelled_profile(graph.op_names, tuple(k.name for k in cluster.kinds), times, "roofline model")


def traffic_bytes(graph: OpGraph) -> FloatArray:
    """Bytes each op reads and writes: its weights, its inputs and its outputs."""
    read = np.bincount(graph.consumer_op, graph.tensor_bytes[graph.edge_tensor], graph.n_ops)
    written = np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.n_ops)
    return graph.weight_bytes + read + written
