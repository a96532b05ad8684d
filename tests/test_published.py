"""Tests with published problems are counted, also when several processes run them, and may not be skipped silently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from placewright.errors import InputError
from placewright.testing.published import REFERENCE, WORKLOADS, published_files, reference_table

CONFTEST = (
    "from published import pytest_collection_modifyitems, pytest_sessionfinish, pytest_terminal_summary, workloads\n"
)
TESTS = """
import pytest

def test_reads_them(workloads):
    assert workloads.is_dir()

def test_reads_some_that_are_there(workloads):
    if not (workloads / "throughput").is_dir():
        pytest.skip("not these")

def test_needs_none():
    pytest.skip("for another reason")
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "two processes"])
@pytest.mark.parametrize(
    ("named", "code", "says"),
    [
        (None, 0, "0 tests ran, 2 skipped"),
        ("whole", 0, "2 tests ran, 0 skipped"),
        ("part", 1, "1 tests ran, 1 skipped"),
        ("missing", 1, "0 tests ran, 2 skipped"),
    ],
)
def test_tests_with_published_problems_are_counted(
    tmp_path: Path, processes: tuple[str, ...], named: str | None, code: int, says: str
) -> None:
    (tmp_path / "whole" / "throughput").mkdir(parents=True)
    (tmp_path / "part").mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop(WORKLOADS, None)
    if named is not None:
        environment[WORKLOADS] = str(tmp_path / named)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *processes, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert f"\npublished problems: {says}\n" in result.stdout
    assert result.returncode == code, result.stdout


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKLOADS, raising=False)
    monkeypatch.delenv(REFERENCE, raising=False)
    with pytest.raises(InputError, match=f"{WORKLOADS} names their folder; docs/reproducing.md says where"):
        published_files("latency")
    assert reference_table() is None
    monkeypatch.setenv(WORKLOADS, str(tmp_path))
    with pytest.raises(InputError, match="has no problem whose name contains 'bert'"):
        published_files("latency", "bert")
    monkeypatch.setenv(REFERENCE, str(tmp_path / "figures.csv"))
    with pytest.raises(InputError, match=r"figures\.csv', which is no file"):
        reference_table()
