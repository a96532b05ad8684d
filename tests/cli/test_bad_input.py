"""Every kind of bad input: exit code 2, one line that names file, field and expectation, nothing written."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import published_like
from placewright.cli.main import run


def edited(edit: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    def apply(document: dict[str, Any]) -> Any:
        changed = copy.deepcopy(document)
        result = edit(changed)
        return changed if result is None else result

    return apply


BAD_FILES: dict[str, tuple[Callable[[dict[str, Any]], Any], list[str]]] = {
    "truncated": (lambda d: json.dumps(d)[:100], ["not valid JSON", "line 1 column"]),
    "empty file": (lambda d: "", ["not valid JSON"]),
    "not an object": (lambda d: "[1, 2]", ["expected an object with 'nodes' and 'edges'"]),
    "cycle": (
        edited(lambda d: d["edges"].append({"sourceId": 5, "destId": 2, "cost": 1.0})),
        ["cycle of node ids", "2 ->"],
    ),
    "loop": (edited(lambda d: d["edges"].append({"sourceId": 9, "destId": 9, "cost": 1.0})), ["cycle", "9 -> 9"]),
    "unknown edge end": (
        edited(lambda d: d["edges"][1].update(destId=77)), ["edges[1]", "'destId' is 77", "id of a node"],
    ),
    "negative time": (
        edited(lambda d: d["nodes"][2].update(fpgaLatency=-1)),
        ["nodes[2] (id 3)", "'fpgaLatency' is -1", "finite number >= 0"],
    ),
    "NaN time": (
        edited(lambda d: d["nodes"][2].update(cpuLatency=float("nan"))), ["'cpuLatency' is nan", "finite number >= 0"],
    ),
    "infinite size": (edited(lambda d: d["nodes"][2].update(size=float("inf"))), ["'size' is inf"]),
    "text as time": (edited(lambda d: d["nodes"][0].update(cpuLatency="1")), ["'cpuLatency' is '1'"]),
    "duplicate id": (edited(lambda d: d["nodes"][2].update(id=2)), ["nodes[1] and nodes[2]", "same 'id' 2"]),
    "disagreeing costs": (
        edited(lambda d: d["edges"][2].update(cost=0.3)), ["edges[2]", "'cost' is 0.3", "out of node 2 has 0.25"],
    ),
    "backward to forward": (
        edited(lambda d: d["edges"].append({"sourceId": 9, "destId": 5, "cost": 0})), ["backward node 9", "node 5"],
    ),
    "no nodes": (edited(lambda d: d.update(nodes=[], edges=[])), ["'nodes' is empty", "at least one"]),
    "no devices": (edited(lambda d: d.update(maxFPGAs=0, maxCPUs=0)), ["both 0", "at least one device"]),
    "missing field": (
        edited(lambda d: d["nodes"][3].__delitem__("cpuLatency")), ["nodes[3] (id 5)", "'cpuLatency' is missing"],
    ),
    "contained nodes": (edited(lambda d: d["nodes"][0].update(containedSubnodes=[])), ["'containedSubnodes'"]),
    "too many devices": (edited(lambda d: d.update(maxFPGAs=10**9)), ["'maxFPGAs' is 1000000000", "0 to 1024"]),
    "strange flag": (edited(lambda d: d["nodes"][0].update(isBackwardNode=2)), ["'isBackwardNode' is 2", "0 or 1"]),
    "deep nesting": (lambda d: "[" * 100_000, ["nested too deeply"]),
    "endless integer": (lambda d: '{"nodes": [], "edges": ' + "9" * 5000 + "}", ["not valid JSON for this purpose"]),
}  # fmt: skip


def check_one_line(capsys: pytest.CaptureFixture[str], code: int, expected: int, parts: list[str]) -> None:
    output = capsys.readouterr()
    assert code == expected, output
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    assert output.err.startswith("placewright: ")
    for part in parts:
        assert part in output.err


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(
    case: str, small_workload: dict[str, Any], write_json: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, parts = BAD_FILES[case]
    path = write_json(edit(small_workload), "bad.json")
    code = run(["place", path, "--placer", "single", "-o", str(tmp_path / "out.json")])
    check_one_line(capsys, code, 2, ["bad.json", *parts])
    assert sorted(os.listdir(tmp_path)) == ["bad.json"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["place", "{good}", "--placer", "sinlge"], ["unknown placer 'sinlge'", "did you mean 'single'"]),
        (["place", "{folder}"], ["is a directory, expected a file"]),
        (["place", "{folder}/missing.json"], ["missing.json", "cannot be read: No such file"]),
        (["place", "{good}", "--objective", "speed"], ["unknown objective 'speed'", "latency"]),
        (["place", "{good}", "--execution", "overlapp"], ["did you mean 'overlap'"]),
        (["place", "{good}", "--objective", "throughput", "--execution", "calls"], ["does not go with"]),
        (["place", "{good}", "--budget", "soon"], ["'soon' is not a duration", "30s"]),
        (["place", "{good}", "--pin", "a"], ["--pin 'a'", "REGEX=DEVICE"]),
        (["place", "{good}", "--pin", "zzz=cpu0"], ["--pin 'zzz=cpu0'", "no operator matches"]),
        (["place", "{good}", "--forbid", "a=gpu"], ["no device or kind is called 'gpu'", "cpu"]),
        (["place", "{good}", "--pin", "(=cpu"], ["not a regular expression"]),
        (["place", "{good}", "--cluster", "p100x2"], ["holds its own devices"]),
        (["place", "{good}", "--schedule", "fast"], ["--schedule is 'fast'", "1f1b or gpipe"]),
        (["place", "zoo:nope"], ["unknown model 'zoo:nope'"]),
        (["place", "zoo:chain?ops=x"], ["option 'ops' is 'x'", "a whole number"]),
        (["place", "zoo:chain?opps=3"], ["no option 'opps'", "did you mean 'ops'"]),
        (["place", "zoo:chain?ops=0"], ["'ops' is '0'"]),
        (["place", "zoo:chain", "--cluster", "p100"], ["unknown cluster 'p100'", "p100x2"]),
        (["place", "zoo:chain", "--cluster", "{good}"], ["not valid TOML"]),
        (["place", "zoo:chain", "--nonsense"], ["No such option"]),
        (["place"], ["Missing argument"]),
        (["evaluate", "{good}", "{good}"], ["neither a placement", "nor a split"]),
        (["evaluate", "{good}", "{folder}"], ["is a directory"]),
        (["place", "{good}", "--placer", "single", "-o", "{folder}/no/such/file"], ["cannot be written"]),
    ],
)
def test_bad_arguments(
    arguments: list[str], parts: list[str], small_workload: dict[str, Any], write_json: Any, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    good = write_json(small_workload, "good.json")
    code = run([a.format(good=good, folder=tmp_path) for a in arguments])
    check_one_line(capsys, code, 2, parts)
    assert sorted(os.listdir(tmp_path)) == ["good.json"]


def test_an_unreadable_file(
    small_workload: dict[str, Any], write_json: Any, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = write_json(small_workload)

    def refuse(self: Path) -> bytes:  # a mode bit would not stop the superuser
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    check_one_line(capsys, run(["place", path]), 2, ["problem.json", "cannot be read: Permission denied"])


def test_a_file_that_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_bytes(b"\x89PNG\xff\xfe")
    check_one_line(capsys, run(["place", str(tmp_path / "x.json")]), 2, ["x.json", "is not UTF-8 text"])


def test_names_cannot_smuggle_control_characters(
    small_workload: dict[str, Any], write_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small_workload["nodes"][1]["name"] = "a\x1b[31m\nred\udfff[bold]x"
    path = write_json(small_workload)
    assert run(["place", path, "--objective", "throughput", "--placer", "single"]) == 0
    assert run(["place", path, "--pin", "red=cpu0", "--forbid", "red=cpu0"]) == 3
    output = capsys.readouterr()
    assert "\x1b[31m" not in output.out + output.err
    assert "\\x1b[31m\\nred" in output.err


MUTATIONS = 2500
STRANGE: list[Any] = [
    None, True, -1, 0, 1e400, float("nan"), 10**30, "x", "", [], {}, [[]], {"id": 1}, 0.5, "\ud800", 2**63, -0.0,
]  # fmt: skip


def mutated(document: Any, rng: random.Random) -> str:
    """One to three small damages somewhere in the document, or a cut or flipped byte in its text."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        at, key = document, rng.choice(list(document))
        while isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.85:
            at = at[key]
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        kind = rng.random()
        if kind < 0.2:
            del at[key]
        elif kind < 0.3 and isinstance(at, list):
            at.append(copy.deepcopy(at[key]))
        else:
            at[key] = copy.deepcopy(rng.choice(STRANGE))
        if not document:
            break
    text = json.dumps(document)
    if rng.random() < 0.2:
        text = text[: rng.randrange(len(text) + 1)]
    elif rng.random() < 0.1 and text:
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice('{}[],:"\x00é9') + text[i + 1 :]
    return text


def test_mutated_files_never_cause_a_traceback(
    small_workload: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(20260)
    split = {"fpgas": [{"load": -1, "nodes": [1, 2]}, {"nodes": [3, 5]}], "cpus": [{"nodes": []}], "maxLoad": -1}
    problem_path = tmp_path / "problem.json"
    placement_path = tmp_path / "placement.json"
    problem_path.write_text(json.dumps(small_workload))
    assert run(["place", str(problem_path), "--placer", "topo", "-o", str(placement_path), "--json"]) == 0
    placement = json.loads(placement_path.read_text())
    documents = [small_workload, published_like(1, 8, classes=True), published_like(2, 8, backward=True)]
    counts = {0: 0, 2: 0, 3: 0, 4: 0}
    for i in range(MUTATIONS):
        capsys.readouterr()
        if i % 3 == 0:
            (tmp_path / "mutant.json").write_text(mutated(split if i % 2 else placement, rng), errors="surrogatepass")
            command = ["evaluate", str(problem_path), str(tmp_path / "mutant.json")]
        else:
            (tmp_path / "mutant.json").write_text(mutated(documents[i % len(documents)], rng), errors="surrogatepass")
            command = ["place", str(tmp_path / "mutant.json"), "--placer", "single"]
        code = run([*command, "--objective", rng.choice(["latency", "throughput"]), "--json"])
        counts[code] += 1
        if code == 2:
            assert capsys.readouterr().err.count("\n") == 1
    assert counts[2] > MUTATIONS / 4
    assert counts[0] > MUTATIONS / 10
