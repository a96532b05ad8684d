"""The pipeline runner: order, back-pressure, failures, nothing left behind."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import pipeline_stages as make
import pytest

from placewright.execute.pipeline import Stage, StageError, run_pipeline

Workers = Literal["threads", "processes"]
BOTH = pytest.mark.parametrize("workers", ["threads", "processes"])


@BOTH
def test_every_sample_comes_out_in_order(workers: Workers) -> None:
    stages = [Stage(f"s{i}", partial(make.adder, i)) for i in range(3)]
    run = run_pipeline(stages, range(40), workers=workers)
    assert run.outputs == [x + 3 for x in range(40)]
    assert run.throughput_per_s > 0
    assert [s.name for s in run.stages] == ["s0", "s1", "s2"]
    _nothing_is_left()


def test_the_slow_stage_is_the_busy_one_and_the_quick_one_waits_for_it() -> None:
    stages = [Stage("quick", partial(make.sleeper, 0.002)), Stage("slow", partial(make.sleeper, 0.02))]
    run = run_pipeline(stages, range(15), queue_size=2)
    quick, slow = run.stages
    assert quick.busy_s < slow.busy_s <= run.seconds
    assert quick.blocked_s > slow.blocked_s  # it waits for room: back-pressure


def test_a_full_queue_stops_the_feed() -> None:
    taken = []

    def samples():
        for i in range(100):
            taken.append(i)
            yield i

    with pytest.raises(StageError):
        run_pipeline([Stage("first", partial(make.fails_at, 0))], samples(), queue_size=2)
    assert len(taken) < 10


@BOTH
def test_a_failing_stage_ends_the_run_with_its_error(workers: Workers) -> None:
    stages = [Stage("a", partial(make.adder, 0)), Stage("b", partial(make.fails_at, 5))]
    with pytest.raises(StageError, match="stage 'b' failed: ValueError: cannot do 5"):
        run_pipeline(stages, range(100), workers=workers)
    _nothing_is_left()


@BOTH
def test_a_stage_that_cannot_be_made_is_named(workers: Workers) -> None:
    with pytest.raises(StageError, match="stage 'bad' failed: RuntimeError: no such device"):
        run_pipeline([Stage("ok", partial(make.adder, 1)), Stage("bad", make.never_ready)], range(3), workers=workers)
    _nothing_is_left()


def test_a_killed_stage_is_noticed_and_leaves_no_orphan() -> None:
    stages = [Stage("a", partial(make.adder, 0)), Stage("victim", partial(make.dies_at, 3))]
    with pytest.raises(StageError, match="stage 'victim' ended before its work was done \\(killed by signal 9\\)"):
        run_pipeline(stages, range(50), workers="processes")
    _nothing_is_left()


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.11])
def test_a_stage_killed_from_outside_ends_the_run_soon(delay_s: float) -> None:
    stages = [Stage("a", partial(make.adder, 0)), Stage("victim", partial(make.makes_much, 50_000_000))]
    killed_at: list[float] = []

    def kill() -> None:
        while not any(p.name == "victim" for p in multiprocessing.active_children()):
            time.sleep(0.01)
        victim = next(p for p in multiprocessing.active_children() if p.name == "victim")
        running.wait(60)
        time.sleep(delay_s)
        killed_at.append(time.monotonic())
        victim.kill()

    running = threading.Event()

    def samples() -> Iterator[int]:
        for i in itertools.count():
            if i == 5:  # more than the pipeline has room for: one has come out, so all stages are at work
                running.set()
            yield i

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(StageError, match="stage 'victim' ended before its work was done \\(killed by signal 9\\)"):
        run_pipeline(stages, samples(), workers="processes", queue_size=1, keep_outputs=False)
    thread.join()
    assert time.monotonic() - killed_at[0] < 5
    _nothing_is_left()


def test_stages_end_with_the_process_that_runs_them(tmp_path: Path) -> None:
    code = (
        "import itertools, sys\n"
        "from functools import partial\n"
        "import pipeline_stages as make\n"
        "from placewright.execute.pipeline import Stage, run_pipeline\n"
        "if __name__ == '__main__':\n"
        "    stages = [Stage(n, partial(make.says_pid, sys.argv[1], n)) for n in ('a', 'b')]\n"
        "    samples = (bytes(10_000_000) for _ in itertools.count())\n"
        "    run_pipeline(stages, samples, workers='processes', keep_outputs=False)\n"
    )
    script = tmp_path / "runner.py"
    script.write_text(code)
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    runner = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": paths})
    files = [tmp_path / "a", tmp_path / "b"]
    deadline = time.monotonic() + 60
    while not all(f.exists() and f.read_text() for f in files):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    runner.kill()
    runner.wait()
    deadline = time.monotonic() + 5
    while any(_is_running(int(f.read_text())) for f in files):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _nothing_is_left() -> None:
    assert multiprocessing.active_children() == []
    assert [t.name for t in threading.enumerate() if t.name in ("a", "b", "ok", "bad", "s0", "s1", "s2")] == []
