"""Campaigns with a runner made of numbers: medians, scaling, stopping, resuming, copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.cluster import Cluster, DeviceKind
from placewright.cluster_file import load_cluster
from placewright.costs.measure import campaign, copies
from placewright.costs.measure.campaign import measure
from placewright.costs.measure.journal import Journal
from placewright.costs.measure.runner import Setting
from placewright.costs.measure.timing import median_and_spread
from placewright.errors import InputError
from placewright.graph import FloatArray
from placewright.profiles import graph_fingerprint
from placewright.zoo import zoo_graph

GRAPH = zoo_graph("chain?ops=3")
SETTINGS = {"what": "a test"}


class Numbers:
    """A runner whose runs last as long as it is told; ``stop_at`` presses Ctrl-C in that run."""

    groups = ((GRAPH.op_names[0], GRAPH.op_names[1]),)

    def __init__(self, name: str, stop_at: int | None = None) -> None:
        self.setting = Setting("numbers", name, 1, "f32", "none")
        self.runs = 0
        self.stop_at = stop_at

    def whole_s(self) -> float:
        self.runs += 1
        if self.runs == self.stop_at:
            raise KeyboardInterrupt
        return 12.0

    def op_times_s(self) -> tuple[FloatArray, float]:
        return np.array([1.0, 2.0, 3.0 + self.runs % 2]), 0.5


@pytest.fixture
def two_kinds(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(campaign, "copier", lambda source, target, size: lambda: size * 1e-9)
    return load_cluster("cores:f32+bf16")


def measured(cluster: Cluster, journal: Journal, repeats: int = 5, **options: Any) -> campaign.Finding:
    stop_at = options.pop("stop_at", {})
    runners: dict[str, Numbers] = options.pop("runners", {})

    def make(kind: DeviceKind) -> Numbers:
        runners[kind.name] = Numbers(kind.name, stop_at.get(kind.name))
        return runners[kind.name]

    return measure(GRAPH, cluster, cluster.kinds, make, repeats=repeats, journal=journal, **options)


def test_a_whole_campaign(two_kinds: Cluster) -> None:
    finding = measured(two_kinds, Journal(None, SETTINGS))
    profile = finding.profile
    assert finding.is_complete
    assert profile.time_s[:2, 0].tolist() == [1.0, 2.0]
    assert profile.is_measured.all()
    assert profile.groups == Numbers.groups
    assert profile.fingerprint == graph_fingerprint(GRAPH)
    m = profile.measurements["bf16"]
    assert (m.device, m.whole_s, m.sum_s, m.unattributed_s, m.scale, m.repeats) == ("bf16", 12.0, 6.0, 0.5, 1.0, 5)
    assert profile.copies["core* - core*"].fit() == pytest.approx((0.0, 1e9))
    assert profile.copies["core* - core*"].size_bytes == tuple(map(float, copies.COPY_SIZES_BYTES))


def test_calibration_scales_to_the_whole(two_kinds: Cluster) -> None:
    profile = measured(two_kinds, Journal(None, SETTINGS), calibrate=True).profile
    assert profile.time_s.sum(axis=0) == pytest.approx([12.0, 12.0])
    assert profile.measurements["f32"].scale == pytest.approx(12 / profile.measurements["f32"].sum_s)


def test_a_time_limit_leaves_at_least_three_passes(two_kinds: Cluster) -> None:
    profile = measured(two_kinds, Journal(None, SETTINGS), repeats=50, max_seconds=0.0).profile
    assert profile.measurements["f32"].repeats == 3


def test_stopping_keeps_what_is_measured_and_resuming_goes_on(two_kinds: Cluster, tmp_path: Path) -> None:
    side = tmp_path / "p.json.partial"
    warm_up = 3
    stopped = measured(two_kinds, Journal(side, SETTINGS), stop_at={"bf16": warm_up + 3})
    assert not stopped.is_complete
    assert [m.repeats for m in stopped.profile.measurements.values()] == [5, 2]
    assert stopped.profile.copies == {}
    runners: dict[str, Numbers] = {}
    resumed = measured(two_kinds, Journal(side, SETTINGS, resume=True), runners=runners)
    assert resumed.is_complete
    assert [m.repeats for m in resumed.profile.measurements.values()] == [5, 5]
    assert list(runners) == ["bf16"]  # the other one was complete
    assert runners["bf16"].runs == warm_up + 3


def test_stopping_before_the_first_pass(two_kinds: Cluster) -> None:
    with pytest.raises(InputError, match="stopped before anything was measured"):
        measured(two_kinds, Journal(None, SETTINGS), stop_at={"f32": 1})


def test_a_cut_off_line_is_dropped(tmp_path: Path) -> None:
    side = tmp_path / "s"
    journal = Journal(side, SETTINGS)
    journal.add("a", 1)
    journal.add("a", 2)
    text = side.read_text()
    side.write_text(text[: text.rindex("2")])
    resumed = Journal(side, SETTINGS, resume=True)
    assert resumed.found("a") == [1]
    resumed.add("a", 3)
    assert Journal(side, SETTINGS, resume=True).found("a") == [1, 3]
    assert Journal(side, SETTINGS).found("a") == []


@pytest.mark.parametrize("text", ["nonsense\n", json.dumps(SETTINGS) + "\n[1]\n", json.dumps(SETTINGS) + "\n{\n"])
def test_a_damaged_side_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "s").write_text(text)
    with pytest.raises(InputError, match="is damaged: delete it"):
        Journal(tmp_path / "s", SETTINGS, resume=True)


@pytest.mark.parametrize("finding", [["passes f32", [1, "x"]], ["passes f32", 3], ["setting f32", []]])
def test_strange_findings_of_an_earlier_run(finding: Any, two_kinds: Cluster, tmp_path: Path) -> None:
    (tmp_path / "s").write_text(json.dumps(SETTINGS) + "\n" + json.dumps(finding) + "\n")
    with pytest.raises(InputError, match="what an earlier run left is damaged"):
        measured(two_kinds, Journal(tmp_path / "s", SETTINGS, resume=True))


def test_a_side_file_of_another_measurement(tmp_path: Path) -> None:
    Journal(tmp_path / "s", SETTINGS)
    with pytest.raises(InputError, match="of another measurement"):
        Journal(tmp_path / "s", {"what": "else"}, resume=True)
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "no" / "s", SETTINGS)


def test_medians_and_their_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(3)
    median, spread = median_and_spread(rng.normal(5.0, 1.0, (25, 2000)))
    assert 0.90 < float((np.abs(median - 5.0) <= spread).mean()) < 0.99
    assert np.isnan(median_and_spread(np.ones((2, 1)))[1]).all()


def test_links_are_measured_once_per_direction() -> None:
    ends = [(link.name, a and a.name, b and b.name) for link, a, b in copies.link_ends(load_cluster("p100x4"))]
    expected = {("gpu* - gpu*", "gpu", "gpu"), ("gpu* - host", None, "gpu"), ("gpu* - host", "gpu", None)}
    assert len(ends) == len(expected)
    assert set(ends) == expected


def test_a_handover_takes_time_and_other_pairs_are_not_guessed() -> None:
    copy = copies.copier("cpu", "cpu", 1 << 20)
    assert copy is not None
    assert 0 < copy() < 10
    assert copies.copier("npu", "cpu", 1024) is None
