"""Measurements on file: kept at once, added up, shared, failures remembered, a kill loses nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from placewright.errors import InputError
from placewright.execute.memo import Measurement, Memo, context_key, placement_key


def test_samples_add_up_and_failures_stay(tmp_path: Path) -> None:
    with Memo(tmp_path / "memo.db", "here") as memo:
        assert memo.find("p") is None
        memo.add("p", Measurement((1.0, 2.0)))
        memo.add("p", Measurement((3.0,)))
        memo.add("q", Measurement((), "out of memory"))
    with Memo(tmp_path / "memo.db", "here") as memo:
        assert memo.find("p") == Measurement((1.0, 2.0, 3.0))
        assert memo.find("q") == Measurement((), "out of memory")
        assert len(memo) == 2


def test_contexts_do_not_mix(tmp_path: Path) -> None:
    with Memo(tmp_path / "memo.db", "here") as memo, Memo(tmp_path / "memo.db", "there") as other:
        memo.add("p", Measurement((1.0,)))
        assert other.find("p") is None


def test_keys_do_not_depend_on_order() -> None:
    assert placement_key({"a": "x", "b": "y"}) == placement_key({"b": "y", "a": "x"})
    assert placement_key({"a": "x", "b": "y"}) != placement_key({"a": "y", "b": "x"})
    assert context_key(model="m", runtime="r") == context_key(runtime="r", model="m")


def test_a_killed_process_loses_nothing_it_had_added(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from placewright.execute.memo import Memo, Measurement\n"
        "memo = Memo(sys.argv[1], 'here')\n"
        "for i in range(1000):\n"
        "    memo.add(str(i), Measurement((float(i),)))\n"
        "    print(i, flush=True)\n"
    )
    path = tmp_path / "memo.db"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.readlines()
    process.wait()
    last = int([line for line in said if line.endswith("\n")][-1])
    with Memo(path, "here") as memo:
        assert all(memo.find(str(i)) == Measurement((float(i),)) for i in range(last + 1))


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, " * 100)
    with pytest.raises(InputError, match="not a file of measurements"):
        Memo(path, "here")
    assert path.read_text() == "not a database, " * 100
