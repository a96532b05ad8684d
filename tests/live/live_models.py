"""Tiny models with random weights, and problems over them with made-up costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from placewright.live import METADATA  # noqa: E402
from placewright.live.analyse import analyse  # noqa: E402
from placewright.live.live_problem import CostTable, Place, live_problem  # noqa: E402
from placewright.live.measure import Costs  # noqa: E402
from placewright.live.module_graph import INPUT, OUTPUT  # noqa: E402
from placewright.live.workload import make_workloads  # noqa: E402
from placewright.placement import Placement, checked_placement  # noqa: E402
from placewright.problems import Problem  # noqa: E402
from placewright.profiles import CopyCurve  # noqa: E402

WORDS = 64
NAMES = ("mixtral", "llama", "gpt2", "bert")


def make_model(name: str, **changes: Any) -> Any:
    """A model in f32, on the CPU, for inference."""
    torch.manual_seed(0)
    common = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, **changes}
    decoder = {"num_hidden_layers": 3, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": None, **common}
    if name == "mixtral":
        config = transformers.MixtralConfig(**{"num_local_experts": 4, "num_experts_per_tok": 2, **decoder})
        return transformers.MixtralForCausalLM(config).eval()
    if name == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**decoder)).eval()
    if name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=WORDS, n_embd=32, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=None
        )
        return transformers.GPT2LMHeadModel(config).eval()
    return transformers.BertForMaskedLM(transformers.BertConfig(num_hidden_layers=2, **common)).eval()


def tokens(positions: int = 8, seed: int = 0) -> Any:
    return torch.randint(2, WORDS, (1, positions), generator=torch.Generator().manual_seed(seed))


def made_up_problem(model: Any, phase: str | dict[str, float], inputs: Any, gpu_bytes: float = np.inf) -> Problem:
    """Two devices with equal costs; nothing is measured."""
    work = make_workloads(model, inputs, phase)
    _, graphs = analyse(model, work, new_tokens=16)
    live = graphs[0].metadata[METADATA]
    costs = Costs(dict.fromkeys([*live.units.paths, *live.units.containers], 0.001))
    curve = CopyCurve((1.0, 2.0), (1e-6, 2e-6))
    places = [Place("cuda:0", gpu_bytes), Place("cpu")]
    table = CostTable({(w.phase, p.name): costs for w in work for p in places}, {"cuda:0": {"in": curve, "out": curve}})
    return live_problem(graphs, {w.phase: w.count for w in work}, places, table, "cpu")


def random_placement(problem: Problem, seed: int) -> Placement:
    """Any device for any unit and home; the caller is the CPU."""
    device = np.random.default_rng(seed).integers(0, 2, problem.n_ops).astype(np.int32)[problem.group_of_op]
    for end in (INPUT, OUTPUT):
        device[problem.graph.index_of[end]] = 1
    return checked_placement(problem, device, placer="random")


def expected_copies(placement: Placement) -> int:
    """How often a tensor comes to another device, as evaluation counts it."""
    graph, device = placement.problem.graph, placement.device_of_op
    assert device is not None
    edges = zip(graph.edge_tensor.tolist(), graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True)
    return len({(t, int(device[v])) for t, u, v in edges if device[u] != device[v]})
