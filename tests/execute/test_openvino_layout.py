"""Channels last between sub-models: the same outputs, no change of layout at a cut, results as the model has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.execute import openvino as runtime
from placewright.execute.openvino import Compiler, SplitRun, core_setup
from placewright.execute.openvino_layout import kept_transpositions, values_channels_last
from placewright.execute.openvino_split import model_segments, split_model, whole_placement

ov = pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
SETUPS = {"core0": core_setup(), "core1": core_setup()}
CHANNELS = 16


class Net:
    """A random graph of convolutions and of all kinds of ops that may stand between them; all values are alike."""

    def __init__(self, seed: int, n_space: int, n_ops: int = 9) -> None:
        from openvino import opset13 as op

        self._rng, self._n_space = np.random.default_rng(seed), n_space
        size = [1, CHANNELS, *[6] * n_space]
        x = op.parameter(size, np.float32, name="x")
        self.values = [x.output(0)]
        self.names: list[str] = []
        for number in range(n_ops):
            made = self._op(number)
            self.values.append(made.output(0))
        flat = op.reshape(self.values[-2], np.array([1, -1]), False, name="flat")
        self.names.append("flat")
        results = [op.result(self.values[-1]), op.result(flat), op.result(self.values[n_ops // 2])]
        self.model = ov.Model(results, [x], "net")
        self.sample = self._rng.standard_normal(size).astype(np.float32)

    def _op(self, number: int) -> Any:
        from openvino import opset13 as op

        one = [1] * self._n_space
        a, b = (self.values[self._rng.integers(len(self.values))] for _ in range(2))
        kind = self._rng.choice(["conv", "conv", "conv", "pool", "max", "join", "add", "relu", "transposed"])
        name = f"{kind}{number}"
        self.names.append(name)
        if kind == "pool":
            return op.avg_pool(a, one, one, one, [3] * self._n_space, True, name=name)
        if kind == "max":
            return op.max_pool(a, one, one, one, one, [3] * self._n_space, name=name)
        if kind == "join":  # and back to the usual number of channels
            wide = op.concat([a, b], 1, name=name)
            self.names.append(f"{name} narrow")
            return self._convolution(wide, 2 * CHANNELS, f"{name} narrow")
        if kind == "add":
            return op.add(a, b, name=name)
        if kind == "relu":
            return op.relu(a, name=name)
        if kind == "transposed":  # an op that wants the usual layout, and its inverse
            order = np.array([0, *range(2, self._n_space + 2), 1])
            turned = op.transpose(a, order, name=name)
            self.names.append(f"{name} back")
            return op.transpose(turned, np.argsort(order), name=f"{name} back")
        return self._convolution(a, CHANNELS, name)

    def _convolution(self, x: Any, width: int, name: str) -> Any:
        from openvino import opset13 as op

        one, none = [1] * self._n_space, [0] * self._n_space
        weight = self._rng.standard_normal((CHANNELS, width, *one)) / np.sqrt(width)
        return op.convolution(x, op.constant(weight.astype(np.float32)), one, none, none, one, name=name)


def on_one_device(net: Net) -> list[np.ndarray]:
    compiled = ov.Core().compile_model(net.model, "CPU", dict(core_setup().properties))
    return [np.array(v) for v in compiled([net.sample]).values()]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n_space=st.integers(1, 3), is_last=st.booleans())
def test_any_cut_gives_the_same_outputs(seed: int, n_space: int, is_last: bool) -> None:
    net = Net(seed, n_space)
    rng = np.random.default_rng(seed)
    placement = {name: f"core{rng.integers(2)}" for name in net.names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "computes_channels_last", lambda compile_model: is_last)
        run = SplitRun(net.model, placement, SETUPS)
    try:
        for ours, theirs in zip(run([net.sample]), on_one_device(net), strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    finally:
        run.close()


def test_what_lies_channels_last_is_known_from_the_graph() -> None:
    from openvino import opset13 as op

    x = op.parameter([1, 4, 8, 8], np.float32, name="x")
    pooled = op.avg_pool(x, [1, 1], [0, 0], [0, 0], [1, 1], True, name="of the input")
    conv = op.convolution(x, np.ones((4, 4, 1, 1), np.float32), [1, 1], [0, 0], [0, 0], [1, 1], name="conv")
    relu = op.relu(conv, name="relu")
    high = op.concat([relu, relu], 2, name="joined in height")
    wide = op.concat([relu, pooled], -3, name="joined in channels")
    flat = op.reshape(wide, np.array([1, -1]), False, name="flat")
    model = ov.Model([op.result(flat), op.result(high)], [x], "m")
    found = {name for name, _ in values_channels_last(list(model.get_ordered_ops()))}
    assert found == {"conv", "relu", "joined in channels"}


def test_transpositions_of_the_model_itself_are_not_taken_for_ours() -> None:
    from openvino import opset13 as op

    x = op.parameter([2, 3, 4, 5], np.float32, name="x")
    order = np.array([0, 3, 2, 1])
    turned = [op.transpose(x, order, name=name) for name in ("t", "conv.channels_last.x,y", ".channels_last.0")]
    model = ov.Model([op.result(op.add(turned[0], op.add(turned[1], turned[2])))], [x], "m")
    assert kept_transpositions(ov.Core().compile_model(model, "CPU")) == set()


def changes_of_layout(split: Any) -> list[str]:
    """The changes of layout that the sub-models execute."""
    found = []
    for segment in split.segments:
        compiled = ov.Core().compile_model(segment.model, "CPU", {**core_setup().properties, "PERF_COUNT": True})
        request = compiled.create_infer_request()
        request.infer({i: np.zeros(p.shape, np.float32) for i, p in enumerate(segment.model.inputs)})
        executed = [p for p in request.get_profiling_info() if p.status == ov.ProfilingInfo.Status.EXECUTED]
        found += [p.node_type for p in executed if p.node_type in ("Reorder", "Transpose")]
    return found


def test_where_the_plugin_computes_channels_last_a_cut_changes_no_layout() -> None:
    from openvino import opset13 as op

    one, none = [1, 1], [0, 0]

    def convolution(x: Any, name: str) -> Any:
        width = x.get_output_partial_shape(0)[1].get_length()
        weight = np.random.default_rng(0).standard_normal((64, width, 1, 1)).astype(np.float32)
        return op.relu(op.convolution(x, weight, one, none, none, one, name=name), name=f"{name} relu")

    x = op.parameter([1, 64, 20, 20], np.float32, name="x")
    stem = convolution(x, "stem")
    left, right = convolution(stem, "left"), op.avg_pool(stem, one, one, one, [3, 3], True, name="right")
    join = convolution(op.concat([left, right], 1, name="join"), "after")
    total = op.relu(op.add(convolution(join, "right inner"), join, name="sum"), name="sum relu")
    head = op.add(convolution(total, "head"), convolution(total, "right head"), name="sum of heads")
    model = ov.Model([op.result(head)], [x], "m")
    names = [n.get_friendly_name() for n in model.get_ordered_ops()]
    placed = whole_placement(model, {name: "core1" if "right" in name else "core0" for name in names})
    segment_of = model_segments(model, placed)
    is_last = Compiler(SETUPS).crossing_channels_last(model)
    if not is_last:
        pytest.skip("this processor's convolutions do not lie channels last")
    split = split_model(model, placed, segment_of, is_last)
    assert len(split.segments) > 6
    assert len(changes_of_layout(split)) <= 2  # of the model's own input and result, which are as the caller has them
    assert len(changes_of_layout(split_model(model, placed, segment_of))) > 6


def test_what_the_plugin_would_really_transpose_crosses_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(3, 2)
    tried: list[set[tuple[str, int]]] = []

    def kept(compiled: Any) -> set[tuple[str, int]]:
        """As if the plugin transposed one of the values."""
        outputs = {o.get_node().input_value(0).get_node().get_friendly_name() for o in compiled.outputs}
        return {value for value in tried[-1] if f"{value[0]}.channels_last.0" in outputs}

    real = runtime.split_model

    def split(model: Any, placed: Any, segment_of: Any, is_last: Any = ()) -> Any:
        tried.append(set(sorted(is_last)[:1]))
        return real(model, placed, segment_of, is_last)

    monkeypatch.setattr(runtime, "computes_channels_last", lambda compile_model: True)
    monkeypatch.setattr(runtime, "kept_transpositions", kept)
    monkeypatch.setattr(runtime, "split_model", split)
    placement = {name: f"core{i % 2}" for i, name in enumerate(net.names)}
    run = SplitRun(net.model, placement, SETUPS)
    try:
        assert len(tried) > 1  # cut again without those values
        for ours, theirs in zip(run([net.sample]), on_one_device(net), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    finally:
        run.close()
