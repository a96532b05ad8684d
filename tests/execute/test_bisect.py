"""``run --bisect``: the first segment that differs is found, be it wrong or only of another precision."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright as pw
from placewright.cli.main import run as command_line
from placewright.execute.bisect import bisect_placement
from placewright.execute.live import LiveModel, open_live
from placewright.execute.outputs import difference
from placewright.execute.stages import StagedModel
from placewright.placement import Placement, checked_placement

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
MODEL = "zoo:resnet-50?image=32"


@pytest.fixture(scope="module")
def live() -> LiveModel:
    return open_live(MODEL, "openvino")


def in_runs(cluster: str, runs: int) -> Placement:
    """Ops in turn on two devices."""
    problem = pw.load(MODEL, cluster=cluster)
    return checked_placement(problem, np.arange(problem.n_ops) * runs // problem.n_ops % 2, placer="test")


def spoiled(live: LiveModel, number: int) -> LiveModel:
    """Adds to what one segment gives, on the second device only."""

    def staged(devices: Any, stage: Any, cluster: Any) -> StagedModel:
        right = live.staged(devices, stage, cluster)
        if len(set(devices.values())) == 1:
            return right
        parts = list(right.parts)
        parts[number] = parts[number]._replace(make=lambda: wrong(right.parts[number].make()))
        return right._replace(parts=tuple(parts))

    def wrong(run: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        return lambda values: [v + np.float32(0.5) * np.abs(v).max() for v in run(values)]

    return live._replace(staged=staged)


def test_nothing_differs_between_equal_devices(live: LiveModel) -> None:
    found = bisect_placement(live, in_runs("cores:2", 6))
    assert found.first is None
    assert len(found.segments) > 4
    assert all(s.total < 1e-5 for s in found.segments)


@pytest.mark.parametrize("number", [0, 3])
def test_a_wrong_segment_is_found(live: LiveModel, number: int) -> None:
    found = bisect_placement(spoiled(live, number), in_runs("cores:2", 6))
    assert found.first is not None
    assert found.first.number == number
    assert found.first.own == pytest.approx(0.5, rel=0.1)
    assert sum(s.own > found.tolerance for s in found.segments) == 1  # those after it are right, fed rightly


def test_another_precision_differs_from_its_first_segment_on(
    live: LiveModel, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from placewright.costs.machine import has_bf16

    if not has_bf16():
        pytest.skip("this processor has no bf16 arithmetic")
    placement = in_runs("cores:f32+bf16", 4)
    file = str(tmp_path / "placement.json")
    placement.save(file)
    command = ["run", MODEL, file, "--cluster", "cores:f32+bf16", "--bisect"]
    found = bisect_placement(live, placement)
    assert found.first is not None
    assert found.first.device == "core1"
    assert 1e-4 < found.first.own < 0.1
    assert all(s.device == "core0" for s in found.segments[: found.first.number])
    assert command_line(command) == 0
    assert "computes in bf16, so a difference is expected" in capsys.readouterr().out
    assert command_line([*command, "--tolerance", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["first"] is None


@pytest.mark.parametrize("runtime", ["torch"])
def test_other_runtimes_are_cut_in_the_same_way(runtime: str) -> None:
    found = bisect_placement(open_live(MODEL, runtime), in_runs("cores:2", 6))
    assert found.first is None
    assert len(found.segments) > 4


def test_what_is_no_number_is_infinitely_far_off() -> None:
    assert difference(np.array([np.nan, 1.0]), np.array([0.0, 1.0])).max_rel == np.inf
    assert difference(np.array([np.inf, 1.0]), np.array([np.inf, 1.0])).max_rel == 0
