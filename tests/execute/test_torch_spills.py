"""Tensors that leave for host memory: results stay the same, and the limit holds."""

from __future__ import annotations

import math
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from placewright.execute.dataflow import ExecutionError  # noqa: E402
from placewright.execute.torch import TorchRun  # noqa: E402
from placewright.execute.torch_program import ops_of  # noqa: E402
from placewright.execute.torch_room import Room  # noqa: E402
from placewright.execute.torch_spills import Spill, TensorLives, _Stay, overlapped_time_s  # noqa: E402
from placewright.execute.torch_weights import Chunk, WeightStore  # noqa: E402
from placewright.zoo import zoo_module  # noqa: E402


class Chatty(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A result at every step; the next step reads it, and the end reads the first."""

    def forward(self, x: Any) -> list[Any]:
        results = []
        for step in range(6):
            x = torch.sin(x + step)
            results.append(torch.cos(x))
            x = x + results[-1]
        return [*results, x, x + results[0]]


class Bypass(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two tensors wait, one of them turned around, while a chain of ops runs."""

    def forward(self, x: Any) -> Any:
        first = torch.sin(x)
        turned = torch.cos(x).transpose(0, 1)
        for _ in range(5):
            x = torch.tanh(x * 2)
        return x + first, (x.transpose(0, 1) + turned).reshape(-1)


class Counted(TorchDispatchMode):  # type: ignore[misc]
    """Counts the bytes of all memory that ops take and that is still held."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is None or storage._cdata in self._known:
                continue
            given_in = {a.untyped_storage()._cdata for a in args if isinstance(a, torch.Tensor)}
            if storage._cdata not in given_in:
                self._count(storage)
        return result

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def lives_of(program: Any) -> TensorLives:
    return TensorLives([ops_of(program)], weights_of(program), results_of(program))


def weights_of(program: Any) -> set[str]:
    return set(WeightStore(program).by_placeholder)


def results_of(program: Any) -> list[str]:
    return [n.name for n in next(n for n in program.graph.nodes if n.op == "output").all_input_nodes]


def least_limit(program: Any) -> float:
    """The smallest limit that a plan is found for."""
    lives = lives_of(program)
    low, high = 0.0, lives.most_bytes
    while high - low > 1:
        middle = (low + high) / 2
        try:
            lives.plan(middle)
            high = middle
        except ValueError:
            low = middle
    return high


class LateStay(_Stay):
    """Copies as late as a GPU may make them: when they are waited for, and never a moment before."""

    def leave(self, tensor: Any) -> Any:
        self._on_device, self._on_host = tensor, self._place_for(tensor)
        self._on_host.fill_(math.nan)
        return self._on_host

    def wait(self) -> None:
        self._on_host.copy_(self._on_device)
        self._on_device = None

    def begin(self) -> None:
        self._on_device = torch.full_like(self._on_host, math.nan)

    def back(self) -> Any:
        self._on_device.copy_(self._on_host)
        return super().back()


def checked(program: Any, inputs: Any, limit_bytes: float) -> list[Spill]:
    """Run with a limit; results are those without one, and the plan holds at every op."""
    ops = ops_of(program)
    spills = lives_of(program).plan(limit_bytes)
    for i in range(len(ops)):
        away = sum(s.size_bytes for s in spills if s.gone <= i < s.begun)
        assert held_without(program, i) - away <= limit_bytes
    for spill in spills:
        assert spill.left < spill.gone < spill.begun <= spill.read
        others = [s for s in spills if s.buffer == spill.buffer and s is not spill]
        assert all(o.read <= spill.left or spill.read <= o.left for o in others)
    expected = TorchRun(program, {}, {"a": "cpu"})(*inputs)
    for stay in (_Stay, LateStay):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("placewright.execute.torch_spills._Stay", stay)
            run = TorchRun(program, {}, {"a": "cpu"}, rooms={"a": Room(tensor_bytes=limit_bytes)})
        for _ in range(2):
            for ours, theirs in zip(run(*inputs), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
                assert ours.stride() == theirs.stride()
    return spills


def held_without(program: Any, i: int) -> float:
    """Bytes at an op, counted from the program anew: every tensor with all that views it."""
    ops, weights, results = ops_of(program), weights_of(program), results_of(program)
    over = lives_of(program).in_place
    owner: dict[str, str] = {}
    spans: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for k, node in enumerate(ops):
        is_view = any(w in str(node.target) for w in ("transpose", "reshape", "view", "getitem", "flatten", "permute"))
        shared = node.args[0].name if is_view else over.get(node.name, node.name)
        owner[node.name] = owner.get(shared, shared)
        for tensor in (node, *node.all_input_nodes):
            name = owner.get(tensor.name, tensor.name)
            if name not in weights:
                spans.setdefault(name, []).append(k)
                value = tensor.meta["val"]
                sizes.setdefault(name, value.numel() * value.element_size())
    for name in results:
        spans[owner[name]].append(len(ops))
    return float(sum(sizes[n] for n, at in spans.items() if min(at) <= i <= max(at)))


@pytest.mark.parametrize("module", [Chatty(), Bypass()])
def test_tensors_leave_as_far_as_they_must(module: Any) -> None:
    inputs = (torch.randn(16, 24),)
    program = torch.export.export(module, inputs)
    most = lives_of(program).most_bytes
    least = least_limit(program)
    assert least <= 0.75 * most
    assert lives_of(program).plan(most) == []
    for share in (0.0, 0.3, 0.7):
        assert checked(program, inputs, least + share * (most - least))
    with pytest.raises(ValueError, match=r"operator '.*' runs with .* bytes of tensors that cannot leave, more than"):
        TorchRun(program, {}, {"a": "cpu"}, rooms={"a": Room(tensor_bytes=least - 1)})


def test_what_a_run_holds_is_what_was_planned() -> None:
    sample = torch.randn(64, 64)
    program = torch.export.export(Chatty(), (sample,))
    limit = least_limit(program)
    run = TorchRun(program, {}, {"a": "cpu"}, rooms={"a": Room(tensor_bytes=limit)}, copies_outputs=False)
    run(sample)  # host memory is taken once
    with Counted() as counted:
        run(sample)
    assert 0 < counted.most <= limit
    free = TorchRun(program, {}, {"a": "cpu"})
    with Counted() as unlimited:
        free(sample)
    assert unlimited.most > 1.5 * limit


def test_ops_write_over_what_nobody_reads_any_more() -> None:
    class Over(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            a = torch.tanh(x)  # not over the input of the program
            b = torch.sigmoid(self.layer(a))  # over the layer's
            c = torch.add(a, b, alpha=2)  # over the first
            d = 3 * torch.div(b, 2)  # over the second, which is read for the last time, and over that
            e = c.transpose(0, 1) + c  # over neither: one views the other
            f = (e.sum(0) + d).relu()  # over the second, which is larger
            return f, torch.einsum("ij->ji", f).exp(), (f > 0) * f, e.half() + f

    module, sample = Over().eval(), torch.randn(6, 6)
    program = torch.export.export(module, (sample,))
    lives = lives_of(program)
    kinds = {n.name: str(n.target).split(".")[1] for n in ops_of(program)}
    pairs = [(kinds[op], kinds[source]) for op, source in lives.in_place.items()]
    assert pairs == [
        ("sigmoid", "linear"), ("add", "tanh"), ("div", "sigmoid"), ("mul", "div"), ("add", "mul"), ("relu", "add"),
    ]  # fmt: skip
    assert lives.most_bytes <= lives.most_bytes_apart
    with torch.inference_mode():
        expected = module(sample)
    run = TorchRun(program, {}, {"a": "cpu"}, rooms={"a": Room(tensor_bytes=lives.most_bytes)})
    kept = sample.clone()
    for _ in range(2):
        for ours, theirs in zip(run(sample), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert torch.equal(sample, kept)


@pytest.mark.parametrize(
    "name",
    [
        "wavenet-2x18?training=0&samples=1024",
        "rnnlm-2?training=0&hidden=16&vocabulary=50&steps=6&batch=2",
        "bert-base?sequence=8&layers=2",
    ],
)
def test_zoo_models_give_the_same_results(name: str) -> None:
    module, inputs = zoo_module(name)
    program = torch.export.export(module.eval(), tuple(inputs))
    most = lives_of(program).most_bytes
    least = least_limit(program)
    assert least < most <= lives_of(program).most_bytes_apart
    if name.startswith("wavenet"):
        assert least < 0.5 * lives_of(program).most_bytes_apart
    expected = TorchRun(program, {}, {"a": "cpu"})(*inputs)
    for limit, stay in ((least, _Stay), ((least + most) / 2, LateStay)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("placewright.execute.torch_spills._Stay", stay)
            run = TorchRun(program, {}, {"a": "cpu"}, rooms={"a": Room(tensor_bytes=limit)})
        for ours, theirs in zip(run(*inputs), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    """Ops on random earlier tensors, some of them views, some of them results."""
    n = data.draw(st.integers(3, 14))
    picks = [data.draw(st.tuples(st.integers(0, i), st.integers(0, i), st.integers(0, 3))) for i in range(n)]
    outputs = sorted(data.draw(st.sets(st.integers(1, n), min_size=1)))

    class Random(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> list[Any]:
            values = [x]
            for a, b, kind in picks:
                first, second = values[a], values[b]
                if kind == 0:
                    values.append(first.transpose(0, 1))
                elif kind == 1:
                    values.append(torch.sin(first))
                elif kind == 2:
                    values.append(0.5 * torch.tanh(first) - second.sum(0))
                else:
                    values.append(first * 0.5 + second)
            return [values[i] + 0 for i in outputs[:-1]] + [torch.cos(values[outputs[-1]])]

    inputs = (torch.randn(6, 6),)
    program = torch.export.export(Random(), inputs)
    least = least_limit(program)
    checked(program, inputs, least)


@pytest.mark.parametrize("placed", ["b", "bbbba", "ab"])
def test_two_devices(placed: str) -> None:
    sample = torch.randn(5)
    program = torch.export.export(Chatty(), (sample,))
    device_of = {n.name: placed[i % len(placed)] for i, n in enumerate(ops_of(program))}
    n_spilled = 0
    for limit in range(20, 240, 20):
        try:
            run = TorchRun(program, device_of, {"a": "cpu", "b": "cpu"}, rooms={"b": Room(tensor_bytes=float(limit))})
        except ValueError:
            continue
        n_spilled += bool(run._left)
        for _ in range(2):
            for ours, theirs in zip(run(sample), Chatty()(sample), strict=True):
                assert torch.equal(ours, theirs)
    assert n_spilled or placed != "b"


def test_results_in_host_memory_are_the_callers_own() -> None:
    first, second = torch.randn(5), torch.randn(5)
    program = torch.export.export(Chatty(), (first,))
    limit = least_limit(program)
    run = TorchRun(program, {}, {"a": "cpu"}, rooms={"a": Room(tensor_bytes=limit)})
    assert run._left
    found = run(first)
    run(second)
    for ours, theirs in zip(found, Chatty()(first), strict=True):
        assert torch.equal(ours, theirs)


def test_an_op_that_fails_ends_a_run_with_spills() -> None:
    sample = torch.randn(5)
    program = torch.export.export(Chatty(), (sample,))
    run = TorchRun(program, {}, {"a": "cpu"}, rooms={"a": Room(tensor_bytes=least_limit(program))})
    with pytest.raises(ExecutionError, match="add"):
        run("no tensor")
    assert len(run(sample)) == 8


def test_times_of_copies_beside_ops() -> None:
    chunks = [Chunk(0, 4, 0, 0, -1), Chunk(4, 4, 1, 1, -1), Chunk(0, 4, 2, 2, 0)]
    compute = [3.0, 1.0, 2.0, 1.0]
    # The first chunk is there at 3; the second is hidden behind the first op; the third waits for its end.
    assert overlapped_time_s(compute, chunks, [], 1.0, 2.0) == 12.0
    away = Spill("x", 10, 0, 2, 3, 3, 0)
    # Ends at 3; gone at 3 + 5 = 8, so the third op ends at 10; back at 15.
    assert overlapped_time_s(compute, [], [away], 0.0, 2.0) == 16.0
    # Begun while the third op runs: back at 13.
    assert overlapped_time_s(compute, [], [away._replace(gone=1, begun=2)], 0.0, 2.0) == 15.0
    never = Spill("x", 10, 0, 3, 4, 4, 0)
    assert overlapped_time_s(compute, [], [never], 0.0, 2.0) == 9.0
    assert overlapped_time_s([], [], [], 0.0, 1.0) == 0.0
