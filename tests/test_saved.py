"""A saved placement says what it was made of, and is opened again with nothing else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright import InputError, Rule, load, open_placement, place
from placewright.placement import checked_placement


def saved(folder: Path, **options: Any) -> tuple[Any, Path]:
    placement = place(load("zoo:layered?ops=40", cluster="p100x2", **options), placer="topo")
    placement.save(folder / "placement.json")
    return placement, folder / "placement.json"


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_round_trip(tmp_path: Path, objective: str) -> None:
    before, file = saved(tmp_path, objective=objective, max_segments=7, contiguous=False, communication="overlapped")
    after = open_placement(file)
    assert after.value == before.value
    assert after.bound == pytest.approx(before.bound)
    assert after.status == before.status
    assert np.array_equal(after.device_of_op, before.device_of_op)
    assert after.problem.settings() == before.problem.settings()
    assert (after.problem.max_segments, after.problem.communication) == (7, "overlapped")


def test_rules_and_seed_come_back(tmp_path: Path) -> None:
    rules = (Rule("pin", ".*", "gpu"),)
    before, file = saved(tmp_path, rules=rules)
    after = open_placement(file)
    assert after.problem.rules == rules
    assert (after.seed, after.placer, after.evaluations) == (before.seed, before.placer, before.evaluations)


def test_a_better_bound_is_kept_only_while_the_value_holds(tmp_path: Path) -> None:
    problem = load("zoo:layered?ops=40", cluster="p100x2")
    row = np.zeros(problem.n_ops, dtype=np.int32)
    bound = checked_placement(problem, row, placer="x").value * 0.999
    checked_placement(problem, row, placer="x", bound=bound).save(tmp_path / "p.json")
    assert open_placement(tmp_path / "p.json").bound == pytest.approx(bound)
    document = json.loads((tmp_path / "p.json").read_text())
    document["value"] *= 2
    (tmp_path / "p.json").write_text(json.dumps(document))
    assert open_placement(tmp_path / "p.json").bound < bound


def test_an_older_file_asks_for_its_model(tmp_path: Path) -> None:
    before, file = saved(tmp_path)
    document = json.loads(file.read_text())
    del document["problem"]
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match="pass --model"):
        open_placement(file)
    assert open_placement(file, "zoo:layered?ops=40", "p100x2").value == before.value


def test_files_are_found_beside_the_placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    monkeypatch.chdir(home)
    node = {"supportedOnFpga": 1, "cpuLatency": 20, "fpgaLatency": 2, "isBackwardNode": 0, "size": 80}
    document = {
        "maxSizePerFPGA": 100,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [{"id": i, "name": f"n{i}", **node} for i in range(2)],
        "edges": [{"sourceId": 0, "destId": 1, "cost": 0.5, "size": 1000}],
    }
    Path("problem.json").write_text(json.dumps(document))
    placement = place(load("problem.json", objective="throughput"), placer="topo")
    placement.save("placement.json")
    monkeypatch.chdir(away)
    assert open_placement(home / "placement.json").value == placement.value


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model": "zoo:no-such-model"}, "no-such-model"),
        ({"options": {"rules": [{"action": "wish", "pattern": "x"}]}}, "expected pin, forbid or together"),
        ({"options": {"max_segments": -3}}, "segments"),
        ({"options": []}, "expected an object"),
        ({"shapes": {"x": "1,2"}}, "not a list of whole numbers"),
    ],
)
def test_nonsense_is_one_clear_error(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    _, file = saved(tmp_path)
    document = json.loads(file.read_text())
    document["problem"] |= change
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=expected):
        open_placement(file)


ODD: list[Any] = [
    None,
    True,
    -1,
    10**400,
    float("nan"),
    "",
    "x" * 5000,
    "\0",
    [],
    {},
    [None],
    {"": 0},
    "zoo:",
    "..",
    1e308,
]


@pytest.mark.parametrize("seed", range(60))
def test_odd_files_never_cause_a_traceback(tmp_path: Path, seed: int) -> None:
    from placewright.reports.contents import report_contents

    rng = np.random.default_rng(seed)
    _, file = saved(tmp_path, rules=(Rule("forbid", "0$", "cpu"),))
    document = json.loads(file.read_text())
    document |= {"measured": {"measured_s": 1.0, "interval_s": [1, 2]}, "curve": {"best": [1.0, 1.0], "mean": [1, 2]}}
    for _ in range(rng.integers(1, 4)):
        place_of, key = document, str(rng.choice(list(document)))
        while isinstance(place_of[key], dict) and place_of[key] and rng.random() < 0.7:
            place_of = place_of[key]
            key = str(rng.choice(list(place_of)))
        place_of[key] = ODD[rng.integers(len(ODD))]
    file.write_text(json.dumps(document))
    with contextlib.suppress(InputError):
        placement = open_placement(file)
        json.dumps(report_contents([placement], ["odd"]), allow_nan=False)
