"""``place --measure``: candidates run for real, nothing run twice, a kill loses nothing, failures remembered."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright as pw
from placewright.cli.main import run as command_line
from placewright.execute.live import LiveModel
from placewright.execute.measured import (
    MeasuredEvaluator,
    RecordingBudget,
    Rounds,
    best_measured,
    candidate_placements,
    measurement_context,
)
from placewright.execute.memo import Memo
from placewright.execute.stages import StagedModel
from placewright.placers.base import make_ready
from placewright.placers.registry import get_placer
from placewright.problems import Problem

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
MODEL = "zoo:resnet-50?image=32"


class Pretender:
    """An executor that takes as long as it is told."""

    def __init__(self, seconds: float, log: list[float]) -> None:
        self.seconds, self.log = seconds, log

    def __call__(self, inputs: Any) -> list[Any]:
        self.log.append(self.seconds)
        time.sleep(self.seconds)
        return []

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def problem() -> Problem:
    return pw.load("zoo:fork-join?blocks=2", cluster="cores:2")


def pretended(problem: Problem, log: list[float], fails_on: str = "") -> LiveModel:
    """Splitting takes 50 ms, core1 20, core0 1: not as predicted, and no busy machine confuses them."""

    def start(devices: Any, cluster: Any, starts: Any) -> Pretender:
        if fails_on in devices.values():
            raise RuntimeError("out of memory")
        used = set(devices.values())
        return Pretender(0.05 if len(used) > 1 else 0.001 if used == {"core0"} else 0.02, log)

    def staged(*_: Any) -> StagedModel:
        raise AssertionError("nothing is streamed here")

    return LiveModel("openvino", problem.graph, [], start, staged)


def search(problem: Problem, evaluator: MeasuredEvaluator) -> Any:
    placer = get_placer("heft")
    make_ready(placer, problem)
    _, candidates = candidate_placements(placer, problem, RecordingBudget(1.0), 0)
    return candidates, best_measured(evaluator, candidates, Rounds(2, 3, 3))


def test_the_measured_best_wins_not_the_predicted_one(problem: Problem, tmp_path: Path) -> None:
    log: list[float] = []
    live = pretended(problem, log)
    with Memo(tmp_path / "memo.db", measurement_context(live, problem)) as memo:
        candidates, best = search(problem, MeasuredEvaluator(live, problem, memo))
        assert candidates[0].value < min(p.value for p in candidates if len(set(p.device_of_op.tolist())) == 1)
        assert len(set(best.device_of_op.tolist())) == 1
        assert best.measured["measured_s"] >= 0.001
        assert best.measured["samples"] == 3
        assert set(best.measured["single_device"]) == {"core0", "core1"}
        runs = len(log)
        search(problem, MeasuredEvaluator(live, problem, memo))
        assert len(log) == runs  # all of it is on file


def test_a_placement_that_fails_is_kept_with_its_reason_and_not_tried_again(problem: Problem, tmp_path: Path) -> None:
    live = pretended(problem, [], fails_on="core1")
    rows = np.stack([np.zeros(problem.n_ops, dtype=np.int32), np.ones(problem.n_ops, dtype=np.int32)])
    with Memo(tmp_path / "memo.db", "here") as memo:
        values = MeasuredEvaluator(live, problem, memo).evaluate_many(rows, 2)
        assert values[0] >= 0.001
        assert np.isinf(values[1])
        works_again = pretended(problem, [])
        evaluator = MeasuredEvaluator(works_again, problem, memo)
        assert np.isinf(evaluator.evaluate_many(rows, 2)[1])
    reasons = sqlite3.connect(tmp_path / "memo.db").execute("select failure from measurement where failure <> ''")
    assert reasons.fetchall() == [("RuntimeError: out of memory",)]


def test_evaluation_stops_when_asked(problem: Problem, tmp_path: Path) -> None:
    log: list[float] = []
    with Memo(tmp_path / "memo.db", "here") as memo:
        evaluator = MeasuredEvaluator(pretended(problem, log), problem, memo, should_stop=lambda: len(log) > 4)
        evaluator.evaluate_many(np.zeros((1, problem.n_ops), dtype=np.int32), 1000)
    assert len(log) < 10


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_command_line_writes_measured_and_predicted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, objective: str
) -> None:
    monkeypatch.setattr("placewright.execute.measured._STREAM", 4)
    file, memo = tmp_path / "placement.json", tmp_path / "memo.db"
    arguments = ["place", MODEL, "--cluster", "cores:2", "--placer", "topo", "--measure", "openvino"]
    arguments += ["--objective", objective, "--memo", str(memo), "-o", str(file), "--json"]
    assert command_line(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    written = json.loads(file.read_text())
    assert result["measured"] == written["measured"]
    measured = written["measured"]
    assert measured["predicted_s"] == written["value"]
    assert measured["interval_s"][0] <= measured["measured_s"] <= measured["interval_s"][1]
    assert set(measured["single_device"]) == {"core0", "core1"}
    assert measured["runtime"] == "openvino"


def test_a_killed_run_loses_no_measurement_and_the_next_one_goes_on(tmp_path: Path) -> None:
    memo = tmp_path / "memo.db"
    command = [sys.executable, "-m", "placewright", "place", MODEL, "--cluster", "cores:2", "--placer", "topo"]
    command += ["--measure", "openvino", "--memo", str(memo), "-o", str(tmp_path / "placement.json"), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while _samples(memo) < 4:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    seen = _rows(memo)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = _rows(memo)
    assert kept[: len(seen)] == seen
    assert not (tmp_path / "placement.json").exists()
    assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode == 0
    after = _rows(memo)
    assert after[: len(kept)] == kept
    document = json.loads((tmp_path / "placement.json").read_text())
    samples = sum(c["samples"] for c in document["measured"]["candidates"])
    assert samples == len(after)  # what was measured before the kill counts


def _rows(memo: Path) -> list[Any]:
    if not memo.exists():
        return []
    try:
        return sqlite3.connect(memo, timeout=30).execute("select * from measurement order by rowid").fetchall()
    except sqlite3.OperationalError:  # not made yet
        return []


def _samples(memo: Path) -> int:
    return len(_rows(memo))
