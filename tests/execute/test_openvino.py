"""OpenVINO executors: outputs unchanged, affinities where they belong, errors that name the op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from placewright.errors import InputError
from placewright.execute.openvino import HeteroModel, SplitRun, core_setup
from placewright.execute.openvino_split import model_segments, split_model, whole_placement

ov = pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
SETUPS = {"core0": core_setup(), "core1": core_setup()}
COMPUTING = ("stem", "stem_relu", "left", "right", "join", "head")


@pytest.fixture(scope="module")
def model() -> Any:
    """A stem, two branches that share a weight, a join and two results."""
    from openvino import opset13 as op

    rng = np.random.default_rng(0)
    weight = op.constant(rng.standard_normal((8, 8, 3, 3)).astype(np.float32) * 0.1, name="shared_weight")

    def convolution(x: Any, name: str) -> Any:
        return op.convolution(x, weight, [1, 1], [1, 1], [1, 1], [1, 1], name=name)

    x = op.parameter([1, 8, 12, 12], np.float32, name="x")
    stem = op.relu(convolution(x, "stem"), name="stem_relu")
    join = op.add(convolution(stem, "left"), convolution(stem, "right"), name="join")
    head = op.reduce_mean(join, op.constant(np.array([2, 3]), name="axes"), name="head")
    return ov.Model([op.result(head, name="mean"), op.result(stem, name="features")], [x], "branches")


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(model: Any, sample: np.ndarray) -> list[np.ndarray]:
    compiled = ov.Core().compile_model(model, "CPU", dict(core_setup().properties))
    return [np.array(v) for v in compiled([sample]).values()]


def placements() -> Iterator[dict[str, str]]:
    rng = np.random.default_rng(2)
    for _ in range(8):
        yield {name: f"core{rng.integers(2)}" for name in COMPUTING}


def test_the_split_model_gives_the_same_outputs(model: Any, sample: np.ndarray, expected: list[np.ndarray]) -> None:
    for placement in placements():
        run = SplitRun(model, placement, SETUPS)
        try:
            for _ in range(2):
                for ours, theirs in zip(run([sample]), expected, strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        finally:
            run.close()


def test_hetero_gets_the_affinities_of_every_op(model: Any, sample: np.ndarray, expected: list[np.ndarray]) -> None:
    for placement in placements():
        run = HeteroModel(model, placement, SETUPS)
        assert set(run.affinities) == {op.get_friendly_name() for op in model.get_ordered_ops()}
        runtime = {"core0": "CPU", "core1": "CPU2"}
        assert all(run.affinities[name] == runtime[placement[name]] for name in COMPUTING)
        for ours, theirs in zip(run([sample]), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_constants_follow_their_readers_and_results_their_producers(model: Any) -> None:
    placement = dict.fromkeys(COMPUTING, "core0") | {"head": "core1"}
    placed = whole_placement(model, placement)
    assert (placed["axes"], placed["mean"], placed["shared_weight"]) == ("core1", "core1", "core0")


def test_segments_end_where_another_device_waits(model: Any) -> None:
    placement = dict.fromkeys(COMPUTING, "core0") | {"right": "core1"}
    placed = whole_placement(model, placement)
    segment = model_segments(model, placed)
    assert segment["stem"] == segment["stem_relu"]
    assert segment["stem"] != segment["left"]  # 'right' need not wait for 'left'
    split = split_model(model, placed, segment)
    assert sorted(n for s in split.segments for n in s.op_names) == sorted(COMPUTING)
    assert all(source.part < s for s, part in enumerate(split.segments) for source in part.sources)


def test_a_run_of_ops_that_nobody_waits_for_is_one_segment(model: Any) -> None:
    placement = dict.fromkeys(COMPUTING, "core0") | {"left": "core1"}
    placed = whole_placement(model, placement)
    early = model_segments(model, placed, {"stem": 0.0, "stem_relu": 1.0, "right": 2.0, "left": 2.0, "join": 3.0})
    assert early["stem"] == early["stem_relu"] != early["right"]  # 'left' waits for the stem only
    assert early["join"] == early["head"] != early["right"]  # 'right' need not wait for 'left'
    alone = model_segments(model, whole_placement(model, dict.fromkeys(COMPUTING, "core0")))
    assert set(alone.values()) == {0}


def test_an_op_without_a_device_is_named(model: Any) -> None:
    placement = dict.fromkeys(COMPUTING, "core0")
    del placement["left"]
    with pytest.raises(InputError, match="no device for operator 'left' \\(Convolution\\)"):
        whole_placement(model, placement)


def test_a_device_that_is_not_there_is_named(model: Any) -> None:
    with pytest.raises(InputError, match="no device 'NPU' on this machine"):
        SplitRun(model, dict.fromkeys(COMPUTING, "npu0"), {"npu0": core_setup()._replace(runtime_device="NPU")})
