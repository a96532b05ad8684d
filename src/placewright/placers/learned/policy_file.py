"""Policies in files: weights as safetensors, and beside them, in its header, what is needed to use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from placewright.documents import Fields, check_version, decoded_json
from placewright.errors import InputError
from placewright.frontends.base import check_file
from placewright.reading import reading
from placewright.text import shown

VERSION = 1  # of the format
FORMAT = f"placewright-policy/{VERSION}"


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

    with reading(path, "a policy") as where:
        check_file(Path(path))
        try:
            with safe_open(str(path), framework="pt") as file:
                header = file.metadata() or {}
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError) as error:
            raise InputError(f"{where}: not a policy file: {shown(str(error))}") from error
        if "format" not in header:
            raise InputError(f"{where}: not a policy; expected format {FORMAT}")
        check_version(header["format"], "policy", VERSION, where)
        if header.get("placer") != placer:
            raise InputError(f"{where}: is a policy for placer '{shown(header.get('placer', ''))}', not '{placer}'")
        parts = {}
        for name in ("settings", "op_types", "history"):
            if name not in header:
                raise InputError(f"{where}: its header is damaged: '{name}' is missing")
            parts[name] = decoded_json(header[name], f"{where}: {name}")
        fields = Fields(parts, f"{where}: its header is damaged")
        types = fields.list_of("op_types")
        if not all(isinstance(t, str) for t in types) or len(set(types)) != len(types):
            raise InputError(f"{where}: its header is damaged: 'op_types' are not distinct names")
        settings, history = (Fields(parts[name], f"{where}: {name}").data for name in ("settings", "history"))
        return Policy(placer, weights, settings, tuple(types), history)
