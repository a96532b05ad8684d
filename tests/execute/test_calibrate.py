"""Calibration: the cost of cuts is found again, and it goes into the profile and from there into problems."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import placewright as pw
from placewright.cli.main import run as command_line
from placewright.costs.roofline import roofline_profile
from placewright.evaluate import evaluate_many
from placewright.execute.calibrate import fitted_copies, rank_correlation
from placewright.execute.diverse import diverse_placements
from placewright.problems import Problem, build_problem
from placewright.profiles import Profile
from placewright.testing import random_problem


@pytest.fixture(scope="module")
def problem() -> Problem:
    return pw.load("zoo:inception-v3", cluster="cores:2")


def test_known_costs_of_cuts_are_found_again(problem: Problem) -> None:
    rows = diverse_placements(problem, 14, seed=0)
    sizes = problem.graph.tensor_bytes[:, None]
    true = replace(problem, tensor_copy_s=problem.tensor_copy_s + np.where(sizes > 0, 120e-6 + sizes * 0.7e-9, 0.0))
    fit = fitted_copies(problem, rows, evaluate_many(true, rows).value)
    assert fit.copy_latency_s == pytest.approx(120e-6, rel=0.05)
    assert fit.copy_s_per_byte == pytest.approx(0.7e-9, rel=0.05)
    assert fit.error_after < 0.002 < 0.02 < fit.error_before
    assert fit.rank_correlation > 0.99


def test_placements_are_diverse_valid_and_distinct(problem: Problem) -> None:
    rows = diverse_placements(problem, 24, seed=3)
    assert len(rows) == len({row.tobytes() for row in rows}) == 24
    assert evaluate_many(problem, rows).is_valid.all()
    assert [set(row.tolist()) for row in rows[:2]] == [{0}, {1}]
    moves = [(np.diff(row) != 0).sum() for row in rows[2:]]
    assert min(moves) < 20 < max(moves)
    assert (diverse_placements(problem, 24, seed=3) == rows).all()


@pytest.mark.parametrize("seed", range(30))
def test_placements_keep_the_rules_of_any_problem(seed: int) -> None:
    any_problem = random_problem(seed, n_ops=12, n_devices=3, n_kinds=2, execution="overlap")
    rows = diverse_placements(any_problem, 5, seed)
    assert rows.shape[1] == any_problem.n_ops
    if len(rows):
        assert evaluate_many(any_problem, rows).is_valid.all()


def test_one_device_has_nothing_to_cut() -> None:
    assert len(diverse_placements(pw.load("zoo:fork-join", cluster="cores:1"), 5)) == 1


def test_overheads_of_a_profile_replace_those_of_the_cluster(problem: Problem) -> None:
    profile = replace(roofline_profile(problem.graph, problem.cluster), segment_overhead_s={"f32": 1.5e-3})
    built = build_problem(problem.graph, problem.cluster, profile)
    assert built.cluster.kinds[0].segment_overhead_s == 1.5e-3


def test_equal_values_share_their_rank() -> None:
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])) == 1
    assert rank_correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == 0


def test_the_command_line_executes_placements_and_says_how_right_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
    from placewright.costs.machine import core_count

    file = str(tmp_path / "profile.json")
    arguments = ["profile", "zoo:inception-v3?image=80", "--cluster", "cores:2", "--runtime", "openvino"]
    assert command_line([*arguments, "--repeats", "2", "--calibrate", "-o", file, "--json"]) == 0
    out = capsys.readouterr()
    if core_count() < 2:
        assert "fewer cores here" in out.err
        return
    summary = json.loads(out.out)["profiles"][0]
    assert summary["calibration"]["placements"] == 10
    assert 0 < summary["segment_overhead_s"]["f32"] < 0.01
    again = Profile.load(file)
    assert again.calibration is not None
    assert again.calibration.placements == 10
    assert again.merge(again).calibration == again.calibration
    assert command_line(["profile", "--list", file]) == 0
    assert "calibrated with 10 executed placements" in capsys.readouterr().out
