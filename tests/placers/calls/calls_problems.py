"""Random small problems with every feature."""

from __future__ import annotations

import numpy as np

from placewright.frontends.workload import workload_cluster
from placewright.graph import build_graph
from placewright.problems import Problem
from placewright.testing import random_problem


def small_problem(seed: int) -> Problem:
    """Up to 8 ops on up to 4 devices; classes, limits, direct links, unsupported and backward ops now and then."""
    rng = np.random.default_rng(seed)
    n_devices = int(rng.integers(1, 5))
    n_ops = int(rng.integers(1, 7 if n_devices == 4 else 9))
    return random_problem(
        seed,
        n_ops,
        n_devices,
        int(rng.integers(1, n_devices + 1)),
        "calls",
        classes=bool(rng.random() < 0.5),
        limits=bool(rng.random() < 0.6),
        direct=bool(rng.random() < 0.3),
        unsupported=bool(rng.random() < 0.3),
        backward=bool(rng.random() < 0.3),
        max_segments=int(rng.integers(1, 5)) if rng.random() < 0.15 else None,
    )


def chain_problem(seed: int, n_ops: int = 7) -> Problem:
    """One op after another, a host device and accelerators for any number of pieces that could be worth while."""
    rng = np.random.default_rng(seed)
    tensors = [(u, 1.0, [u + 1]) for u in range(n_ops - 1)]
    names = [f"op{v}" for v in range(n_ops)]
    graph, _ = build_graph("chain", names, tensors, weight_bytes=rng.uniform(1, 10, n_ops))
    fast = rng.uniform(0.1, 2, n_ops)
    return Problem(
        graph=graph,
        cluster=workload_cluster(4, 1, 22.0, "chain"),
        op_time_s=np.stack([fast, 8 * fast], axis=1),
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=rng.exponential(1.0, (graph.n_tensors, 1)),
        execution="calls",
    )


def short_of_memory(seed: int, n_ops: int = 12) -> Problem:
    """A chain with shortcuts on two accelerators that cannot hold half of it."""
    rng = np.random.default_rng(seed)
    ahead = rng.integers(2, 5, n_ops)
    tensors = [(u, 1.0, sorted({u + 1, min(n_ops - 1, int(u + ahead[u]))})) for u in range(n_ops - 1)]
    graph, _ = build_graph(
        "shortcuts", [f"op{v}" for v in range(n_ops)], tensors, weight_bytes=rng.uniform(1, 6, n_ops)
    )
    fast = rng.uniform(0.1, 2, n_ops)
    return Problem(
        graph=graph,
        cluster=workload_cluster(2, 1, 0.24 * float(graph.weight_bytes.sum()), "short"),
        op_time_s=np.stack([fast, 8 * fast], axis=1),
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=rng.exponential(0.8, (graph.n_tensors, 1)),
        execution="calls",
    )
