from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.cli.main import run
from placewright.errors import MissingExtraError
from placewright.placers import get_placer_class, placer_names

KEYS = {
    "status", "objective", "execution", "value", "bound", "gap", "placer", "seconds", "seed", "devices",
    "single_device", "segments", "bytes_moved", "evaluations", "faults",
}  # fmt: skip


def json_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    result = json.loads(output)
    assert isinstance(result, dict)
    return result


def test_place_then_evaluate_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "p.json")
    placed = json_of(["place", "zoo:layered?ops=50", "--cluster", "p100x2", "-o", out], capsys)
    evaluated = json_of(["evaluate", "zoo:layered?ops=50", out, "--cluster", "p100x2"], capsys)
    assert placed.keys() >= KEYS
    assert evaluated.keys() >= KEYS
    assert placed["value"] == evaluated["value"]
    assert placed["devices"][0].keys() == {"name", "kind", "load", "memory_bytes", "memory_limit_bytes", "ops"}
    assert set(placed["single_device"]) == {"gpu0", "gpu1", "cpu0"}


def test_evaluate_takes_the_model_of_the_placement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "p.json")
    json_of(["place", "zoo:chain?ops=20", "--execution", "sequential", "--placer", "topo", "-o", out], capsys)
    assert json_of(["evaluate", "zoo:chain?ops=20", out], capsys)["execution"] == "sequential"
    assert json_of(["evaluate", "zoo:chain?ops=20", out, "--execution", "overlap"], capsys)["execution"] == "overlap"


def test_objective_chooses_the_execution_model(
    small_workload: dict[str, Any], write_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_json(small_workload)
    single = ["--placer", "single"]
    assert json_of(["place", path, *single], capsys)["execution"] == "calls"
    assert json_of(["place", path, *single, "--objective", "throughput"], capsys)["execution"] == "pipeline"
    assert json_of(["place", "zoo:chain?ops=3", *single], capsys)["execution"] == "overlap"
    assert json_of(["place", path, *single, "--execution", "overlap"], capsys)["objective"] == "latency"


def test_rules_are_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.json"
    command = ["place", "zoo:chain?ops=30", "--cluster", "p100x2", "--placer", "topo", "-o", str(out)]
    json_of([*command, "--pin", "matmul=gpu1", "--forbid", "add=cpu", "--together", "relu_"], capsys)
    assignment = json.loads(out.read_text())["assignment"]
    assert {d for op, d in assignment.items() if "matmul" in op} == {"gpu1"}
    assert "cpu0" not in {d for op, d in assignment.items() if "add" in op}
    assert len({d for op, d in assignment.items() if "relu_" in op}) == 1


def test_infeasible_is_exit_3_with_the_reason(
    small_workload: dict[str, Any], write_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small_workload.update(maxCPUs=0, maxSizePerFPGA=50.0)
    assert run(["place", write_json(small_workload)]) == 3
    message = capsys.readouterr().err
    assert "infeasible" in message
    assert "'a', 'a grad'" in message
    result = json_of(["place", write_json(small_workload)], capsys, code=3)
    assert (result["status"], result["value"]) == ("infeasible", None)
    assert result["faults"][0]["code"] == "too-big"


def test_an_op_no_device_supports(
    small_workload: dict[str, Any], write_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small_workload["maxCPUs"] = 0
    small_workload["nodes"][2]["supportedOnFpga"] = False
    assert run(["place", write_json(small_workload)]) == 3
    assert "no device takes operator 'b'" in capsys.readouterr().err


def test_nothing_valid_found_is_exit_4(
    small_workload: dict[str, Any], write_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small_workload.update(maxCPUs=0, maxSizePerFPGA=70.0)
    assert run(["place", write_json(small_workload), "--placer", "single"]) == 4
    assert "no single device may hold everything" in capsys.readouterr().err


def test_faults_are_listed_and_the_value_given(
    small_workload: dict[str, Any], write_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    split = write_json({"fpgas": [{"nodes": [1, 2, 3, 5]}], "cpus": []}, "split.json")
    command = ["evaluate", write_json(small_workload), split, "--objective", "throughput"]
    result = json_of(command, capsys)
    assert result["value"] == pytest.approx(8.0)
    assert result["faults"][0]["device"] == "fpga0"
    assert run(command) == 0
    assert "fault: device 'fpga0' needs 110 B (110 bytes) but holds 100 B (100 bytes)" in capsys.readouterr().out


def test_tables_show_single_devices_and_idle_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "zoo:chain?ops=10", "--cluster", "laptop-npu", "--placer", "single"]) == 0
    text = capsys.readouterr().out
    assert "alone" in text
    assert "cpu0 idle: no single move there pays" in text


def test_compare_puts_placers_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    result = json_of(["compare", "zoo:chain?ops=20", "--placers", "single,topo"], capsys)
    assert [p["placer"] for p in result["placers"]] == ["single", "topo"]
    assert run(["compare", "zoo:chain?ops=20", "--placers", "single,topo"]) == 0
    assert "proven bound" in capsys.readouterr().out


def test_placers_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"auto", "single", "random", "topo", "expert"} <= {
        p["name"] for p in json_of(["placers"], capsys)["placers"]
    }


def test_importing_the_package_is_light() -> None:
    heavy = "torch openvino onnx onnxruntime numba typer rich highspy ortools"
    script = f"import sys, placewright; print([m for m in '{heavy}'.split() if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", placer_names())
def test_placers_do_not_need_the_test_packages(name: str) -> None:
    try:
        get_placer_class(name).check_installed()
    except MissingExtraError as error:
        pytest.skip(str(error))
    script = (
        "import sys; sys.modules.update(pytest=None, hypothesis=None)\n"
        "import placewright as pw; from placewright.placers import get_placer_class\n"
        f"execution = get_placer_class({name!r}).executions[-1]\n"
        "problem = pw.load('zoo:chain?ops=4', cluster='p100x2', execution=execution)\n"
        f"print(pw.place(problem, {name!r}, 5.0).is_valid if {name!r} != 'expert' else True)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "True", result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_the_best_so_far(tmp_path: Path, number: int) -> None:
    out = tmp_path / "p.json"
    command = [
        sys.executable, "-m", "placewright", "place", "zoo:layered?ops=3000", "--cluster", "p100x4", "--placer",
        "random", "--evaluations", "100000000", "--budget", "10m", "-o", str(out), "--json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "searching with 'random'" not in (line := process.stderr.readline()):
        assert line
    os.kill(process.pid, number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    result = json.loads(stdout)
    assert result["status"] == "feasible"
    assert "interrupted" in stderr
    assert np.isfinite(result["value"])
    assert json.loads(out.read_text())["value"] == result["value"]


@pytest.mark.parametrize("execution", ["overlap", "sequential", "calls", "pipeline"])
def test_an_op_that_no_device_supports_is_named(
    execution: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "npu.toml"
    cluster.write_text(
        'name = "npu"\n[[device]]\nkind = "npu"\nhost = true\nflops = 1e12\nmemory_bandwidth = "50GB/s"\n'
        'unsupported = ["softmax"]\n'
    )
    arguments = [
        "place",
        "zoo:bert-base?layers=1",
        "--cluster",
        str(cluster),
        "--execution",
        execution,
        "--budget",
        "1s",
    ]
    assert run(arguments) == 3
    assert "attention.self.softmax" in capsys.readouterr().err
