"""Weights on disk: written once, then mapped: what is read takes memory, and the system may drop it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MARK = "_placewright_mapped"


def map_weights(weights: dict[str, Any], path: Path) -> dict[str, Any]:
    """Write tensors to a safetensors file and return them as views of the mapped file."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: t.detach().contiguous().cpu() for name, t in weights.items()}, str(path))
    file: Any = safe_open(str(path), framework="pt", device="cpu")
    return {name: file.get_tensor(name) for name in weights}


def mark_mapped(tensor: Any) -> None:
    """Note that a weight is a view of a mapped file."""
    setattr(tensor, _MARK, True)


def is_mapped(tensor: Any) -> bool:
    """Whether a weight is known to be a view of a mapped file."""
    return bool(getattr(tensor, _MARK, False))
