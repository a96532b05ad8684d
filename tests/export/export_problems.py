"""Placements to export: random ones under every execution model, and one whose names mean harm."""

from __future__ import annotations

import numpy as np

from placewright.graph import build_graph
from placewright.placement import Placement, checked_placement
from placewright.problems import Problem
from placewright.testing import random_problem

HOSTILE = [
    "<script>alert(1)</script>",
    'quote " and \\ backslash',
    "line\nbreak\tand , comma; (semi)",
    "emoji 🚀 and 漢字",
    "x" * 10_000,
    "lone \ud800 surrogate",
    "=1+1",
    "\\N",
]


def random_placement(seed: int, execution: str, n_ops: int = 12) -> Placement:
    """A random placement that need not be valid, or a good contiguous one for pipelines."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, n_ops, 3, 2, execution, direct=seed % 2 == 0)  # type: ignore[arg-type]
    if execution == "pipeline":
        from placewright import place

        found = place(problem, placer="topo", budget=5.0)
        if found.device_of_op is not None:
            return found
    return checked_placement(problem, rng.integers(0, problem.n_devices, problem.n_ops), placer="test")


def hostile_placement() -> Placement:
    """A chain of ops with hostile names, alternating between two devices."""
    from placewright.cluster_file import load_cluster

    n = len(HOSTILE)
    graph, _ = build_graph(
        "<b>model</b>",
        HOSTILE,
        [(i, 1000.0 * (i + 1), [i + 1]) for i in range(n - 1)],
        op_types=["<i>Relu</i>"] * n,
        module_paths=[f"block.{i // 2}" for i in range(n)],
        tensor_names=[f"<u>{i}" for i in range(n - 1)],
    )
    cluster = load_cluster("p100x2")
    problem = Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=np.full((n, len(cluster.kinds)), 1e-3),
        memory_bytes=np.zeros(n),
        tensor_copy_s=np.full((n - 1, len(cluster.link_table().links)), 1e-4),
    )
    return checked_placement(problem, np.arange(n) % 2, placer="test")
