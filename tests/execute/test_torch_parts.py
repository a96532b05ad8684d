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
from placewright.execute.torch_weights import WeightStore, plan_chunks, streamed_time_s  # noqa: E402
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


def test_streamed_weights_give_the_same_outputs(mobilenet: Any) -> None:
    program, inputs = mobilenet
    names = [n.name for n in program.graph.nodes if n.op == "call_function"]
    expected = TorchRun(program, {}, {"cpu": "cpu"})(*inputs)
    largest = 4 * 1280 * 1000 + 4 * 1000 + 512
    for window, share in ((largest, 1.0), (2 * largest, 0.5)):
        streamed = [n for i, n in enumerate(names) if i % 2 == 0 or share == 1.0]
        run = TorchRun(program, {}, {"cpu": "cpu"}, streamed=streamed, window_bytes=window)
        for _ in range(2):
            for ours, theirs in zip(run(*inputs), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        run.close()


def test_a_window_is_never_overwritten_too_early() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = [(f"op{i}", int(s)) for i, s in enumerate(rng.integers(1, 40, rng.integers(1, 30)))]
        chunks = plan_chunks(sizes, int(rng.integers(40, 120)))
        for i, chunk in enumerate(chunks):
            for j, other in enumerate(chunks[:i]):
                apart = (
                    other.offset_bytes + other.size_bytes <= chunk.offset_bytes
                    or chunk.offset_bytes + chunk.size_bytes <= other.offset_bytes
                )
                assert apart or j <= chunk.after
            assert chunk.after < i
            assert i == 0 or chunk.after >= chunks[i - 1].after


def test_streaming_hides_behind_compute_or_is_bound_by_copies() -> None:
    chunks = plan_chunks([("a", 100), ("b", 100), ("c", 100)], 200)
    chunk_of_op = {0: 0, 1: 1, 2: 2}
    assert streamed_time_s([10.0, 10.0, 10.0], chunk_of_op, chunks, 0.0, 100.0) == pytest.approx(31.0)
    assert streamed_time_s([0.1, 0.1, 0.1], chunk_of_op, chunks, 0.0, 100.0) == pytest.approx(3.1)


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
    from placewright.problem import build_problem

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
