"""Parts of the torch executor: compiled segments, streamed weights, workers, and the calibration of its costs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.fx.node import map_arg  # noqa: E402

from placewright.costs.measure.torch_calibration import (  # noqa: E402
    Scales,
    calibrated_profile,
    fit_scales,
    measure_copies,
    measure_ops,
    scaled,
    stream_delays,
)
from placewright.evaluate import evaluate_many  # noqa: E402
from placewright.execute.torch import TorchRun  # noqa: E402
from placewright.execute.torch_code import direct_function  # noqa: E402
from placewright.execute.torch_program import ops_of  # noqa: E402
from placewright.execute.torch_room import Room  # noqa: E402
from placewright.execute.torch_spills import overlapped_time_s  # noqa: E402
from placewright.execute.torch_weights import (  # noqa: E402
    Span,
    WeightStore,
    plan_chunks,
    weight_spans,
)
from placewright.execute.torch_workers import run_together  # noqa: E402
from placewright.testing import random_problem  # noqa: E402
from placewright.zoo import zoo_module  # noqa: E402

MODELS = ("mobilenet?image=32", "bert-base?sequence=4&layers=2", "unet?image=32", "inception-v3?image=80")


def exported(name: str) -> tuple[Any, Any]:
    module, inputs = zoo_module(name)
    return torch.export.export(module, inputs), inputs


@pytest.fixture(scope="module")
def mobilenet() -> tuple[Any, Any]:
    return exported(MODELS[0])


@pytest.mark.parametrize("name", MODELS)
def test_fast_bindings_compute_what_the_program_says(name: str) -> None:
    program, inputs = exported(name)
    weights, given = WeightStore(program).by_placeholder, iter(inputs)
    values: dict[Any, Any] = {}
    n_fast = 0
    with torch.inference_mode():
        for node in program.graph.nodes:
            if node.op == "placeholder":
                values[node] = weights[node.name] if node.name in weights else next(given)
            elif node.op == "call_function":
                args, kwargs = map_arg(node.args, values.__getitem__), map_arg(node.kwargs, values.__getitem__)
                values[node] = node.target(*args, **kwargs)
                fast = direct_function(node)
                n_fast += fast is not node.target
                if fast is not node.target:
                    torch.testing.assert_close(fast(*args, **kwargs), values[node], rtol=0, atol=0)
    assert n_fast > 0.8 * sum(n.op == "call_function" for n in program.graph.nodes)


def test_streamed_weights_give_the_same_outputs(mobilenet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Weights are streamed in the usual layout; those that stay on a CPU have another, which rounds differently.
    monkeypatch.setattr("placewright.execute.torch_weights.channels_last_weights", lambda _: frozenset())
    program, inputs = mobilenet
    names = [n.name for n in program.graph.nodes if n.op == "call_function"]
    expected = TorchRun(program, {}, {"cpu": "cpu"})(*inputs)
    largest = 4 * 1280 * 1000 + 4 * 1000 + 512
    for window, share in ((largest, 1.0), (2 * largest, 0.5)):
        streamed = [n for i, n in enumerate(names) if i % 2 == 0 or share == 1.0]
        run = TorchRun(program, {}, {"cpu": "cpu"}, rooms={"cpu": Room(frozenset(streamed), window)})
        for _ in range(2):
            for ours, theirs in zip(run(*inputs), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        run.close()


@pytest.mark.parametrize(
    "name", ["rnnlm-2?training=0&hidden=16&vocabulary=50&steps=6&batch=2", "gpt2?sequence=4&layers=2&hidden=32&heads=2"]
)
def test_shared_weights_are_streamed_once_for_all_who_read_them(name: str) -> None:
    program, inputs = exported(name)
    ops = ops_of(program)
    weights = WeightStore(program).by_placeholder
    spans = weight_spans(ops, weights)
    assert {p for s in spans for p in s.placeholders} == set(weights)
    assert any(s.last > s.first + 1 for s in spans)
    everything = frozenset(n.name for n in ops)
    in_use = [sum(s.size_bytes for s in spans if s.first <= i <= s.last) for i in range(len(ops))]
    expected = TorchRun(program, {}, {"cpu": "cpu"})(*inputs)
    for window in (sum(s.size_bytes for s in spans), 2 * max(in_use)):
        run = TorchRun(program, {}, {"cpu": "cpu"}, rooms={"cpu": Room(everything, window)})
        for _ in range(2):
            for ours, theirs in zip(run(*inputs), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        run.close()
    with pytest.raises(ValueError, match="more than is free in the window"):
        TorchRun(program, {}, {"cpu": "cpu"}, rooms={"cpu": Room(everything, max(in_use) - 1)})


def test_a_view_of_a_weight_keeps_it_and_one_that_leaves_is_not_streamed() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(7, 5))
            self.shift = torch.nn.Parameter(torch.randn(5))

        def forward(self, x: Any) -> Any:
            turned = self.table.transpose(0, 1)
            x = torch.nn.functional.embedding(x, self.table) + self.shift
            return x @ turned, turned

    program = torch.export.export(Tied().eval(), (torch.arange(3),))
    ops, weights = ops_of(program), WeightStore(program).by_placeholder
    names = [n.name for n in ops]
    assert {p for s in weight_spans(ops, weights) for p in s.placeholders} == {"p_shift"}
    inner = [n for n in ops if n.name != "transpose"]
    of_table = next(s for s in weight_spans(inner, weights) if "p_table" in s.placeholders)
    assert of_table.first == of_table.last == names.index("embedding") - 1

    class Kept(Tied):
        def forward(self, x: Any) -> Any:
            return super().forward(x)[0]

    program = torch.export.export(Kept().eval(), (torch.arange(3),))
    ops, weights = ops_of(program), WeightStore(program).by_placeholder
    of_table = next(s for s in weight_spans(ops, weights) if "p_table" in s.placeholders)
    assert (ops[of_table.first].name, ops[of_table.last].name) == ("transpose", "matmul")


def test_a_window_is_never_overwritten_too_early() -> None:
    rng = np.random.default_rng(0)
    n_refused = 0
    for _ in range(400):
        n_ops, longest = int(rng.integers(1, 30)), int(rng.integers(1, 6))
        firsts = sorted(rng.integers(0, n_ops, rng.integers(1, 30)).tolist())
        ends = [(f, min(n_ops - 1, f + int(rng.integers(0, longest)))) for f in firsts]
        spans = [Span((f"w{i}",), f, k, int(rng.integers(1, 40))) for i, (f, k) in enumerate(ends)]
        try:
            chunks = plan_chunks(spans, int(rng.integers(40, 300)))
        except ValueError:
            n_refused += 1
            continue
        for i, chunk in enumerate(chunks):
            assert (chunk.first, chunk.last, chunk.size_bytes) == spans[i][1:]
            for other in chunks[:i]:
                apart = other.end_bytes <= chunk.offset_bytes or chunk.end_bytes <= other.offset_bytes
                assert apart or other.last <= chunk.after
            assert chunk.after < chunk.first
            assert i == 0 or chunk.after >= chunks[i - 1].after
    assert n_refused < 300


def test_a_ring_of_own_weights_waits_for_the_oldest() -> None:
    own = [Span((f"w{i}",), i, i, 10) for i in range(12)]
    assert [c.after for c in plan_chunks(own, 40)] == [-1, -1, -1, -1, *range(8)]


def test_streaming_hides_behind_compute_or_is_bound_by_copies() -> None:
    chunks = plan_chunks([Span((name,), i, i, 100) for i, name in enumerate("abc")], 200)
    assert overlapped_time_s([10.0, 10.0, 10.0], chunks, [], 0.0, 100.0) == pytest.approx(31.0)
    assert overlapped_time_s([0.1, 0.1, 0.1], chunks, [], 0.0, 100.0) == pytest.approx(3.1)
    # The first is read by all three ops, so the second and third pass through what is left of the window.
    shared = [Span(("a",), 0, 2, 100), Span(("b",), 1, 1, 100), Span(("c",), 2, 2, 100)]
    assert overlapped_time_s([10.0, 10.0, 10.0], plan_chunks(shared, 200), [], 0.0, 100.0) == pytest.approx(32.0)


def test_a_device_lets_go_of_what_only_others_read(mobilenet: Any) -> None:
    program, inputs = mobilenet
    names = [n.name for n in ops_of(program)]
    run = TorchRun(program, {n: "ab"[i // 7 % 2] for i, n in enumerate(names)}, {"a": "cpu", "b": "cpu"})
    run(*inputs)
    assert run.crossings > 10
    held = [i for values in run._values for i, v in enumerate(values) if v is not None]
    assert set(held) <= set(run._input_slots)


def test_the_delays_of_a_stream_add_up_to_its_end() -> None:
    rng = np.random.default_rng(1)
    launch, kernel = rng.random(50), rng.random(50)
    host = end = 0.0
    for one, other in zip(launch, kernel, strict=True):
        host += one
        end = max(host, end) + other
    assert stream_delays(launch, kernel).sum() == pytest.approx(end)
    assert stream_delays(launch, np.zeros(50)).sum() == pytest.approx(launch.sum())


def test_scales_are_found_again() -> None:
    problem = random_problem(7, 40, 2, 2, "overlap")
    n_kinds = problem.op_time_s.shape[1]
    truth = Scales(tuple([1.5, 0.7, 1.2][:n_kinds]), 1.4, 0.0)
    placements = np.random.default_rng(0).integers(0, 2, (30, problem.n_ops)).astype(np.int32)
    measured = evaluate_many(scaled(problem, truth), placements).value
    is_finite = np.isfinite(measured)
    found = fit_scales(problem, placements[is_finite][::2], measured[is_finite][::2])
    again = evaluate_many(scaled(problem, found), placements[is_finite][1::2]).value
    before = evaluate_many(problem, placements[is_finite][1::2]).value
    error = np.abs(again / measured[is_finite][1::2] - 1)
    assert np.median(error) < 0.05
    assert np.median(error) < np.median(np.abs(before / measured[is_finite][1::2] - 1))


def test_a_calibrated_profile_fits_its_model(mobilenet: Any) -> None:
    from placewright.cluster_file import load_cluster
    from placewright.frontends.registry import read_model
    from placewright.problems import build_problem

    program, inputs = mobilenet
    graph, cluster = read_model(program, {}), load_cluster("h200-xeon")
    times = measure_ops(program, graph, inputs, "cpu", WeightStore(program), passes=2)
    copies = measure_copies("cpu", repeats=2)
    problem = build_problem(graph, cluster, calibrated_profile(graph, cluster, times, copies, use_graphs=False))
    host = [k.is_host for k in cluster.kinds].index(True)
    assert problem.op_time_s[:, host].sum() == pytest.approx(times.whole_s["cpu"])
    assert (problem.tensor_copy_s > 0).any()


def test_weights_are_moved_once_per_device(mobilenet: Any) -> None:
    store = WeightStore(mobilenet[0])
    name = next(iter(store.by_placeholder))
    there = torch.device("meta")
    assert store.on(name, there) is store.on(name, there)
    store.forget("meta")
    assert store.by_placeholder[name].device.type == "cpu"


def test_callers_that_share_workers_do_not_block_each_other() -> None:
    done: list[int] = []

    def call(number: int) -> None:
        for _ in range(50):
            meet = threading.Barrier(2)
            jobs = [("first", meet.wait), ("second", meet.wait)]
            run_together(lambda: None, jobs[:: 1 if number else -1])
        done.append(number)

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(done) == [0, 1]
