from __future__ import annotations

from typing import Any

import pytest
from live_models import made_up_problem, make_model, tokens, torch

from placewright.errors import InputError
from placewright.live import METADATA


def units_of(model: Any, inputs: Any, phase: str = "forward") -> tuple[str, ...]:
    paths: tuple[str, ...] = made_up_problem(model, phase, inputs).graph.metadata[METADATA].units.paths
    return paths


def test_a_mixture_of_experts_is_cut_into_attention_router_and_experts() -> None:
    paths = units_of(make_model("mixtral"), {"input_ids": tokens()}, "decode")
    layer = ["self_attn", "mlp.gate", "mlp.experts"]
    expected = ["model.embed_tokens", *(f"model.layers.{i}.{u}" for i in range(3) for u in layer), "lm_head"]
    assert list(paths) == expected


def test_dense_decoders_are_cut_into_attention_and_feed_forward() -> None:
    assert units_of(make_model("gpt2"), {"input_ids": tokens()})[2:4] == ("transformer.h.0.attn", "transformer.h.0.mlp")
    assert units_of(make_model("llama"), {"input_ids": tokens()})[1:3] == (
        "model.layers.0.self_attn",
        "model.layers.0.mlp",
    )


class Routed(torch.nn.Module):
    """Experts as a list of modules, of which only some run."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(8, 4)
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)) for _ in range(4)
        )

    def forward(self, x: Any) -> Any:
        best = self.gate(x).argmax(dim=-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (best == number).nonzero()[:, 0]
            if len(rows):
                result = result.index_add(0, rows, expert(x[rows]))
        return result


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.ModuleDict({"mix": Routed()}) for _ in range(2))
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + layer["mix"](x)
        return self.head(x)


@pytest.mark.parametrize("rows", [1, 64])
def test_experts_in_a_list_stay_with_their_router(rows: int) -> None:
    torch.manual_seed(0)
    assert units_of(Net(), torch.randn(rows, 8)) == ("layers.0.mix", "layers.1.mix", "head")


def test_modules_that_hide_their_parts_are_kept_whole() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(16, 4)).eval()
    paths = units_of(model, torch.randn(1, 5, 16))
    assert paths[-1] == "1"
    assert all(p == "1" or p.startswith("0") for p in paths)


def test_the_graph_knows_sizes_order_and_weights() -> None:
    model = make_model("llama")
    graph = made_up_problem(model, "prefill", {"input_ids": tokens(8)}).graph
    names = graph.op_names
    order = [
        names.index(n) for n in ("model.embed_tokens", "model.layers.0.self_attn", "model.layers.0.mlp", "lm_head")
    ]
    assert order == sorted(order)
    into_mlp = graph.input_tensor[graph.input_ptr[order[2]] : graph.input_ptr[order[2] + 1]]
    assert graph.tensor_bytes[into_mlp].tolist() == [8 * 32 * 4]
    assert graph.weight_bytes[order[2]] == 3 * 32 * 48 * 4
    assert graph.flops[order[2]] == 2 * 8 * 3 * 32 * 48


def test_caches_are_counted_with_room_for_new_tokens() -> None:
    problem = made_up_problem(make_model("llama"), "decode", {"input_ids": tokens(8)})
    live = problem.graph.metadata[METADATA]
    assert set(live.cache_bytes.values()) == {2 * 2 * 8 * (8 + 1 + 16) * 4}  # keys and values, heads, width, positions
    at = problem.graph.index_of["model.layers.1.self_attn"]
    assert problem.memory_bytes[at] == problem.graph.weight_bytes[at] + live.cache_bytes["model.layers.1.self_attn"]


def test_phases_are_added_as_often_as_they_count() -> None:
    model, inputs = make_model("llama"), {"input_ids": tokens(8)}
    decode, prefill = (made_up_problem(model, p, inputs) for p in ("decode", "prefill"))
    both = made_up_problem(model, {"prefill": 1.0, "decode": 3.0}, inputs)
    assert both.op_time_s.sum() == pytest.approx(prefill.op_time_s.sum() + 3 * decode.op_time_s.sum())
    at = both.graph.index_of["model.layers.1.mlp"]

    def seconds(problem: Any) -> float:
        graph = problem.graph
        (tensor,) = graph.input_tensor[graph.input_ptr[at] : graph.input_ptr[at + 1]]
        return float(problem.tensor_copy_s[tensor].sum())

    assert seconds(both) == pytest.approx(seconds(prefill) + 3 * seconds(decode))


def test_wrong_phases_and_inputs_are_refused() -> None:
    model = make_model("bert")
    with pytest.raises(InputError, match="unknown phase 'decoed'; did you mean 'decode'"):
        made_up_problem(model, "decoed", tokens())
    with pytest.raises(InputError, match="takes 'past_key_values'"):
        made_up_problem(model, "decode", {"input_ids": tokens()})
    with pytest.raises(InputError, match="expected a tensor, a tuple or a dictionary"):
        made_up_problem(model, "forward", 3)
