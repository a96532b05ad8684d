"""A worker process as a device: same outputs, in split runs and pipelines; its death is named and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright as pw
from placewright.cluster_file import load_cluster, parse_cluster
from placewright.errors import InputError
from placewright.execute.dataflow import ExecutionError
from placewright.execute.live import open_live

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
MODEL = "zoo:resnet-50?image=32"
CLUSTER = load_cluster("cores:f32+slow")


@pytest.fixture(scope="module")
def live() -> Any:
    return open_live(MODEL, "openvino")


@pytest.fixture(scope="module")
def expected(live: Any) -> list[Any]:
    run = live.start(dict.fromkeys(live.graph.op_names, "core0"), CLUSTER, None)
    try:
        return list(run(live.inputs))
    finally:
        run.close()


def halves(live: Any) -> dict[str, str]:
    names = live.graph.op_names
    return {name: f"core{int(i > len(names) // 2)}" for i, name in enumerate(names)}


def workers_of(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and "openvino_worker" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_slow_core_gives_the_same_outputs(live: Any, expected: list[Any]) -> None:
    run = live.start(halves(live), CLUSTER, None)
    try:
        for _ in range(2):
            np.testing.assert_allclose(run(live.inputs)[0], expected[0], rtol=1e-3, atol=1e-4)
        assert len(workers_of(os.getpid())) == 1
    finally:
        run.close()
    assert workers_of(os.getpid()) == []


def test_it_is_a_stage_of_a_pipeline(live: Any, expected: list[Any]) -> None:
    from placewright.execute.pipeline import run_pipeline

    devices = halves(live)
    staged = live.staged(devices, {n: int(d == "core1") for n, d in devices.items()}, CLUSTER)
    run = run_pipeline(staged.stages(), [staged.bag(live.inputs)] * 3)
    for bag in run.outputs:
        np.testing.assert_allclose(staged.outputs(bag)[0], expected[0], rtol=1e-3, atol=1e-4)


def test_a_killed_worker_is_named(live: Any) -> None:
    run = live.start(halves(live), CLUSTER, None)
    try:
        run(live.inputs)
        os.kill(workers_of(os.getpid())[0], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(ExecutionError, match="worker process of device 'core1' ended \\(killed by signal 9\\)"):
            run(live.inputs)
        assert time.monotonic() - began < 5
    finally:
        run.close()


def test_a_worker_ends_with_the_process_that_started_it() -> None:
    code = (
        "import time\n"
        "from placewright.execute.openvino_worker import start_worker\n"
        "w = start_worker('core1', 'sse41')\n"
        "print(w._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20  # importing the runtime comes before looking at the connection
    while _is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_it_is_measured_in_a_process_of_its_own() -> None:
    from placewright.costs.measure.sources import open_source

    source = open_source(MODEL, "openvino")
    kinds = {k.name: k for k in CLUSTER.kinds}
    runner = source.make_runner(kinds["slow"])
    assert runner.setting.precision == "f32"
    assert runner.whole_s() > 0
    times, _ = runner.op_times_s()
    assert times.shape == (source.graph.n_ops,)
    assert times.sum() > 0


def test_other_runtimes_and_sets_are_refused() -> None:
    live = open_live(MODEL, "torch")
    with pytest.raises(InputError, match="'slow' has an instruction set of its own; only openvino"):
        live.start(dict.fromkeys(live.graph.op_names, "core0"), CLUSTER, None)
    with pytest.raises(InputError, match="'instruction_set' is 'mmx', expected one of sse41"):
        parse_cluster('[[device]]\nkind = "cpu"\nhost = true\ninstruction_set = "mmx"', "here")
    assert pw.load(MODEL, cluster="cores:f32+slow").n_devices == 2
