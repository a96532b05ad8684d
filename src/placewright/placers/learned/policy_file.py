"""Policies in files: weights as safetensors, and beside them, in its header, what is needed to use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from placewright.errors import InputError
from placewright.text import shown

FORMAT = "placewright-policy/1"


class Policy(NamedTuple):
    """Weights with the name of the placer they belong to, its settings, and the vocabulary of op types."""

    placer: str
    weights: dict[str, Tensor]
    settings: dict[str, Any]
    op_types: tuple[str, ...]
    history: dict[str, Any]  # what it was trained on


def save_policy(path: str | Path, policy: Policy) -> None:
    """Write a policy whole or not at all."""
    from safetensors.torch import save

    from placewright.files import write_whole_bytes

    header = {
        "format": FORMAT,
        "placer": policy.placer,
        "settings": json.dumps(policy.settings, sort_keys=True),
        "op_types": json.dumps(policy.op_types),
        "history": json.dumps(policy.history, sort_keys=True),
    }
    write_whole_bytes(path, save({k: t.detach().contiguous() for k, t in policy.weights.items()}, header))


def load_policy(path: str | Path, placer: str) -> Policy:
    """Read a policy of one placer; anything else is an :class:`InputError` that names the file."""
    from safetensors import SafetensorError, safe_open

    where = shown(str(path), limit=200)
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{where}: not a policy file: {shown(str(error))}") from error
    if header.get("format") != FORMAT:
        raise InputError(f"{where}: not a policy of this version; expected format {FORMAT}")
    if header.get("placer") != placer:
        raise InputError(f"{where}: is a policy for placer '{shown(header.get('placer', ''))}', not '{placer}'")
    try:
        settings, types, history = (json.loads(header[k]) for k in ("settings", "op_types", "history"))
        return Policy(placer, weights, dict(settings), tuple(str(t) for t in types), dict(history))
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{where}: its header is damaged: {shown(str(error))}") from error
