"""What is run: a forward as the caller gives it, the prefill of a prompt, or the decoding of one token after it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from placewright.errors import InputError, suggestion
from placewright.live.caches import CacheState, is_cache
from placewright.live.trace import stand_ins_on_meta

PHASES = ("forward", "prefill", "decode")


@dataclass
class Workload:
    """One phase: the inputs of a forward, and how many such forwards count in the objective."""

    phase: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    count: float = 1.0
    prompt: Any = None  # of decode: tokens to take the next one from

    def run(self, model: Any, turn: int = 0) -> Any:
        """One forward; a cache among the inputs is afterwards as it was before.

        Each ``turn`` decodes another token, as a decoder does: it may need other experts.
        """
        state = CacheState([*self.args, *self.kwargs.values()])
        kwargs = self.kwargs
        if turn and self.prompt is not None:
            at = -1 - turn % self.prompt.shape[1]
            kwargs = {**kwargs, "input_ids": self.prompt[:, at, None]}
        try:
            with torch.no_grad():
                return model(*self.args, **kwargs)
        finally:
            state.restore()

    @property
    def caches(self) -> list[Any]:
        return [v for v in [*self.args, *self.kwargs.values()] if is_cache(v)]


def make_workloads(model: Any, example_inputs: Any, phase: str | Mapping[str, float]) -> list[Workload]:
    """The workloads of the phases asked for; ``phase`` may give several, each with its count."""
    counts = {phase: 1.0} if isinstance(phase, str) else dict(phase)
    for name, count in counts.items():
        if name not in PHASES:
            raise InputError(f"unknown phase '{name}'; {suggestion(name, PHASES)}")
        if not count > 0:
            raise InputError(f"phase '{name}' counts {count} times, expected a number above 0")
    args, kwargs = normal_inputs(example_inputs)
    made = []
    for name, count in counts.items():
        if name == "decode":
            made.append(_decode(model, args, kwargs, count))
        else:
            extra = {"use_cache": True} if name == "prefill" and _takes(model, "use_cache") else {}
            made.append(Workload(name, args, {**kwargs, **extra}, count))
    return made


def normal_inputs(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and named arguments."""
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs), {}
    raise InputError(
        f"example inputs are a {type(example_inputs).__name__}, expected a tensor, a tuple or a dictionary of inputs"
    )


def _decode(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], count: float) -> Workload:
    """One token after the example prompt, with the cache that the prompt leaves."""
    past = next((k for k, v in kwargs.items() if is_cache(v)), None)
    if past is not None:
        return Workload("decode", args, kwargs, count)
    first = "input_ids" if "input_ids" in kwargs else None
    tokens = kwargs[first] if first else next((a for a in args if isinstance(a, torch.Tensor)), None)
    if tokens is None or tokens.dim() != 2:
        raise InputError("phase 'decode' needs example inputs with tokens of shape (batch, positions)")
    if not _takes(model, "past_key_values"):
        raise InputError("phase 'decode' needs a model that takes 'past_key_values'; phase 'forward' takes any model")
    with stand_ins_on_meta(model), torch.no_grad():
        result = model(*args, **{**kwargs, "use_cache": True})
    cache = next((v for v in result.values() if is_cache(v)), None) if isinstance(result, Mapping) else None
    if cache is None:
        raise InputError("phase 'decode': the model returned no key/value cache")
    named = {"input_ids": tokens[:, -1:], "past_key_values": cache, "use_cache": True}
    mask = kwargs.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        named["attention_mask"] = torch.cat([mask, mask.new_ones((mask.shape[0], 1))], dim=1)
    return Workload("decode", (), named, count, prompt=tokens)


def _takes(model: Any, name: str) -> bool:
    parameters = inspect.signature(model.forward).parameters
    return name in parameters
