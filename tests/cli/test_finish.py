"""What makes a command line pleasant: help with examples, completion, quiet and JSON modes, next steps, no noise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from placewright.cli.main import app, run

VERBS = sorted(get_command(app).commands)  # type: ignore[attr-defined]
CHAIN = ["zoo:chain?ops=8", "--cluster", "p100x2"]


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"placewright {verb}" in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_can_be_quiet_and_speak_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json" in text
    assert "--quiet" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("placewright pla", "place"),
        ("placewright place x --placer cross", "cross-entropy"),
        ("placewright place x --cluster p100", "p100x4"),
        ("placewright export x --to split", "split-spec"),
        ("placewright place zoo:incep", "zoo:inception-v3"),
    ],
)
def test_the_shell_completes(words: str, expected: str) -> None:
    asked = {
        "_PLACEWRIGHT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    command = [sys.executable, "-m", "placewright"]
    found = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert expected in found.stdout.split(), found.stderr


def test_steps_to_take_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "my placement.json")
    place = ["place", *CHAIN, "--placer", "single"]
    assert run(place) == 0
    assert "next: placewright place 'zoo:chain?ops=8' --cluster p100x2 -o placement.json" in capsys.readouterr().err
    assert run([*place, "-o", out]) == 0
    streams = capsys.readouterr()
    assert f"next: placewright report '{out}'" in streams.err
    assert "placewright run" not in streams.err  # a generated graph has nothing to run
    assert "next:" not in streams.out
    assert run(["compare", *CHAIN, "--placers", "single,topo"]) == 0
    assert "--placer" in capsys.readouterr().err
    for mode in ("--json", "--quiet"):
        for command in (place, ["compare", *CHAIN, "--placers", "single"], ["evaluate", CHAIN[0], out]):
            assert run([*command, mode]) == 0
            assert "next:" not in capsys.readouterr().err


def test_evaluate_takes_the_cluster_from_the_placement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "p.json")
    assert run(["place", *CHAIN, "--placer", "topo", "-o", out, "--json"]) == 0
    placed = json.loads(capsys.readouterr().out)
    assert run(["evaluate", CHAIN[0], out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == placed["value"]


def test_quiet_lists_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, word in (("models", "zoo:bert-base"), ("placers", "anneal"), ("devices", "host cpu")):
        assert run([verb, "--quiet"]) == 0
        assert word in capsys.readouterr().out.splitlines()
    assert run(["compare", *CHAIN, "--placers", "single,topo", "--quiet"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["single", "topo"]


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "--models", "zoo:chain?ops=20", "--placers", "single,topo", "--budget", "200ms"]
    assert run([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [(r["objective"], r["placer"]) for r in rows] == [
        (objective, placer) for objective in ("latency", "throughput") for placer in ("single", "topo")
    ]
    assert run(command) == 0
    assert "throughput" in capsys.readouterr().out
    assert run([*command, "--quiet"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
