"""Profiles as files, merged, refused, and what they do to a problem."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placewright as pw
from placewright import profile_file
from placewright.cli.main import run
from placewright.cli.profile import doubts
from placewright.graph import OpGraph
from placewright.profiles import (
    Calibration,
    CopyCurve,
    Measurement,
    Profile,
    colocated,
    graph_fingerprint,
    modelled_profile,
    united_groups,
)
from placewright.zoo import zoo_graph

MEASUREMENT = Measurement("torch", "cpu", 2, "f32", 5, 0.5, 0.01, 0.4, 1.25, 0.1, "a box", "torch 2", "2026-01-01")


def profile_of(graph: OpGraph, kinds: tuple[str, ...] = ("gpu", "cpu"), **options: Any) -> Profile:
    rng = np.random.default_rng(0)
    shape = (graph.n_ops, len(kinds))
    return Profile(
        op_names=graph.op_names,
        kinds=kinds,
        time_s=np.round(rng.random(shape), 4),
        is_measured=np.ones(shape, dtype=np.bool_),
        spread_s=np.full(shape, 0.001),
        copies={"gpu* - host": CopyCurve((1e3, 1e6), (1e-5, 1e-4))},
        measurements=dict.fromkeys(kinds, MEASUREMENT),
        model=graph.name,
        fingerprint=graph_fingerprint(graph),
        source="measured",
        **options,
    )


def test_round_trip(tmp_path: Path) -> None:
    graph = zoo_graph("chain?ops=4")
    before = profile_of(graph, groups=((graph.op_names[0], graph.op_names[1]),))
    before.time_s[1, 0], before.time_s[2, 1] = math.inf, math.nan
    before.is_measured[1, 0] = False
    before.save(tmp_path / "p.json")
    after = Profile.load(tmp_path / "p.json")
    np.testing.assert_array_equal(after.time_s, before.time_s)
    np.testing.assert_array_equal(after.is_measured, before.is_measured)
    np.testing.assert_array_equal(after.spread_s, before.spread_s)
    for name in ("op_names", "kinds", "copies", "groups", "measurements", "model", "fingerprint", "source"):
        assert getattr(after, name) == getattr(before, name)


def test_a_calibration_that_orders_placements_wrongly_is_kept(tmp_path: Path) -> None:
    poor = Calibration(10, 1e-5, 1e-9, 0.3, 0.2, rank_correlation=-0.37)
    profile_of(zoo_graph("chain?ops=4"), calibration=poor).save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json").calibration == poor


def test_what_was_measured_on_a_busy_machine_is_doubted() -> None:
    fine = profile_of(zoo_graph("chain?ops=4"), calibration=Calibration(10, 1e-5, 1e-9, 0.3, 0.02, 0.9))
    assert list(doubts(fine)) == []
    useless = replace(fine, calibration=Calibration(10, 1e-5, 1e-9, 0.3, 0.1, rank_correlation=0.01))
    (doubt,) = doubts(useless)
    assert "calibration is of little use" in doubt
    assert "rank correlation of 0.01" in doubt
    wide = replace(fine, measurements={"gpu": replace(MEASUREMENT, whole_spread_s=0.1), "cpu": MEASUREMENT})
    (doubt,) = doubts(wide)
    assert "'gpu' took 500 ms give or take 20%" in doubt


def test_a_profile_of_another_model_is_refused_naming_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.json"
    profile_of(zoo_graph("chain?ops=4")).save(path)
    assert run(["place", "zoo:chain?ops=4", "--cluster", "p100x2", "--profile", str(path), "--placer", "single"]) == 0
    capsys.readouterr()
    assert run(["place", "zoo:fork-join", "--cluster", "p100x2", "--profile", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for part in ("'chain'", "'fork-join'", graph_fingerprint(zoo_graph("chain?ops=4"))[:12]):
        assert part in error


@pytest.mark.parametrize("option", ["batch=2", "dtype=bfloat16", "training=1"])
def test_another_form_of_the_same_model_is_another_model(option: str) -> None:
    profile = profile_of(zoo_graph("resnet-50"))
    with pytest.raises(pw.InputError, match="the profile is of model 'resnet-50'"):
        pw.load(f"zoo:resnet-50?{option}", cluster="p100x2", profile=profile)


def test_a_missing_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.json"
    profile_of(zoo_graph("chain?ops=4"), ("cpu",)).save(path)
    assert run(["place", "zoo:chain?ops=4", "--cluster", "p100x2", "--profile", str(path)]) == 2
    assert "no times for device kind 'gpu'; it knows cpu" in capsys.readouterr().err


def _without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda d: d.pop(key)


BAD: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "other format": (lambda d: d.update(format="x"), 'expected "format": "placewright-profile/1"'),
    "no ops": (_without("ops"), "field 'ops' is missing"),
    "no kinds": (_without("kinds"), "field 'kinds' is missing"),
    "empty kinds": (lambda d: d.update(kinds={}), "'kinds' is empty"),
    "ops twice": (lambda d: d.update(ops=["a"] * 4), "must be distinct names"),
    "op without name": (lambda d: d["ops"].__setitem__(0, 3), "op is 3, expected text"),
    "short column": (lambda d: d["kinds"]["cpu"]["time_s"].pop(), "kind 'cpu': time_s: expected 4 numbers"),
    "negative time": (lambda d: d["kinds"]["cpu"]["time_s"].__setitem__(0, -1), "-1 is not a finite number >= 0"),
    "NaN time": (lambda d: d["kinds"]["cpu"]["time_s"].__setitem__(0, math.nan), "nan is not a finite number"),
    "text as time": (lambda d: d["kinds"]["cpu"]["time_s"].__setitem__(0, "1"), "'1' is not a finite number"),
    "strange flag": (lambda d: d["kinds"]["cpu"].update(is_measured=[1]), "is_measured must be true, false"),
    "curve": (lambda d: d["copies"]["gpu* - host"].update(size_bytes=[2, 1]), "sizes ascending"),
    "measurement": (lambda d: d["measurements"]["cpu"].pop("whole_s"), "field 'whole_s' is missing"),
    "group": (lambda d: d.update(groups=[[1]]), "op is 1, expected text"),
    "huge number": (lambda d: d["kinds"]["cpu"]["time_s"].__setitem__(0, 10**400), "not a valid profile"),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_profiles(case: str, write_json: Any, tmp_path: Path) -> None:
    edit, message = BAD[case]
    profile_of(zoo_graph("chain?ops=4")).save(tmp_path / "good.json")
    document = json.loads((tmp_path / "good.json").read_text())
    edit(document)
    with pytest.raises(pw.InputError, match=message) as error:
        Profile.load(write_json(document, "bad.json"))
    assert "bad.json" in str(error.value)


def test_mutated_profiles_never_cause_another_error(tmp_path: Path) -> None:
    from cli.test_bad_input import mutated

    profile_of(zoo_graph("chain?ops=4")).save(tmp_path / "good.json")
    document = json.loads((tmp_path / "good.json").read_text())
    rng, refused = random.Random(5), 0
    for _ in range(400):
        (tmp_path / "mutant.json").write_text(mutated(document, rng), errors="surrogatepass")
        try:
            pw.load("zoo:chain?ops=4", cluster="p100x2", profile=tmp_path / "mutant.json")
        except pw.InputError:
            refused += 1
    assert 100 < refused < 400


def test_merging() -> None:
    graph = zoo_graph("chain?ops=4")
    cpu, both = profile_of(graph, ("cpu",)), profile_of(graph)
    both.time_s[2, 1] = math.nan  # not known there
    merged = cpu.merge(both)
    assert merged.kinds == ("cpu", "gpu")
    np.testing.assert_array_equal(merged.time_s[:, 1], both.time_s[:, 0])
    assert merged.time_s[2, 0] == cpu.time_s[2, 0]
    assert merged.time_s[0, 0] == both.time_s[0, 1]
    assert set(merged.measurements) == {"cpu", "gpu"}
    with pytest.raises(pw.InputError, match=r"profiles of different models cannot be merged: 'chain'.*'fork-join'"):
        cpu.merge(profile_of(zoo_graph("fork-join")))


def test_merging_follows_names_not_order() -> None:
    graph = zoo_graph("chain?ops=4")
    first = profile_of(graph, ("cpu",))
    turned = replace(
        first, kinds=("gpu",), op_names=first.op_names[::-1], time_s=first.time_s[::-1], spread_s=first.spread_s[::-1]
    )
    merged = first.merge(turned)
    np.testing.assert_array_equal(merged.time_s[:, 0], merged.time_s[:, 1])


def test_list_and_merge_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = zoo_graph("chain?ops=4")
    for kind in ("cpu", "gpu"):
        profile_of(graph, (kind,)).save(tmp_path / f"{kind}.json")
    files = [str(tmp_path / "cpu.json"), str(tmp_path / "gpu.json")]
    assert run(["profile", "--merge", *files, "-o", str(tmp_path / "both.json")]) == 0
    assert "times scaled by 1.25" in capsys.readouterr().out
    assert Profile.load(tmp_path / "both.json").kinds == ("cpu", "gpu")
    assert run(["profile", "--list", *files, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["profiles"]
    assert [list(p["kinds"]) for p in listed] == [["cpu"], ["gpu"]]
    assert listed[0]["kinds"]["cpu"]["whole_s"] == 0.5
    assert run(["profile", "--merge", *files]) == 2
    assert "--merge needs -o" in capsys.readouterr().err


def test_a_set_of_profiles_by_name_and_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_file, "_shipped", lambda: tmp_path)
    folder = tmp_path / "my-box"
    folder.mkdir()
    for reference in ("chain?ops=4", "chain?ops=5", "fork-join"):
        profile_of(zoo_graph(reference)).save(folder / f"{reference.replace('?', '_')}.json")
    for name in ("my-box", folder):
        problem = pw.load("zoo:chain?ops=5", cluster="p100x2", profile=name)
        np.testing.assert_array_equal(problem.op_time_s, profile_of(zoo_graph("chain?ops=5")).time_s)
    with pytest.raises(pw.InputError, match=r"my-box: no profile there is of model 'chain'.*it has"):
        pw.load("zoo:chain?ops=6", cluster="p100x2", profile="my-box")
    with pytest.raises(pw.InputError, match=r"unknown profile 'my-bx'.*did you mean 'my-box'"):
        pw.load("zoo:chain?ops=6", cluster="p100x2", profile="my-bx")
    with pytest.raises(pw.InputError, match="cannot be read"):
        pw.load("zoo:chain?ops=6", cluster="p100x2", profile=tmp_path / "no.json")


def test_fused_groups_stay_together() -> None:
    graph = zoo_graph("chain?ops=6")
    names = graph.op_names
    profile = profile_of(graph, groups=((names[1], names[2]), (names[4], names[5])))
    problem = pw.load("zoo:chain?ops=6", cluster="p100x2", profile=profile)
    assert problem.group_of_op.tolist() == [0, 1, 1, 3, 4, 4]
    placed = pw.place(problem, placer="random", budget=1, seed=1)
    assert placed.device_of(names[1]) == placed.device_of(names[2])


def test_groups_join_existing_classes() -> None:
    graph = zoo_graph("chain?ops=6")
    classed = replace(graph, colocation=np.array([7, 7, -1, -1, 3, 3], dtype=np.int32))
    names = graph.op_names
    joined = colocated(classed, [(names[1], names[2]), ("gone", names[3])]).colocation
    assert joined[0] == joined[1] == joined[2] >= 0
    assert joined[4] == joined[5] >= 0
    assert len({int(joined[0]), int(joined[3]), int(joined[4])}) == 3


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=4), max_size=8))
def test_united_groups_are_the_connected_components(groups: list[list[str]]) -> None:
    component = {c: {c} for c in "abcdefgh"}
    for _ in range(8):  # more rounds than a chain of eight needs
        for group in groups:
            union: set[str] = set().union(*(component[c] for c in group))
            for c in union:
                component[c] = union
    expected = {frozenset(s) for s in component.values() if len(s) > 1}
    found = united_groups(groups)
    assert {frozenset(g) for g in found} == expected
    assert all(len(set(g)) == len(g) for g in found)


def test_copy_curves_and_their_line() -> None:
    sizes = tuple(float(2**k) for k in range(10, 27, 2))
    curve = CopyCurve(sizes, tuple(1e-5 + s / 2e10 for s in sizes))
    latency_s, bandwidth = curve.fit()
    assert latency_s == pytest.approx(1e-5, rel=1e-6)
    assert bandwidth == pytest.approx(2e10, rel=1e-6)
    assert curve.copy_s(np.array([0.0, 2.0**30])) == pytest.approx([0.0, 1e-5 + 2**30 / 2e10])
    assert CopyCurve((10.0,), (2.0,)).fit() == (0.0, 5.0)
    falling = CopyCurve((1.0, 2.0), (2.0, 1.0)).fit()
    assert falling[0] >= 0 < falling[1]


def test_a_modelled_profile_needs_no_fingerprint() -> None:
    graph = zoo_graph("chain?ops=4")
    modelled_profile(graph.op_names, ("cpu",), np.ones((4, 1)), "by hand").check_fits(zoo_graph("fork-join"))
