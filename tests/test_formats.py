"""Files of ours that older versions wrote, kept under ``formats/``, still open; those of newer ones are refused.

``NAME-0`` is from before the format had a number.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright import build_graph, build_problem, load, read_constraints
from placewright.cluster import Cluster, Device, DeviceKind, Link
from placewright.cluster_file import load_cluster
from placewright.costs.measure.journal import Journal
from placewright.errors import InputError
from placewright.execute.memo import Measurement, Memo
from placewright.problems import Problem
from placewright.profile_file import read_profile
from placewright.profiles import modelled_profile
from placewright.saved import open_placement

KEPT = Path(__file__).parent / "formats"


def problem_of_the_checkpoint() -> Problem:
    """With times of its own: no change of the cost model makes it another problem."""
    pcie = Link("pcie", bandwidth_bytes_per_s=12e9, latency_s=1e-5)
    box = Cluster(
        "box",
        kinds=(DeviceKind("gpu"), DeviceKind("cpu", is_host=True)),
        devices=(Device("gpu0", "gpu"), Device("cpu0", "cpu")),
        to_host={"gpu0": pcie},
        from_host={"gpu0": pcie},
    )
    graph, _ = build_graph("three", ["a", "b", "c"], [(0, 4e6, [1]), (1, 8e6, [2])])
    times = np.array([[1e-3, 2e-3], [1e-3, 9e-3], [5e-3, 1e-3]])
    return build_problem(graph, box, modelled_profile(graph.op_names, ("gpu", "cpu"), times, source="me"))


def school() -> Any:
    from placewright.placers.learned.hsdag_settings import settings_for
    from placewright.placers.learned.schooling import School

    return School([problem_of_the_checkpoint()], settings_for("ours", hidden=4), 60, 1)


def open_checkpoint(file: Path) -> None:
    pytest.importorskip("torch")
    from placewright.placers.learned.schooling import checkpoint_of

    resumed = school()
    checkpoint = checkpoint_of(resumed, file.with_suffix(""))
    assert checkpoint.path == file
    assert checkpoint.load(resumed)
    assert resumed.learners[0].trials.evaluations > 2
    assert resumed.step() is not None


def open_policy(file: Path) -> None:
    pytest.importorskip("safetensors")
    from placewright.placers.learned.policy_file import load_policy

    assert load_policy(file, "hsdag").settings["hidden"] == 4


def open_memo(file: Path) -> None:
    with Memo(file, "here") as memo:
        assert memo.find("p") == Measurement((1.0, 2.0))
        assert memo.assignments() == {"p": {"a": "gpu0"}}


def open_saved(file: Path) -> None:
    assert open_placement(file).problem.max_segments == 4


def open_profile(file: Path) -> None:
    assert load("zoo:chain?ops=3", cluster="p100x2", profile=read_profile(file)).n_ops == 3


def open_cluster(file: Path) -> None:
    assert load_cluster(str(file)).device_names == ("gpu0", "gpu1", "cpu0")


def open_constraints(file: Path) -> None:
    assert read_constraints(file).max_segments == 4


def open_journal(file: Path) -> None:
    assert Journal(file, {"model": "m"}, resume=True).found("passes gpu") == [[1.0, 0.1, 0.5, 0.4]]


OPEN: dict[str, Callable[[Path], None]] = {
    "placement": open_saved,
    "profile": open_profile,
    "cluster": open_cluster,
    "constraints": open_constraints,
    "measurement": open_journal,
    "memo": open_memo,
    "policy": open_policy,
    "checkpoint": open_checkpoint,
}


def kept_files() -> list[str]:
    return sorted(file.name for file in KEPT.iterdir())


@pytest.mark.parametrize("name", kept_files())
def test_older_files_open(name: str, tmp_path: Path) -> None:
    shutil.copy(KEPT / name, tmp_path / name)
    OPEN[name.partition("-")[0]](tmp_path / name)


def test_every_format_has_its_present_version_kept() -> None:
    kept = {name.partition(".")[0] for name in kept_files()}
    assert {f"{kind}-1" for kind in OPEN} <= kept


@pytest.mark.parametrize("kind", sorted(OPEN))
def test_newer_files_are_refused(kind: str, tmp_path: Path) -> None:
    (kept,) = KEPT.glob(f"{kind}-1.*")
    file = tmp_path / kept.name
    shutil.copy(kept, file)
    if kind == "memo":
        with sqlite3.connect(file) as database:
            database.execute("pragma user_version=3")
    elif kind == "checkpoint":
        torch = pytest.importorskip("torch")
        torch.save({**torch.load(file), "format": "placewright-checkpoint/3"}, file)
    else:
        ours = f"placewright-{kind}/1".encode()
        assert ours in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(ours, f"placewright-{kind}/3".encode()))
    expected = rf"{file.name}: {kind} format 3, this placewright \S+ reads up to 1; upgrade placewright$"
    with pytest.raises(InputError) as caught:
        OPEN[kind](file)
    assert re.search(expected, str(caught.value))


def test_a_format_that_is_none(tmp_path: Path) -> None:
    document = json.loads((KEPT / "placement-1.json").read_text())
    for wrong in ("placewright-placement/", "placewright-placement/x", "placewright-profile/1", 1, None):
        (tmp_path / "p.json").write_text(json.dumps({**document, "format": wrong}))
        with pytest.raises(InputError, match=r"p\.json"):
            open_placement(tmp_path / "p.json")
