"""Random small problems for tests: any shape, several kinds, classes, backward parts, zero costs, memory limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.cluster import Busy, Cluster, Device, DeviceKind, Link
from placewright.graph import OpGraph, build_graph
from placewright.problems import Execution, Problem

_BUSY: tuple[Busy, ...] = ("both", "sender", "receiver", "none")


def random_graph(
    rng: np.random.Generator, n_ops: int, *, classes: bool = False, backward: bool = False, several_outputs: bool = True
) -> OpGraph:
    """A random DAG; some ops have several tensors, some none, some tensors no consumers."""
    density = rng.uniform(0.1, 0.7)
    first_backward = int(rng.integers(n_ops // 2, n_ops + 1)) if backward else n_ops
    tensors: list[tuple[int, float, list[int]]] = []
    for u in range(n_ops):
        count = int(rng.integers(0, 3)) if several_outputs else 1
        for _ in range(count):
            consumers = [v for v in range(u + 1, n_ops) if rng.random() < density * 3 / n_ops]
            if consumers or several_outputs:
                tensors.append((u, float(rng.integers(0, 6)), consumers))
    graph, _ = build_graph(
        "random",
        [f"op{v}" for v in range(n_ops)],
        tensors,
        weight_bytes=rng.integers(0, 5, n_ops).astype(np.float64),
        is_backward=np.arange(n_ops) >= first_backward,
        colocation=rng.integers(-1, max(1, n_ops // 3), n_ops).astype(np.int32) if classes else None,
    )
    return graph


def random_cluster(rng: np.random.Generator, n_devices: int, n_kinds: int, *, direct: bool, limits: bool) -> Cluster:
    """Random devices; links through host memory, direct ones, or both."""
    kinds = tuple(
        DeviceKind(f"kind{k}", is_host=bool(rng.random() < 0.3), segment_overhead_s=float(rng.integers(0, 3)))
        for k in range(n_kinds)
    )
    devices = tuple(
        Device(
            f"device{d}",
            f"kind{rng.integers(0, n_kinds)}",
            float(rng.integers(4, 30)) if limits and rng.random() < 0.7 else np.inf,
            half_duplex=bool(rng.random() < 0.3),
        )
        for d in range(n_devices)
    )
    links = [Link(f"link{i}", busy=_BUSY[rng.integers(0, 4)]) for i in range(3)]

    def pick() -> Link:
        return links[rng.integers(0, 3)]

    pairs = {(a.name, b.name): pick() for a in devices for b in devices if a != b and direct and rng.random() < 0.5}
    return Cluster(
        "random", kinds, devices, {d.name: pick() for d in devices}, {d.name: pick() for d in devices}, pairs or None
    )


def random_problem(
    seed: int,
    n_ops: int,
    n_devices: int,
    n_kinds: int,
    execution: Execution,
    *,
    classes: bool = False,
    backward: bool = False,
    direct: bool = False,
    limits: bool = False,
    unsupported: bool = False,
    **options: Any,
) -> Problem:
    """A random problem; half of them have small whole numbers as costs, so that ties and zeros are common."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_ops, classes=classes, backward=backward)
    cluster = random_cluster(rng, n_devices, n_kinds, direct=direct, limits=limits)
    whole = rng.random() < 0.5

    def costs(*shape: int) -> Any:
        return rng.integers(0, 4, shape).astype(np.float64) if whole else rng.exponential(2.0, shape)

    times = costs(n_ops, n_kinds)
    if unsupported:
        times[rng.random(times.shape) < 0.15] = np.inf
    copies = costs(graph.n_tensors, len(cluster.link_table().links))
    return problem_of(graph, cluster, times, copies, execution, **options)


def problem_of(
    graph: OpGraph, cluster: Cluster, op_time_s: Any, tensor_copy_s: Any, execution: Execution, **options: Any
) -> Problem:
    """The problem of drawn costs, where weights are all that takes memory."""
    return Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=op_time_s,
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=tensor_copy_s,
        execution=execution,
        objective="throughput" if execution == "pipeline" else "latency",
        **options,
    )
