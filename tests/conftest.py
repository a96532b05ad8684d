from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from exported_models import Exports, exported_branches, exported_model
from placewright.frontends.workload import workload_document
from placewright.problems import Problem
from placewright.testing import random_graph
from published import (  # noqa: F401 - a fixture and hooks, which pytest finds by their names
    pytest_collection_modifyitems,
    pytest_sessionfinish,
    pytest_terminal_summary,
    workloads,
)

# The same random problems on every run of continuous integration; new ones on every run by hand.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture
def small_workload() -> dict[str, Any]:
    """A valid problem in the published format: five nodes, one class, one backward node."""
    return {
        "maxSizePerFPGA": 100.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [
            {"id": 1, "name": "in", "supportedOnFpga": 1, "cpuLatency": 0, "fpgaLatency": 0.0, "isBackwardNode": 0},
            {"id": 2, "name": "a", "supportedOnFpga": True, "cpuLatency": 10.0, "fpgaLatency": 1.0,
             "isBackwardNode": False, "colorClass": 7, "size": 60.0},
            {"id": 3, "name": "b", "supportedOnFpga": 1, "cpuLatency": 20.0, "fpgaLatency": 2.0, "isBackwardNode": 0,
             "size": 30.0},
            {"id": 5, "name": "c", "supportedOnFpga": 1, "cpuLatency": 30.0, "fpgaLatency": 3.0, "isBackwardNode": 0,
             "layerId": 4, "size": 20.0},
            {"id": 9, "name": "a grad", "supportedOnFpga": 1, "cpuLatency": 20.0, "fpgaLatency": 2.0,
             "isBackwardNode": 1, "colorClass": 7, "size": 0.0},
        ],
        "edges": [
            {"sourceId": 1, "destId": 2, "cost": 0.5, "size": 8.0},
            {"sourceId": 2, "destId": 3, "cost": 0.25, "size": 4.0},
            {"sourceId": 2, "destId": 5, "cost": 0.25, "size": 4.0},
            {"sourceId": 3, "destId": 5, "cost": 0.125, "size": 2.0},
            {"sourceId": 5, "destId": 9, "cost": 1.0, "size": 16.0},
        ],
    }  # fmt: skip


@pytest.fixture
def write_json(tmp_path: Path) -> Callable[[Any, str], str]:
    """Write a document into the test's folder and return its path."""

    def write(document: Any, name: str = "problem.json") -> str:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


@pytest.fixture(scope="session")
def conv_net(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """A small convolution network in all formats."""
    return exported_model("conv_net", tmp_path_factory.mktemp("conv_net"))


@pytest.fixture(scope="session")
def attention_block(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """One attention block in all formats."""
    return exported_model("attention_block", tmp_path_factory.mktemp("attention_block"))


@pytest.fixture(scope="session")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """A recurrent layer in all formats."""
    return exported_model("lstm", tmp_path_factory.mktemp("lstm"))


@pytest.fixture(scope="session")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """A model with an If in all formats."""
    return exported_branches(tmp_path_factory.mktemp("branches"))


def published_like(seed: int, n_ops: int, **options: Any) -> dict[str, Any]:
    """A random problem in the published format: accelerators and cores around host memory."""
    from placewright.frontends.workload import workload_cluster

    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_ops, several_outputs=False, **options)
    cluster = workload_cluster(int(rng.integers(1, 4)), int(rng.integers(1, 3)), float(rng.integers(15, 60)), "random")
    fpga = rng.integers(0, 4, n_ops).astype(float)
    problem = Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=np.stack([fpga, 10 * fpga + rng.random(n_ops)], axis=1),
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=rng.exponential(1.0, (graph.n_tensors, 1)),
        execution="calls",
        track_activations=False,
        time_unit="",
    )
    return workload_document(problem)
