"""Constraints from a file: every placer obeys them, and what they make impossible is named as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright import load, open_placement, place
from placewright.cli.main import run
from placewright.constraints import Constraints, parse_constraints
from placewright.errors import InputError
from placewright.evaluate import check, prove_infeasible
from placewright.placers.registry import get_placer_class, is_installed, placer_names
from placewright.problems import Rule
from placewright.testing import random_problem

FILE = """
max_segments = 6
memory_margin = { gpu = "25%", gpu1 = "1GiB" }

[[pin]]
ops = "^matmul"
device = "gpu1"

[[forbid]]
names = ["add_2", "add_12"]
device = "gpu"

[[together]]
ops = "relu_"
"""
LEARNED = ("hsdag", "placeto", "rnn")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text(FILE)
    return str(path)


def test_what_a_file_says() -> None:
    found = parse_constraints(FILE, "rules.toml")
    assert found.max_segments == 6
    assert [(r.action, r.target) for r in found.rules] == [("pin", "gpu1"), ("forbid", "gpu"), ("together", "")]
    assert str(found.rules[0]) == "rules.toml: [[pin]] 1: ops = '^matmul', device = 'gpu1'"
    assert found.memory_margin["gpu"].share == 0.25
    assert found.memory_margin["gpu1"].size_bytes == 2**30


def test_margins_and_limits_compose(file: str) -> None:
    free, bound = (
        load("zoo:chain?ops=20", cluster="p100x2"),
        load("zoo:chain?ops=20", cluster="p100x2", constraints=file),
    )
    before, after = ([d.memory_bytes for d in p.cluster.devices] for p in (free, bound))
    assert after[0] == before[0] * 0.75
    assert after[1] == before[1] - 2**30
    assert after[2] == before[2]
    assert load("zoo:chain?ops=20", cluster="p100x2", constraints=file, max_segments=3).max_segments == 3
    assert load("zoo:chain?ops=20", cluster="p100x2", constraints=file, max_segments=9).max_segments == 6


@pytest.mark.parametrize("name", [n for n in placer_names() if n not in ("expert", *LEARNED)])
def test_every_placer_obeys(name: str, file: str) -> None:
    placer = get_placer_class(name)
    if not is_installed(placer):
        pytest.skip(f"'{name}' needs the extra '{placer.extra}'")
    execution = placer.executions[0]
    problem = load("zoo:chain?ops=20", cluster="p100x2", execution=execution, constraints=file)
    placement = place(problem, name, budget=0.3)
    if not placement.is_valid:  # found nothing, and says so: not every placer can keep segments few
        assert placement.device_of_op is None or {f.code for f in placement.faults} <= {"segments", "contiguity"}
        return
    devices = {n: placement.device_of(n) for n in problem.graph.op_names}
    assert {d for n, d in devices.items() if n.startswith("matmul")} == {"gpu1"}
    assert {devices["add_2"], devices["add_12"]} == {"cpu0"}
    assert len({d for n, d in devices.items() if "relu_" in n}) == 1
    assert placement.evaluation is not None
    assert placement.evaluation.segments <= 6


def test_a_saved_placement_keeps_them(file: str, tmp_path: Path) -> None:
    placement = place(load("zoo:chain?ops=20", cluster="p100x2", constraints=file), "anneal", budget=0.5)
    placement.save(tmp_path / "p.json")
    again = open_placement(tmp_path / "p.json")
    assert again.problem.rules == placement.problem.rules
    assert [str(r) for r in again.problem.rules] == [str(r) for r in placement.problem.rules]
    assert [d.memory_bytes for d in again.problem.cluster.devices] == pytest.approx(
        [d.memory_bytes for d in placement.problem.cluster.devices]
    )


WRONG = [
    ("[[pin]]\nops = 'x'", "[[pin]] 1: 'device' is missing"),
    ("[[pin]]\ndevice = 'gpu0'", "expected either 'ops', a regular expression, or 'names'"),
    ("[[pin]]\nops = '('\ndevice = 'gpu0'", "not a regular expression"),
    ("[[pin]]\nops = 'mutmul'\ndevice = 'gpu0'", "no operator matches; did you mean 'matmul_"),
    ("[[pin]]\nnames = ['matmul_l']\ndevice = 'gpu0'", "no operator is called 'matmul_l'; did you mean 'matmul_"),
    ("[[pin]]\nnames = [3]\ndevice = 'gpu0'", "expected a list of op names"),
    ("[[pin]]\nops = 'matmul'\ndevice = 'gpu7'", "no device or kind is called 'gpu7'; did you mean 'gpu' or"),
    ("[[pim]]\nops = 'x'", "unknown field 'pim'; did you mean 'pin'?"),
    ("pin = 3", "'pin' is not a list of tables"),
    ("max_segments = 0", "expected a whole number from 1"),
    ("memory_margin = '110%'", "expected less than 100%"),
    ("memory_margin = 'much'", "expected bytes, for example"),
    ("memory_margin = '1000TiB'", "less than the 1000 TiB that are to be left free"),
    ("[memory_margin]\ngpu9 = '1%'", "no device or kind is called 'gpu9'"),
    ("=", "not valid TOML"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[m for _, m in WRONG])
def test_what_is_wrong_is_said(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    for verb in (["place", "--placer", "single"], ["compare", "--placers", "single"]):
        code = run([verb[0], "zoo:chain?ops=20", "--cluster", "p100x2", *verb[1:], "--constraints", str(path)])
        error = capsys.readouterr().err
        assert (code, error.count("\n")) == (2, 1)
        assert message in error
        assert "rules.toml" in error


IMPOSSIBLE = [
    ("[[pin]]\nops = 'relu_13'\ndevice = 'gpu0'\n[[pin]]\nops = 'relu_13$'\ndevice = 'gpu1'",
     "[[pin]] 2: ops = 'relu_13$'"),
    ("[[together]]\nops = 'relu'\n[[pin]]\nops = 'relu_13'\ndevice = 'gpu0'\n[[forbid]]\nops = 'relu_13'\n"
     "device = 'gpu'",
     "[[forbid]] 1: ops = 'relu_13', device = 'gpu'"),
    ("max_segments = 1\n[[pin]]\nops = 'relu_13'\ndevice = 'gpu0'\n[[pin]]\nops = 'relu_15'\ndevice = 'gpu1'",
     "operators are bound to 2 devices, at most 1 segments are allowed"),
    ("[memory_margin]\ngpu0 = '99.9999%'\n[[pin]]\nops = '.'\ndevice = 'gpu0'",
     "[[pin]] 1: ops = '.', device = 'gpu0'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), IMPOSSIBLE)
def test_a_rule_that_makes_it_impossible_is_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    assert run(["place", "zoo:chain?ops=20", "--cluster", "p100x2", "--constraints", str(path)]) == 3
    assert message in capsys.readouterr().err


def test_evaluate_lists_what_breaks_them(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "p.json")
    assert run(["place", "zoo:chain?ops=20", "--cluster", "p100x2", "--placer", "single", "-o", out, "-q"]) == 0
    capsys.readouterr()
    command = ["evaluate", "zoo:chain?ops=20", out, "--cluster", "p100x2", "--constraints", file, "--json"]
    assert run(command) == 0
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert any("[[pin]] 1" in f["message"] or "[[forbid]] 1" in f["message"] for f in faults)


@pytest.mark.parametrize("seed", range(60))
def test_proofs_hold_against_enumeration(seed: int) -> None:
    """What is proven impossible has no valid placement at all."""
    rng = np.random.default_rng(seed)
    n = 5
    problem = random_problem(seed, n, 3, 2, "sequential", limits=True, unsupported=seed % 2 == 0)
    names, devices = problem.graph.op_names, problem.cluster.device_names
    rules = tuple(
        Rule(rng.choice(["pin", "forbid"]), f"^{names[rng.integers(n)]}$", str(rng.choice(devices))) for _ in range(4)
    )
    problem = Constraints(rules, max_segments=int(rng.integers(1, 4))).applied(problem)
    if not prove_infeasible(problem):
        return
    rows = np.array(np.meshgrid(*[range(3)] * n)).reshape(n, -1).T.astype(np.int32)
    assert all(check(problem, row) for row in rows)


def test_proofs_are_found_often_enough() -> None:
    def proven(seed: int) -> bool:
        problem: Any = random_problem(seed, 6, 2, 2, "sequential", limits=True)
        rules = (Rule("pin", ".", problem.cluster.device_names[0]),)
        return any(f.code == "crowded" for f in prove_infeasible(Constraints(rules).applied(problem)))

    assert sum(proven(seed) for seed in range(40)) >= 5


def test_constraints_must_name_real_ops() -> None:
    with pytest.raises(InputError, match="no operator is called 'nothing'"):
        load(
            "zoo:chain?ops=5", cluster="p100x2", constraints=parse_constraints('[[together]]\nnames = ["nothing"]', "c")
        )
