"""A signal during a long stream: the command ends soon with what it has measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from placewright.cli.main import run as command_line

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
MODEL = "zoo:mobilenet?image=32"
UNCOMPILED = {**os.environ, "NUMBA_DISABLE_JIT": "1"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_long_stream_is_left_with_what_came_out(tmp_path: Path, number: int) -> None:
    file = tmp_path / "placement.json"
    cluster = ["--cluster", "cores:2", "--objective", "throughput"]
    assert command_line(["place", MODEL, *cluster, "--placer", "topo", "-o", str(file), "--quiet"]) == 0
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "placewright", "run", MODEL, str(file), "--samples", "10000000", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=UNCOMPILED,
    )  # fmt: skip
    assert process.stderr is not None
    said = ""
    while "measuring" not in said:  # said when the first stream has gone on for some seconds
        line = process.stderr.readline()
        assert line, said
        said += line
    signalled = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert time.monotonic() - signalled < signalled - began  # imports, compiling, and some seconds of the stream
    assert process.returncode == 0, err
    assert "interrupted, finishing with what has been measured so far" in err
    result = json.loads(out)
    assert result["measured_s"] > 0
    assert result["latency_s"] > 0
    assert [s["name"] for s in result["stages"]] == ["stage 0 on core0", "stage 1 on core1"]
