"""Published problems and splits: fields, quirks, writing back, and the published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import published_like
from placewright.api import load
from placewright.errors import InputError
from placewright.evaluate import evaluate
from placewright.frontends.split import match_split, write_split
from placewright.frontends.workload import read_workload, workload_document, workload_problem, write_workload
from placewright.placement import read_placement

EXPERT_THROUGHPUT = [
    ("layer_bert24_inference", "bert24_inference_expert", 20.084),
    ("layer_bert24_training", "bert24_training_expert", 49.4049),
    ("layer_gnmt_inference", "gnmt_inference_expert", 46.2085),
    ("layer_inceptionv3_inference", "inceptionv3_inference_expert", 102.482),
    ("layer_resnet50_inference", "resnet50_inference_expert", 43.9183),
    ("layer_resnet50_training", "resnet50_inference_expert", 112.108),
]
EXPERT_LATENCY = [
    ("layer_bert24_inference", "bert24_inference_expert", 111.937),
    ("layer_gnmt_inference", "gnmt_inference_expert", 293.403),
    ("layer_resnet50_inference", "resnet50_inference_expert", 1014.927),
]
ALL_ON_CPU = [
    ("layer_bert24_inference", 924.06),
    ("layer_gnmt_inference", 1824.35),
    ("layer_resnet50_inference", 1874.55),
    ("op_bert_l-3_inference", 1099.934),
    ("op_bert_l-6_inference", 1724.791),
    ("op_resnet50_inference", 6666.672),
]


@pytest.mark.parametrize(("name", "split", "value"), EXPERT_THROUGHPUT)
def test_expert_throughput(workloads: Path, name: str, split: str, value: float) -> None:
    problem = load(workloads / "throughput" / f"{name}.json", objective="throughput")
    placement = read_placement(workloads / "experts" / f"{split}.json", problem)
    assert placement.value == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize(("name", "split", "value"), EXPERT_LATENCY)
def test_expert_latency(workloads: Path, name: str, split: str, value: float) -> None:
    problem = load(workloads / "latency" / f"{name}.json", objective="latency")
    assert problem.execution == "calls"
    placement = read_placement(workloads / "experts" / f"{split}.json", problem)
    assert placement.value == pytest.approx(value, rel=1e-4)
    assert {f.code for f in placement.faults} <= {"memory", "device-count"}
    assert placement.faults


@pytest.mark.parametrize(("name", "value"), ALL_ON_CPU)
def test_everything_on_the_cpu(workloads: Path, name: str, value: float) -> None:
    problem = load(workloads / "latency" / f"{name}.json")
    cpu = problem.cluster.device_names.index("cpu0")
    row = np.full(problem.n_ops, cpu, dtype=np.int32)
    assert evaluate(problem, row).value == pytest.approx(value, rel=1e-4)


def test_every_published_file_survives_a_round_trip(workloads: Path, tmp_path: Path) -> None:
    files = sorted([*workloads.glob("throughput/*.json"), *workloads.glob("latency/*.json")])
    assert len(files) >= 18
    for path in files:
        problem = read_workload(path)
        write_workload(problem, tmp_path / "again.json")
        assert_same(problem, read_workload(tmp_path / "again.json"))


def assert_same(a: Any, b: Any) -> None:
    assert a.graph.op_names == b.graph.op_names
    assert a.cluster.device_names == b.cluster.device_names
    for field in ("op_time_s", "memory_bytes", "tensor_copy_s", "group_of_op"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
    for field in ("tensor_producer", "tensor_bytes", "consumer_ptr", "consumer_op", "is_backward"):
        np.testing.assert_array_equal(getattr(a.graph, field), getattr(b.graph, field))


@pytest.mark.parametrize("seed", range(20))
def test_generated_problems_survive_a_round_trip(seed: int) -> None:
    document = published_like(seed, 12, classes=seed % 2 == 0, backward=seed % 3 == 0)
    problem = workload_problem(json.loads(json.dumps(document)), "x")
    assert_same(problem, workload_problem(workload_document(problem), "x"))


def test_fields_and_quirks(small_workload: dict[str, Any]) -> None:
    problem = workload_problem(small_workload, "small.json")
    assert problem.graph.op_names == ("in", "a", "b", "c", "a grad")
    assert problem.cluster.device_names == ("fpga0", "fpga1", "cpu0")
    assert problem.memory_bytes.tolist() == [0, 60, 30, 20, 0]  # a missing size is zero
    assert problem.graph.is_backward.tolist() == [False, False, False, False, True]
    assert problem.group_of_op.tolist() == [0, 1, 2, 3, 1]
    # One tensor per producer: node 2's edges to 3 and 5 are one tensor.
    assert problem.graph.n_tensors == 4
    assert problem.tensor_copy_s[:, 0].tolist() == [0.5, 0.25, 0.125, 1.0]
    assert (problem.time_unit, problem.execution) == ("", "calls")


def test_copies_are_charged_once_per_producer_and_device(small_workload: dict[str, Any]) -> None:
    problem = workload_problem(small_workload, "small.json").for_objective("throughput", None)
    split = match_split({"fpgas": [{"nodes": [1, 2]}, {"nodes": [3, 5]}], "cpus": []}, problem, "split")
    # fpga0: 1 + 2 of work, node 2 out (0.25), node 5 in (1.0); fpga1: 2 + 3, node 2 in once, node 5 out.
    assert evaluate(split.problem, split.device_of_op).load.tolist() == [4.25, 6.25, 0.0]


def test_equal_names_are_told_apart_by_id(small_workload: dict[str, Any]) -> None:
    small_workload["nodes"][1]["name"] = "in"
    problem = workload_problem(small_workload, "small.json")
    assert problem.graph.op_names[:2] == ("in#1", "in#2")


def test_a_split_may_use_more_devices_than_allowed(small_workload: dict[str, Any]) -> None:
    problem = workload_problem(small_workload, "small.json")
    split = match_split({"fpgas": [{"nodes": [1, 2]}, {"nodes": [3]}, {"nodes": [5]}], "cpus": []}, problem, "split")
    assert [str(f) for f in split.faults] == ["the split uses 3 accelerators, the problem allows 2"]
    assert split.problem.n_devices == 4


def test_a_split_written_by_us_reads_back(small_workload: dict[str, Any], tmp_path: Path) -> None:
    problem = workload_problem(small_workload, "small.json").for_objective("throughput", None)
    row = np.array([0, 0, 1, 2, 0], dtype=np.int32)
    write_split(problem, row, tmp_path / "split.json")
    assert read_placement(tmp_path / "split.json", problem).device_of_op.tolist() == row.tolist()  # type: ignore[union-attr]
    document = json.loads((tmp_path / "split.json").read_text())
    assert document["fpgas"][0]["nodes"] == [1, 2, 9]
    assert document["maxLoad"] == evaluate(problem, row).value


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"fpgas": [{"nodes": [1, 99]}], "cpus": []}, "'fpgas' names nodes that the problem does not have: '99'"),
        ({"fpgas": [{"nodes": [1, 2]}, {"nodes": [1]}], "cpus": []}, "node 1 is on two devices"),
        ({"fpgas": [{"nodes": [1, 2, 3]}], "cpus": []}, "node 5 \\('c'\\) is missing and its class is nowhere"),
        ({"fpgas": [{"nodes": [1, 2, "x"]}], "cpus": []}, r"fpgas\[0\]: nodes\[2\]: 'node' is 'x', expected a whole"),
        ({"fpgas": 3, "cpus": []}, "'fpgas' is 3, expected a list"),
        ({"fpgas": [{}], "cpus": []}, "field 'nodes' is missing"),
    ],
)
def test_bad_splits(small_workload: dict[str, Any], split: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        match_split(split, workload_problem(small_workload, "small.json"), "split.json")


def test_what_the_format_cannot_express_is_said() -> None:
    problem = load("zoo:layered?ops=10", cluster="p100x2")
    with pytest.raises(InputError, match="cannot express direct links, links of different cost"):
        workload_document(problem)
