"""What the configuration of a checkpoint may ask for: counts that make things have limits, and names name no code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from placewright.documents import kind_text
from placewright.errors import InputError
from placewright.files import read_json
from placewright.text import shown

# Every layer and expert becomes a module, every head a row; names as transformers' configurations have them.
_LIMITS = (
    (re.compile(r"(^|_)(n_|num_)?(hidden_|encoder_|decoder_|block_)?layers?$|n_layer|num_blocks|depths?$"), 256),
    (re.compile(r"experts?(_|$)"), 4096),
    (re.compile(r"heads?(_|$)"), 65536),
    (re.compile(r"max_position_embeddings|n_positions|n_ctx|max_seq|_length$"), 2**27),
)
_MOST = 2**53  # of all others
_LAYERS_TIMES_EXPERTS = 2**16
_IMPLEMENTATION = re.compile(r"_?(attn|attention|experts)_implementation(_.*)?")


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds no configuration, or one of :func:`check_config`."""
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"{shown(str(folder), 200)}: no config.json there; expected the folder of a checkpoint")
    check_config(read_json(file), shown(str(file), 200))


def check_config(config: Any, where: str) -> None:
    """Refuse a configuration whose model would never be built, or that names code to be fetched."""
    if not isinstance(config, dict):
        raise InputError(f"{where}: is {kind_text(config)}, expected an object")
    most = {"layers": 1, "experts": 1}
    todo: list[Any] = [config]
    while todo:
        part = todo.pop()
        todo += [v for v in (part.values() if isinstance(part, dict) else part) if isinstance(v, (dict, list))]
        for name, value in part.items() if isinstance(part, dict) else ():
            if _IMPLEMENTATION.fullmatch(name) and not (value is None or _is_plain(value)):
                raise InputError(f"{where}: '{shown(name)}' is {kind_text(value)}, expected a name without '/'")
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int) and not isinstance(number, bool):
                    _check_number(name, number, where, most)
    if most["layers"] * most["experts"] > _LAYERS_TIMES_EXPERTS:
        raise InputError(
            f"{where}: has {most['layers']} layers of {most['experts']} experts, "
            f"expected at most {_LAYERS_TIMES_EXPERTS} experts in all"
        )


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) and "/" not in value and ":" not in value


def _check_number(name: str, number: int, where: str, most: dict[str, int]) -> None:
    limit = next((limit for pattern, limit in _LIMITS if pattern.search(name)), _MOST)
    if not -_MOST <= number <= limit:
        raise InputError(f"{where}: '{shown(name)}' is {kind_text(number)}, expected at most {limit}")
    if "expert" in name:
        most["experts"] = max(most["experts"], number)
    elif "layer" in name or "block" in name:
        most["layers"] = max(most["layers"], number)
