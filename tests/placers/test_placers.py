from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.api import load, place
from placewright.budget import Budget
from placewright.errors import InputError, MissingExtraError
from placewright.placers import Found, Placer, get_placer, get_placer_class, placer_names
from placewright.problems import Problem
from placewright.testing import PlacerContract

AUTOMATIC = [n for n in placer_names() if n != "expert"]
CASES = [(n, execution) for n in AUTOMATIC for execution in get_placer_class(n).executions]


class TestEveryPlacer(PlacerContract):
    @pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
    def case_of_placer(self, request: pytest.FixtureRequest) -> tuple[str, str]:
        return request.param  # type: ignore[no-any-return]

    @pytest.fixture
    def placer(self, case_of_placer: tuple[str, str]) -> Placer:
        try:
            return get_placer(case_of_placer[0])
        except MissingExtraError as error:
            pytest.skip(str(error))

    @pytest.fixture
    def execution(self, case_of_placer: tuple[str, str]) -> str:
        return case_of_placer[1]


def test_unknown_placer_gets_suggestions() -> None:
    with pytest.raises(InputError, match="unknown placer 'sinlge'; did you mean 'single'"):
        get_placer("sinlge")


def test_a_placer_refuses_options_it_does_not_know() -> None:
    with pytest.raises(InputError, match="does not take these options"):
        get_placer("single", split="x")


def test_third_party_placers_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class LastDevice(Placer):
        name = "last"
        summary = "everything on the last device"

        def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
            return Found(np.full(problem.n_ops, problem.n_devices - 1, dtype=np.int32))

    class Entry:
        name = "last"

        def load(self) -> type[Placer]:
            return LastDevice

    monkeypatch.setattr("placewright.placers.registry.entry_points", lambda **_: [Entry()])
    assert "last" in placer_names()
    assert isinstance(get_placer("last"), LastDevice)


def test_an_answer_that_breaks_a_limit_is_none() -> None:
    class Careless(Placer):
        name, summary = "careless", "everything on the first device"

        def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
            return Found(np.zeros(problem.n_ops, dtype=np.int32))

    problem = load("zoo:chain?ops=6", cluster="p100x2")
    devices = tuple(replace(d, memory_bytes=4.0) for d in problem.cluster.devices)
    small = problem.with_options(cluster=replace(problem.cluster, devices=devices), memory_bytes=np.ones(6))
    placement = Careless().place(small)
    assert placement.status == "timeout"
    assert placement.device_of_op is None
    assert "breaks a limit" in placement.note


def test_random_gets_better_with_more_evaluations() -> None:
    problem = load("zoo:layered?ops=60", cluster="p100x4")
    few = get_placer("random").place(problem, Budget(60, evaluations=2), 0)
    many = get_placer("random").place(problem, Budget(60, evaluations=2000), 0)
    assert many.value < few.value
    assert many.evaluations == 2000


def test_topo_balances_memory_and_keeps_stages_in_order() -> None:
    problem = load("zoo:chain?ops=64", cluster="p100x4", objective="throughput")
    placement = place(problem, "topo")
    assert placement.stage is not None
    assert (np.diff(placement.stage) >= 0).all()
    assert placement.value < place(problem, "single").value / 2


def test_expert_reads_a_split_and_lists_its_faults(small_workload: dict[str, Any], write_json: Any) -> None:
    problem = load(write_json(small_workload), objective="throughput")
    split = {"fpgas": [{"nodes": [1, 2, 3, 5]}], "cpus": []}
    placement = get_placer("expert", split=write_json(split, "split.json")).place(problem)
    assert placement.device_of_op is not None
    assert placement.value == pytest.approx(8.0)
    assert [f.code for f in placement.faults] == ["memory"]
    assert (placement.faults[0].limit, placement.faults[0].value) == (100.0, 110.0)


def test_expert_needs_a_file() -> None:
    with pytest.raises(InputError, match="--split FILE"):
        place(load("zoo:chain?ops=2"), "expert")


def test_an_infeasible_class_is_named(small_workload: dict[str, Any], write_json: Any, tmp_path: Path) -> None:
    small_workload["maxCPUs"] = 0
    small_workload["maxSizePerFPGA"] = 50.0
    placement = place(load(write_json(small_workload)), "single")
    assert placement.status == "infeasible"
    messages = " ".join(str(f) for f in placement.faults)
    assert "class of 2 operators that must stay together ('a', 'a grad') needs 60 B" in messages
    assert "all operators together need 110 B (110 bytes); all devices together hold 100 B" in messages


def test_a_saved_placement_reads_back_the_same(tmp_path: Path) -> None:
    from placewright.placement import read_placement

    problem = load("zoo:layered?ops=40", cluster="p100x2", objective="throughput")
    placement = place(problem, "topo")
    placement.save(tmp_path / "p.json")
    again = read_placement(tmp_path / "p.json", problem)
    assert again.value == placement.value
    assert again.device_of_op is not None
    assert placement.device_of_op is not None
    assert again.device_of_op.tolist() == placement.device_of_op.tolist()
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["assignment"][problem.graph.op_names[0]] == placement.device_of(problem.graph.op_names[0])
