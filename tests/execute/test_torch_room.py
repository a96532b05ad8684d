"""A device that runs its ops in less memory than they need: the plan keeps the limit, results stay the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from placewright.errors import InputError  # noqa: E402
from placewright.execute.torch import TorchRun  # noqa: E402
from placewright.execute.torch_program import ops_of  # noqa: E402
from placewright.execute.torch_room import DeviceOps, Room, ops_on, plan_room  # noqa: E402
from placewright.execute.torch_weights import WeightStore, weight_spans  # noqa: E402
from placewright.zoo import zoo_module  # noqa: E402

MODELS = (
    "wavenet-2x18?training=0&samples=512",
    "rnnlm-2?training=0&hidden=32&vocabulary=200&steps=6&batch=2",
    "bert-base?sequence=8&layers=3",
    "resnet-50?image=32",
)


def opened(name: str) -> tuple[Any, Any, WeightStore]:
    module, inputs = zoo_module(name)
    program = torch.export.export(module.eval(), tuple(inputs))
    return program, inputs, WeightStore(program)


def whole_on(program: Any, store: WeightStore) -> DeviceOps:
    return ops_on("a", program, {n.name: "a" for n in ops_of(program)}, ["a"], store.by_placeholder)


def need_of(part: DeviceOps) -> float:
    return part.weight_bytes + part.lives.most_bytes


def planned_bytes(part: DeviceOps, room: Room) -> float:
    """What the device holds: weights that stay, the window, and tensors."""
    ops = part.ops
    spans = [s for s in weight_spans(ops, part.weights) if ops[s.first].name in room.streamed]
    away = sum(part.weights[p].nbytes for s in spans for p in s.placeholders)
    return part.weight_bytes - away + room.window_bytes + min(room.tensor_bytes, part.lives.most_bytes)


@pytest.mark.parametrize("name", MODELS)
def test_the_limit_is_kept_and_results_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placewright.execute.torch_weights.channels_last_weights", lambda _: frozenset())
    program, inputs, store = opened(name)
    part = whole_on(program, store)
    need = need_of(part)
    assert plan_room(part, need) == Room()
    assert Room().note == ""
    expected = TorchRun(program, {}, {"a": "cpu"}, store=store)(*inputs)
    n_fitted = 0
    for share in (0.95, 0.8, 0.6, 0.4, 0.2):
        try:
            room = plan_room(part, share * need)
        except InputError:
            continue
        n_fitted += 1
        assert planned_bytes(part, room) <= share * need + 1
        assert room.note
        run = TorchRun(program, {}, {"a": "cpu"}, store=store, rooms={"a": room})
        assert run.memory_note == run.note == room.note
        for _ in range(2):
            for ours, theirs in zip(run(*inputs), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert n_fitted >= 2


def test_a_tighter_limit_takes_no_less_time() -> None:
    program, _, store = opened(MODELS[0])
    part = whole_on(program, store)
    need, seconds = need_of(part), dict.fromkeys((n.name for n in ops_of(program)), 1e-6)
    times = [plan_room(part, share * need, seconds).time_s for share in (1.0, 0.9, 0.7, 0.55)]
    assert times == sorted(times)
    assert times[0] == pytest.approx(1e-6 * len(part.ops))
    assert times[-1] > times[0]


def test_too_little_memory_is_said_with_the_figures() -> None:
    program, _, store = opened(MODELS[0])
    part = whole_on(program, store)
    too_small = r"183 operators with .* MB of weights .* do not run within 0\.1 MB: a window"
    with pytest.raises(InputError, match=too_small):
        plan_room(part, 1e5)
    window = max(s.size_bytes for s in weight_spans(part.ops, part.weights))
    with pytest.raises(InputError, match=r"operators .* do not run within .* MB: operator '.*' runs with .* bytes"):
        plan_room(part, 2 * window + 1e5)


def test_tolerance_is_used_only_where_nothing_else_helps() -> None:
    program, _, store = opened("bert-base?sequence=8&layers=3")
    part = whole_on(program, store)
    need = need_of(part)
    limits = [share / 200 * need for share in range(1, 200)]

    def fits(limit: float, tolerance: float) -> bool:
        try:
            return planned_bytes(part, plan_room(part, limit, tolerance=tolerance)) <= limit * (1 + tolerance) + 1
        except InputError:
            return False

    least = min(limit for limit in limits if fits(limit, 0.0))
    assert min(limit for limit in limits if fits(limit, 0.5)) < least
    assert planned_bytes(part, plan_room(part, least, tolerance=0.5)) <= least + 1


def test_a_part_of_a_placement() -> None:
    program, inputs, store = opened(MODELS[0])
    names = [n.name for n in ops_of(program)]
    device_of = {n: "ab"[i >= len(names) // 2] for i, n in enumerate(names)}
    part = ops_on("b", program, device_of, ["a", "b"], store.by_placeholder)
    assert [n.name for n in part.ops] == names[len(names) // 2 :]
    assert part.sent == []
    assert ops_on("a", program, device_of, ["a", "b"], store.by_placeholder).sent
    room = plan_room(part, 0.7 * need_of(part))
    assert math.isfinite(room.tensor_bytes)
    run = TorchRun(program, device_of, {"a": "cpu", "b": "cpu"}, rooms={"b": room})
    for ours, theirs in zip(run(*inputs), TorchRun(program, {}, {"a": "cpu"})(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
