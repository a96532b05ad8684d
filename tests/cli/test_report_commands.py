"""``placewright report`` and ``placewright diff``: from placement files alone, one clear line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placewright.cli.main import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("placements")
    for name, placer in (("single", "single"), ("heft", "heft")):
        arguments = ["place", "zoo:fork-join", "--cluster", "laptop-npu", "--placer", placer, "-q"]
        assert run([*arguments, "-o", str(folder / f"{name}.json")]) == 0
    assert (
        run(
            [
                "place",
                "zoo:chain?ops=9",
                "--cluster",
                "p100x2",
                "--placer",
                "single",
                "-q",
                "-o",
                str(folder / "other.json"),
            ]
        )
        == 0
    )
    return folder


def test_report_of_one_and_of_two(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    assert run(["report", str(folder / "heft.json"), "-o", str(page)]) == 0
    assert "open it in a browser" in capsys.readouterr().out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert '"label":"heft"' in text
    assert run(["report", str(folder / "single.json"), str(folder / "heft.json"), "-q", "-o", str(page)]) == 0
    assert capsys.readouterr().out == ""
    assert '"label":"single"' in page.read_text()


def test_report_with_a_run(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"measured_s": 0.25, "interval_s": [0.2, 0.3], "runtime": "torch"}))
    page = tmp_path / "report.html"
    assert run(["report", str(folder / "heft.json"), "--run", str(tmp_path / "run.json"), "-o", str(page)]) == 0
    assert '"interval":[0.2,0.3]' in page.read_text()


def test_diff_as_text_and_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "single.json"), str(folder / "heft.json")]
    assert run(["diff", *files]) == 0
    text = capsys.readouterr().out
    assert "moved between devices" in text
    assert "ops moved" in text
    assert run(["diff", *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = (json.loads(Path(f).read_text()) for f in files)
    moved = {name for name, device in first["assignment"].items() if second["assignment"][name] != device}
    assert found["ops_moved"] == len(moved)
    assert {name for group in found["moved"] for name in group["ops"]} == moved
    assert (found["a"]["value"], found["b"]["value"]) == (first["value"], second["value"])
    assert run(["diff", files[0], files[0]]) == 0
    assert "the same" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["report", "missing.json"], "missing.json"),
        (["report", "{folder}/heft.json", "--run", "{folder}/heft.json"], "measured_s"),
        (["report", "{folder}/heft.json", "--model", "zoo:chain?ops=9"], "operators the model does not have"),
        (["report", "{folder}/heft.json", "-o", "/no/such/folder/report.html"], "cannot be written"),
        (["report", "{folder}/heft.json", "{folder}/other.json"], "different models"),
        (["diff", "{folder}/heft.json", "{folder}/other.json"], "different models"),
        (["diff", "{folder}/heft.json", "{folder}"], "is a directory"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    folder: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([a.format(folder=folder) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def test_diff_of_unlike_objectives_claims_no_gain(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = str(tmp_path / "pipeline.json")
    arguments = ["place", "zoo:fork-join", "--cluster", "laptop-npu", "--placer", "dpl", "--objective", "throughput"]
    assert run([*arguments, "-q", "-o", pipeline]) == 0
    capsys.readouterr()
    assert run(["diff", str(folder / "single.json"), pipeline]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "latency (overlap): " in first
    assert "-> throughput (pipeline): " in first
    assert "%" not in first
