"""``run``: a placement executed against single devices, outputs compared, in every runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright as pw
from placewright.cli.main import run as command_line
from placewright.cluster import Cluster
from placewright.execute.live import Devices, Executor, open_live
from placewright.execute.measured import measurement_context
from placewright.execute.memo import Memo
from placewright.execute.run import run_placement
from placewright.placement import checked_placement
from placewright.placers.learned.rewards import MeasuredRewards

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
MODEL = "zoo:inception-v3?image=80"
KEYS = {
    "measured_s", "interval_s", "throughput_per_s", "predicted_s", "compile_s", "single_device", "max_abs_error",
    "max_rel_error", "runtime",
}  # fmt: skip


def executed(capsys: pytest.CaptureFixture[str], tmp_path: Path, runtime: str, objective: str) -> dict[str, Any]:
    file = str(tmp_path / "placement.json")
    cluster = ["--cluster", "cores:2", "--objective", objective]
    assert command_line(["place", MODEL, *cluster, "--placer", "topo", "-o", file, "--quiet"]) == 0
    capsys.readouterr()
    arguments = ["run", MODEL, file, *cluster, "--runtime", runtime, "--repeats", "2", "--samples", "3", "--json"]
    assert command_line(arguments) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("runtime", ["openvino", "torch"])
@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_outputs_and_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path, runtime: str, objective: str) -> None:
    pytest.importorskip(runtime)
    result = executed(capsys, tmp_path, runtime, objective)
    assert set(result) >= KEYS
    assert set(result["single_device"]) == {"core0", "core1"}
    assert result["max_rel_error"] < 1e-4
    assert result["interval_s"][0] <= result["measured_s"] <= result["interval_s"][1]
    if objective == "throughput":
        assert [s["name"] for s in result["stages"]] == ["stage 0 on core0", "stage 1 on core1"]
    else:
        assert result["segments"] > 1 or runtime == "torch"


SMALL_ACCELERATOR = """
name = "box"

[[device]]
kind = "cpu"
host = true
flops = 1e11
memory_bandwidth = "20GB/s"

[[device]]
kind = "small"
memory = "{memory}"
runtime_device = "cpu"
flops = 1e12
memory_bandwidth = "100GB/s"

[[link]]
from = "small*"
to = "host"
bandwidth = "12GB/s"
"""


@pytest.mark.parametrize(("memory", "is_told"), [("40MB", True), ("1MB", False), ("1GB", False)])
def test_a_device_that_cannot_hold_the_model_runs_it_with_the_rest_in_host_memory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, memory: str, is_told: bool
) -> None:
    cluster, file = tmp_path / "box.toml", str(tmp_path / "placement.json")
    cluster.write_text(SMALL_ACCELERATOR.format(memory=memory))
    chosen = ["--cluster", str(cluster)]
    assert command_line(["place", MODEL, *chosen, "--placer", "single", "-o", file, "--quiet"]) == 0
    capsys.readouterr()
    assert command_line(["run", MODEL, file, *chosen, "--runtime", "torch", "--repeats", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    told = [name for name in result["alternatives"] if name.startswith("small0, ")]
    assert len(told) == is_told
    assert all("MB of weights streamed" in name for name in told)
    assert set(result["single_device"]) == ({"cpu0", "small0"} if memory == "1GB" else {"cpu0"})


def test_an_unknown_runtime_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(tmp_path / "placement.json")
    assert command_line(["place", MODEL, "--cluster", "cores:2", "--placer", "single", "-o", file, "--quiet"]) == 0
    assert command_line(["run", MODEL, file, "--cluster", "cores:2", "--runtime", "tensorflow"]) == 2
    assert "unknown runtime 'tensorflow'" in capsys.readouterr().err


def test_hetero_runs_latency_and_refuses_pipelines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    result = executed(capsys, tmp_path, "openvino-hetero", "latency")
    assert result["runtime"] == "openvino-hetero"
    assert result["segments"] > 1
    assert result["max_rel_error"] < 1e-4
    file = str(tmp_path / "pipeline.json")
    cluster = ["--cluster", "cores:2", "--objective", "throughput"]
    assert command_line(["place", MODEL, *cluster, "--placer", "topo", "-o", file, "--quiet"]) == 0
    assert command_line(["run", MODEL, file, *cluster, "--runtime", "openvino-hetero"]) == 2
    assert "HETERO runs one sample at a time" in capsys.readouterr().err


def test_hetero_rewards_are_measured_and_remembered_apart(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    problem = pw.load(MODEL, cluster="cores:2", execution="sequential")
    by_hetero, by_us = open_live(MODEL, "openvino-hetero"), open_live(MODEL, "openvino")
    assert measurement_context(by_hetero, problem) != measurement_context(by_us, problem)
    rewards = MeasuredRewards(
        problem, by_hetero, Memo(tmp_path / "memo.sqlite", measurement_context(by_hetero, problem))
    )
    rows = np.zeros((2, problem.n_ops), dtype=np.int32)
    rows[1, problem.n_ops // 2 :] = 1
    judged = rewards.judge(rows)
    assert judged.is_valid.all()
    assert (judged.value > 0).all()


def test_cuda_graphs_are_for_torch_and_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = str(tmp_path / "placement.json")
    assert command_line(["place", MODEL, "--cluster", "cores:2", "--placer", "single", "-o", file, "--quiet"]) == 0
    run = ["run", MODEL, file, "--cluster", "cores:2", "--repeats", "1", "--cuda-graphs", "--runtime"]
    assert command_line([*run, "openvino"]) == 2
    assert "this one is run by openvino" in capsys.readouterr().err
    assert command_line([*run, "torch"]) == 0
    assert "without CUDA graphs: nothing to record" in " ".join(capsys.readouterr().out.split())


def test_a_placement_on_one_device_is_not_compared_with_a_second_start_of_itself() -> None:
    model = open_live(MODEL, "torch")
    problem = pw.load(MODEL, cluster="cores:2")
    placement = checked_placement(problem, np.ones(problem.n_ops, dtype=np.int32), placer="x")
    started: list[str] = []

    def start(devices: Devices, cluster: Cluster, order: Mapping[str, float] | None) -> Executor:
        started.append(next(iter(devices.values())))
        return model.start(devices, cluster, order)

    result = run_placement(model._replace(start=start), placement, repeats=2, warm_up=0)
    assert started.count("core1") == 1
    assert {"core0", "core1"} < set(result.timings)
