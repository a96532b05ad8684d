"""Key/value caches of decoders, by what they look like: a list of layers with tensors, or two lists of tensors."""

from __future__ import annotations

from typing import Any

import torch


def is_cache(value: Any) -> bool:
    """Whether an object keeps keys and values per layer."""
    if isinstance(value, (torch.Tensor, torch.nn.Module, str, int, float, dict, list, tuple)) or value is None:
        return False
    return isinstance(getattr(value, "layers", None), list) or isinstance(getattr(value, "key_cache", None), list)


def bring(value: Any, device_of_layer: dict[int, Any], backend: Any) -> None:
    """Move what a cache holds for each layer to that layer's device."""
    if not device_of_layer or not is_cache(value):
        return
    layers = getattr(value, "layers", None)
    for number, device in device_of_layer.items():
        if isinstance(layers, list):
            if number < len(layers):
                _bring_layer(layers[number], device, backend)
            continue
        for tensors in (value.key_cache, value.value_cache):
            held = tensors[number] if number < len(tensors) else None
            if isinstance(held, torch.Tensor) and not backend.is_on(held, device):
                tensors[number] = backend.move([held], device)[0]


def layer_bytes(value: Any) -> dict[int, tuple[float, int]]:
    """Bytes a cache holds per layer, and for how many positions."""
    found: dict[int, tuple[float, int]] = {}
    if not is_cache(value):
        return found
    layers = getattr(value, "layers", None)
    pairs = (
        [(getattr(x, "keys", None), getattr(x, "values", None)) for x in layers]
        if isinstance(layers, list)
        else list(zip(value.key_cache, value.value_cache, strict=True))
    )
    for number, pair in enumerate(pairs):
        held = [t for t in pair if isinstance(t, torch.Tensor)]
        if held and held[0].dim() >= 2:
            size = float(sum(t.numel() * t.element_size() for t in held))
            found[number] = (size, int(held[0].shape[-2]))
    return found


class CacheState:
    """What a cache holds now, to come back to after a forward that appends to it. Tensors are not copied."""

    def __init__(self, values: Any) -> None:
        self._kept: list[tuple[Any, dict[str, Any]]] = []
        for value in values:
            if is_cache(value):
                self._keep(value)
                for layer in getattr(value, "layers", None) or []:
                    self._keep(layer)

    def _keep(self, owner: Any) -> None:
        self._kept.append((owner, {k: list(v) if isinstance(v, list) else v for k, v in vars(owner).items()}))

    def restore(self) -> None:
        for owner, state in self._kept:
            for key in [k for k in vars(owner) if k not in state]:
                delattr(owner, key)
            for key, value in state.items():
                setattr(owner, key, list(value) if isinstance(value, list) else value)


def _bring_layer(layer: Any, device: Any, backend: Any) -> None:
    keys = getattr(layer, "keys", None)
    if not isinstance(keys, torch.Tensor) or backend.is_on(keys, device):
        return
    for name, value in list(vars(layer).items()):
        if isinstance(value, torch.Tensor):
            setattr(layer, name, backend.move([value], device)[0])
        elif isinstance(value, torch.device):
            setattr(layer, name, device)
