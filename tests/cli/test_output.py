"""Where output goes: full disks, terminals with few characters, and what is said while one waits."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from placewright.cli import doing
from placewright.cli import options as o
from placewright.cli.main import run
from placewright.costs.measure.journal import Journal
from placewright.errors import InputError

CHAIN = ["zoo:chain?ops=8", "--cluster", "p100x2", "--placer", "single"]
COMMAND = [sys.executable, "-m", "placewright"]
UNCOMPILED = {**os.environ, "NUMBA_DISABLE_JIT": "1"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["placers"], ["placers", "--json"], ["placers", "--quiet"], ["place", *CHAIN]])
def test_output_to_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=UNCOMPILED, check=False
        )
    assert found.returncode == 2, found.stderr
    assert found.stderr.splitlines()[-1] == "placewright: output: No space left on device"
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("arguments", [["placers"], ["models"], ["place", *CHAIN]])
def test_terminals_with_nothing_but_ascii(arguments: list[str]) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "COLUMNS": "150"}
    found = subprocess.run([*COMMAND, *arguments], capture_output=True, env={**UNCOMPILED, **ascii_only}, check=False)
    assert found.returncode == 0, found.stderr
    rows = [line for line in found.stdout.decode("ascii").splitlines() if line[:1] in "|+"]
    assert len(rows) > 3
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ZeroDivisionError("by\nzero"), 1, "internal error: ZeroDivisionError: by; run again with --debug"),
        (RecursionError("too deep"), 1, "internal error: RecursionError: too deep; run again"),
        (MemoryError(), 1, "out of memory"),
        (PermissionError(13, "Permission denied", "secret.json"), 2, "secret.json: Permission denied"),
        (OSError(28, "No space left on device"), 2, "output: No space left on device"),
        (ModuleNotFoundError("No module named 'no_such'", name="no_such"), 1, "internal error: ModuleNotFoundError"),
    ],
)
def test_an_unexpected_error_is_one_line(
    error: Exception, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(o, "load_problem", fail)
    assert run(["place", *CHAIN]) == code
    said = capsys.readouterr().err
    assert said.startswith(f"placewright: {line}")
    assert said.count("\n") == 1
    assert run(["place", *CHAIN, "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("PLACEWRIGHT_DEBUG", "1")
    assert run(["place", *CHAIN]) == code
    assert "Traceback" in capsys.readouterr().err


@contextlib.contextmanager
def files_at_most(size_bytes: int) -> Iterator[None]:
    """What a disk with so much room is like."""
    resource, signal = pytest.importorskip("resource"), __import__("signal")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_journal_on_a_full_disk_keeps_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "profile.json.partial"
    journal = Journal(path, {"model": "test"})
    journal.add("passes cpu", [1.0, 2.0])
    before = path.read_bytes()
    with files_at_most(len(before) + 5), pytest.raises(InputError, match=r"partial: cannot be written: .*--resume"):
        journal.add("passes cpu", [3.0, 4.0])
    assert path.read_bytes() == before
    assert Journal(path, {"model": "test"}, resume=True).found("passes cpu") == [[1.0, 2.0]]


def test_a_checkpoint_on_a_full_disk_leaves_the_old_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from placewright.placers.learned.training import Checkpoint

    class Learner:
        def __init__(self, size: int) -> None:
            self.size = size

        def state(self) -> dict[str, object]:
            return {"numbers": list(range(self.size))}

        def restore(self, state: dict[str, object]) -> None:
            self.size = len(state["numbers"])  # type: ignore[arg-type]

    checkpoint = Checkpoint(tmp_path / "policy.checkpoint", {})
    checkpoint.save(Learner(3), now=True)
    size_bytes = checkpoint.path.stat().st_size
    with files_at_most(size_bytes + 10), pytest.raises(InputError, match="cannot be written"):
        checkpoint.save(Learner(3000), now=True)
    found = Learner(0)
    assert checkpoint.load(found)
    assert found.size == 3
    assert [path.name for path in tmp_path.iterdir()] == ["policy.checkpoint"]


def test_what_takes_long_is_told_with_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doing, "TOLD_AFTER_S", 0.0)

    def told() -> str:
        with doing.doing("loading a model", 90.0) as say:
            say("layer 7")
            doing.show()
            doing.show()  # once is enough for a while
        return capsys.readouterr().err

    assert told() == "placewright: loading a model: 0 s of 90 s · layer 7\n"
    doing.be_quiet(True)
    try:
        assert told() == ""
    finally:
        doing.be_quiet(False)


def test_the_clock_looks_once_at_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads end things while the clock's thread looks at them."""

    class Vanishing(list):  # type: ignore[type-arg]
        def __bool__(self) -> bool:
            was_full = len(self) > 0
            self.clear()
            return was_full

    monkeypatch.setattr(doing, "_tasks", Vanishing([doing._Task("loading", float("inf"))]))
    doing.show()
    monkeypatch.setattr(doing, "_tasks", Vanishing([doing._Task("loading", float("inf"))]))
    assert doing.what() == "loading"
