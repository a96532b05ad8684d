from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest
from live_models import made_up_problem, make_model, tokens, torch, transformers

import placewright.torch as live
from placewright.errors import InputError
from placewright.live import METADATA
from placewright.live.candidates import everything_on
from placewright.live.dispatch import ATTRIBUTE, STREAMED, places_of
from placewright.live.finalists import (
    SETTLING_RUNS,
    Finalist,
    calibrated_scales,
    confirmed,
    next_to_confirm,
    simplest_of_the_fastest,
    timed,
)
from placewright.live.fit import _Search
from placewright.live.live_problem import CostTable, Place
from placewright.live.transfer import TorchBackend
from placewright.live.workload import make_workloads
from placewright.placement import Placement, checked_placement
from placewright.problems import Problem
from placewright.testing.tagged_devices import TaggedDevices, pretended_cuda


def fit_with_pretended_gpu(model: Any, inputs: Any, **options: Any) -> tuple[Placement, TaggedDevices]:
    devices = TaggedDevices(model, inputs, gpus=("cuda:0",))
    with ExitStack() as stack:
        stack.enter_context(pretended_cuda())
        stack.enter_context(devices)
        return live.fit(model, inputs, devices=["cuda:0", "cpu"], backend=devices, **options), devices


def weights_bytes(model: Any) -> float:
    return float(sum(p.numel() * p.element_size() for p in model.parameters()))


@pytest.mark.parametrize(("name", "phase"), [("mixtral", "decode"), ("llama", "prefill"), ("bert", "forward")])
def test_fit_keeps_to_the_cap_and_the_result_runs(name: str, phase: str) -> None:
    model, ids = make_model(name), tokens()
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    cap = 0.6 * weights_bytes(model) + 200_000
    placement, devices = fit_with_pretended_gpu(
        model, {"input_ids": ids}, memory={"cuda:0": cap}, phase=phase, new_tokens=8, finalists=3
    )
    assert placement.is_valid
    assert placement.evaluation is not None
    assert placement.evaluation.memory_bytes[0] <= cap
    assert placement.measured is not None
    ran = placement.measured["finalists"]
    assert 1 <= len(ran) <= 5
    quickest_s = min(f["quickest_s"] for f in ran)
    assert any(
        f["measured_s"] == placement.measured["measured_s"] and f["quickest_s"] <= 1.04 * quickest_s for f in ran
    )
    assert not hasattr(model, ATTRIBUTE)
    assert not any("forward" in vars(m) for m in model.modules())
    with pretended_cuda(), devices, torch.no_grad():
        live.dispatch(model, placement, backend=devices)
        assert torch.equal(model(input_ids=ids).logits, expected)
    live.undispatch(model)


def test_streamed_weights_visit_and_leave() -> None:
    model, ids = make_model("llama"), tokens()
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    problem = made_up_problem(model, "forward", {"input_ids": ids})
    kinds = tuple(problem.cluster.kinds)
    streamed = problem.cluster.__class__(
        "live",
        (*kinds, kinds[0].__class__("cuda:0" + STREAMED)),
        (*problem.cluster.devices, problem.cluster.devices[0].__class__("cuda:0" + STREAMED, "cuda:0" + STREAMED)),
        {**problem.cluster.to_host, "cuda:0" + STREAMED: problem.cluster.to_host["cuda:0"]},
        {**problem.cluster.from_host, "cuda:0" + STREAMED: problem.cluster.from_host["cuda:0"]},
    )
    times = np.column_stack([problem.op_time_s, problem.op_time_s[:, 0]])
    problem = problem.with_options(cluster=streamed, op_time_s=times)
    device = np.zeros(problem.n_ops, dtype=np.int32)
    device[[0, -1]] = 1
    for v, path in enumerate(problem.graph.module_paths):
        if path.endswith("mlp"):
            device[v] = 2
    placement = checked_placement(problem, device, placer="streamed")
    devices = TaggedDevices(model, ids, gpus=("cuda:0",))
    before = {n: p.data_ptr() for n, p in model.named_parameters()}
    with pretended_cuda():
        live.dispatch(model, placement, backend=devices, keep_weights=True)
        for _ in range(2):
            with devices, torch.no_grad():
                assert torch.equal(model(input_ids=ids).logits, expected)
        live.undispatch(model)
    assert {n: p.data_ptr() for n, p in model.named_parameters()} == before


def test_a_cap_too_small_for_the_largest_unit_names_it_and_its_size() -> None:
    model, ids = make_model("llama"), tokens()
    placement, _ = fit_with_pretended_gpu(
        model, {"input_ids": ids}, memory={"cuda:0": "20KiB", "cpu": "20KiB"}, phase="decode", finalists=2
    )
    assert placement.status == "infeasible"
    assert placement.device_of_op is None
    text = " ".join(f.message for f in placement.faults)
    assert "mlp" in text
    assert "18 KiB (18432 bytes)" in text


def config_of_5_g() -> Any:
    return transformers.MixtralConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16,
        num_key_value_heads=8, num_local_experts=16, num_experts_per_tok=2,
    )  # fmt: skip


def test_a_model_on_meta_is_fitted_without_a_weight() -> None:
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config_of_5_g()).to(torch.bfloat16)
        ids = torch.zeros((1, 128), dtype=torch.long)
    placement = live.fit(model, {"input_ids": ids}, memory={"cuda:0": "6GiB"}, phase="decode")
    assert placement.status == "optimal"
    places = places_of(placement)
    experts = [places[p] for p in places if p.endswith("experts")]
    assert len(experts) == 12
    assert 0 < experts.count("cpu") < 12
    assert all(places[f"model.layers.{i}.self_attn"] == "cuda:0" for i in range(12))
    assert placement.evaluation is not None
    assert placement.evaluation.memory_bytes[0] <= 6 * 2**30
    single = {d: v for d, v in placement.summary()["single_device"].items() if v is not None}
    assert placement.value <= min(single.values())
    text = live.explain(placement)
    assert "12 x model.layers.*.self_attn on cuda:0" in text
    assert all(rule in text for rule in live.rules(placement))


def test_gpus_alone_need_no_cpu_among_the_devices() -> None:
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config_of_5_g()).to(torch.bfloat16)
        ids = torch.zeros((1, 128), dtype=torch.long)
    gpus = ["cuda:0", "cuda:1"]
    placement = live.fit(model, {"input_ids": ids}, gpus, dict.fromkeys(gpus, "7GiB"), "decode")
    assert placement.is_valid
    assert set(places_of(placement).values()) == set(gpus)
    assert placement.status == "optimal"
    small = live.fit(model, {"input_ids": ids}, gpus, dict.fromkeys(gpus, "2GiB"), "decode", stream=False)
    assert small.status == "infeasible"
    small = live.fit(model, {"input_ids": ids}, gpus, dict.fromkeys(gpus, "2GiB"), "decode")
    assert small.is_valid
    assert any(place.endswith(STREAMED) for place in places_of(small).values())


def test_streaming_that_cannot_pay_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config_of_5_g()).to(torch.bfloat16)
        ids = torch.zeros((1, 128), dtype=torch.long)
    solved: list[int] = []
    place = _Search._placed

    def counted(search: _Search, problem: Problem) -> Placement:
        solved.append(problem.n_devices)
        return place(search, problem)

    monkeypatch.setattr(_Search, "_placed", counted)
    gpus = ["cuda:0", "cuda:1"]
    full = live.fit(model, {"input_ids": ids}, gpus, dict.fromkeys(gpus, "5.5GiB"), "decode")
    assert full.status == "optimal"
    assert solved == [2, 2], "with the limits and without, not with two more entries for streaming"
    solved.clear()
    live.fit(model, {"input_ids": ids}, memory={"cuda:0": "6GiB"}, phase="decode")
    assert solved == [2, 2, 3]


def test_streaming_pays_for_a_long_prefill_and_not_for_decoding() -> None:
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config_of_5_g()).to(torch.bfloat16)
        ids = torch.zeros((1, 4096), dtype=torch.long)
    used = {}
    for phase in ("decode", "prefill"):
        placement = live.fit(model, {"input_ids": ids}, memory={"cuda:0": "7GiB"}, phase=phase)
        assert placement.is_valid
        used[phase] = {p for p in places_of(placement).values() if p.endswith(STREAMED)}
    assert used["prefill"]
    assert not used["decode"]


def test_calibration_finds_what_was_too_fast_in_theory() -> None:
    model = make_model("llama")
    problem = made_up_problem(model, "forward", {"input_ids": tokens()})
    finalists = []
    for seed in range(8):
        device = np.random.default_rng(seed).integers(0, 2, problem.n_ops).astype(np.int32)[problem.group_of_op]
        device[[0, -1]] = 1
        placement = checked_placement(problem, device, placer="x")
        times = problem.op_device_time_s[np.arange(problem.n_ops), device]
        on_gpu = float(times[device == 0].sum())
        finalists.append(Finalist("x", placement, (placement.value + on_gpu,)))  # the GPU takes twice as long
    scales = calibrated_scales(finalists)
    assert scales["cuda:0"] == pytest.approx(2.0, rel=0.15)
    assert scales["cpu"] == pytest.approx(1.0, rel=0.15)


def test_wrong_devices_and_sizes_are_refused() -> None:
    model, ids = make_model("llama"), tokens()
    with pytest.raises(InputError, match="'gpu9' is not a torch device"):
        live.fit(model, ids, devices=["gpu9", "cpu"])
    with pytest.raises(InputError, match="'cuda:7' is not on this machine"):
        live.fit(model, ids, devices=["cuda:7", "cpu"])
    with pytest.raises(InputError, match="expected bytes"):
        live.fit(model, ids, memory={"cpu": "lots"})
    with pytest.raises(InputError, match="which is not among the devices"):
        live.fit(model, ids, devices=["cpu"], memory={"cuda:0": "1GiB"})
    with pytest.raises(InputError, match="no weights"):
        live.fit(torch.nn.ReLU(), ids)


def test_one_device_needs_no_hooks() -> None:
    model, ids = make_model("gpt2"), tokens()
    placement = live.fit(model, {"input_ids": ids}, devices=["cpu"], phase="decode")
    assert placement.status == "optimal"
    live.dispatch(model, placement)
    assert not any("forward" in vars(m) for m in model.modules())
    live.undispatch(model)


def test_every_cost_of_a_measured_problem_is_known() -> None:
    model, ids = make_model("mixtral"), tokens()
    placement, _ = fit_with_pretended_gpu(
        model, {"input_ids": ids}, memory={"cuda:0": "10MiB"}, phase={"prefill": 1.0, "decode": 4.0}, finalists=1
    )
    problem = placement.problem
    assert np.isfinite(problem.op_time_s).all()
    inner = np.array([t in ("module", "code") and p != "" for t, p in _sorts(problem)])
    assert (problem.op_time_s[inner] > 0).all()
    assert problem.graph.metadata[METADATA].phases == ("prefill", "decode")


def _sorts(problem: Any) -> Any:
    return zip(problem.graph.op_types, problem.graph.module_paths, strict=True)


def test_memory_that_no_candidate_took_is_given_to_weights() -> None:
    model = make_model("llama")
    problem = made_up_problem(model, "forward", {"input_ids": tokens()})
    placement = checked_placement(problem, np.ones(problem.n_ops, dtype=np.int32), placer="x")
    search = _Search([], {}, "cpu", "chain", 0)
    search.add([Place("cuda:0", 1000.0, reserved_bytes=500.0, window_bytes=200.0), Place("cpu")], CostTable({}))
    search._ran = [Finalist("x", placement, (1.0,), working_bytes={"cuda:0": size}) for size in (90.0, 130.0)]
    search._correct_working_memory()
    gpu, cpu = search._settings[0][0]
    assert gpu.room_bytes == pytest.approx(1000 - 130 - 20 - 200)  # the most that was seen, the margin, the window
    assert cpu == Place("cpu")
    search._ran = [Finalist("x", placement, (1.0,), working_bytes={"cuda:0": 900.0})]
    search._correct_working_memory()
    assert search._settings[0][0][0] == gpu


def test_runs_of_a_candidate_follow_each_other_and_decode_different_tokens() -> None:
    model = make_model("llama")
    prompt = tokens()
    (work,) = make_workloads(model, {"input_ids": prompt}, "decode")
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(int(kwargs["input_ids"])), with_kwargs=True)
    samples = timed(partial(work.run, model), [torch.device("cpu")], TorchBackend())
    assert len(seen) >= len(samples) + SETTLING_RUNS
    assert seen == [int(prompt[0, -1 - turn % prompt.shape[1]]) for turn in range(len(seen))]


def test_of_equally_fast_candidates_the_one_with_fewest_crossings_is_named() -> None:
    problem = made_up_problem(make_model("bert"), "forward", {"input_ids": tokens()})
    whole = checked_placement(problem, everything_on(problem, "cuda:0"), placer="x")
    device = everything_on(problem, "cuda:0")
    device[problem.n_ops // 2] = problem.cluster.device_names.index("cpu")
    split = checked_placement(problem, device, placer="x")
    near = [Finalist("split", split, (1.00,)), Finalist("whole", whole, (1.02,))]
    assert simplest_of_the_fastest(near).name == "whole"
    far = [
        Finalist("split", split, (1.00,)),
        Finalist("whole", whole, (1.10,)),
        Finalist("failed", whole, (float("inf"),)),
    ]
    assert simplest_of_the_fastest(far).name == "split"


def test_candidates_that_are_close_are_run_until_they_part_or_have_their_rounds() -> None:
    problem = made_up_problem(make_model("bert"), "forward", {"input_ids": tokens()})
    whole = checked_placement(problem, everything_on(problem, "cpu"), placer="x")
    others = [checked_placement(problem, everything_on(problem, "cuda:0"), placer="x") for _ in range(3)]
    assert others[0].value > 1.03 * whole.value, "these were not predicted to be close"
    ran = [
        Finalist("", p, (s,)) for p, s in zip([whole, whole, *others], (1.0, 1.05, 1.5, 3.0, float("inf")), strict=True)
    ]
    asked = []
    while (i := next_to_confirm(ran, 4)) is not None:
        asked.append(i)
        ran[i] = confirmed(ran[i], Finalist("", ran[i].placement, (ran[i].seconds,)))
    assert asked[:3] == [0, 1, 2], "the fastest three have a second round"
    assert [len(f.rounds_s) for f in ran] == [4, 4, 2, 1, 1]
    alone = [Finalist("", whole, (1.0, 1.0)), Finalist("", others[0], (1.5, 1.5))]
    assert next_to_confirm(alone, 4) is None
    unlucky = [alone[0], Finalist("", whole, (1.5, 1.5))]
    assert next_to_confirm(unlucky, 4) is not None, "predicted to be as fast: perhaps the machine was slow"
    again = confirmed(Finalist("", whole, (1.0, 1.0, 1.0)), Finalist("", whole, (2.0,)))
    assert (again.seconds, again.quickest_s, len(again.rounds_s)) == (1.25, 1.0, 4)
    assert confirmed(again, Finalist("", whole, (float("inf"),))).quickest_s == float("inf"), "it failed later"


def test_a_model_without_own_code_is_on_the_device_of_its_units() -> None:
    """Otherwise every unit would need a wrapper: its caller would be elsewhere."""
    model = make_model("bert")
    problem = made_up_problem(model, "forward", {"input_ids": tokens()})
    on_gpu = checked_placement(problem, everything_on(problem, "cuda:0"), placer="x")
    assert set(places_of(on_gpu).values()) == {"cuda:0"}
