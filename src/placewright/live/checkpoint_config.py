"""The ``config.json`` of a checkpoint folder, checked before transformers sees it.

A configuration can ask for code: of its own folder, of the Hub, or of any class that transformers has. Only classes of
models that transformers itself lists are made, with attention that it has on board; the rest is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.extras import require
from placewright.files import read_json
from placewright.text import shown

_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "paged_attention")
_DTYPES = ("float64", "float32", "float16", "bfloat16")
_CODE = ("auto_map", "trust_remote_code", "custom_pipelines", "custom_generate")
_FETCHES = ("use_pretrained_backbone", "use_kernels", "configuration_files")  # the last: other files instead
_DEEPEST = 50


def check_config(folder: str | Path) -> None:
    """Refuse a folder whose configuration names code, or other things to be read; without one it passes."""
    require("transformers")
    where, path = shown(str(folder), 200), Path(folder) / "config.json"
    if not path.is_file():
        return
    document = read_json(path)
    if not isinstance(document, dict):
        raise InputError(f"{where}: its config.json does not hold an object")
    for key, value in _fields(document, where):
        if key in _CODE and value not in (None, False):
            raise InputError(
                f"{where}: its config.json asks for code of its own ('{key}'), which is never run; if transformers has "
                "this model, remove that field"
            )
        if key in _FETCHES and value not in (None, False):
            raise InputError(
                f"{where}: its config.json asks for something else to be read ('{key}'); remove that field"
            )
        if key.endswith("attn_implementation") or key.endswith("experts_implementation"):
            for name in value.values() if isinstance(value, dict) else [value]:
                if name is not None and name not in _ATTENTION and name not in ("grouped_mm", "batched_mm"):
                    raise InputError(
                        f"{where}: '{shown(key)}' in its config.json is {_told(name)}, which is not on board"
                    )
    for key in ("dtype", "torch_dtype"):
        value = document.get(key)
        if value is not None and (not isinstance(value, str) or value.removeprefix("torch.") not in _DTYPES):
            raise InputError(f"{where}: '{key}' in its config.json is {_told(value)}, expected {', '.join(_DTYPES)}")
    architectures = document.get("architectures")
    if architectures is not None and (
        not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures)
    ):
        raise InputError(f"{where}: 'architectures' in its config.json is not a list of names")
    for name in architectures or []:
        if name not in listed_models() and _is_something_else(name):
            raise InputError(f"{where}: its config.json names '{shown(name)}' as its architecture, which is no model")


def _is_something_else(name: str) -> bool:
    """Whether transformers calls something by this name; what it does not know is left to the type of the model."""
    import transformers

    return name.startswith("_") or name in dir(transformers)


@cache
def listed_models() -> frozenset[str]:
    """The names of all models that transformers finds by a configuration's type."""
    from transformers.models.auto import modeling_auto

    tables = [table for name, table in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    values = [value for table in tables for value in table.values()]
    return frozenset(name for value in values for name in (value if isinstance(value, (tuple, list)) else [value]))


def _fields(document: dict[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """All fields, also those of configurations inside."""
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        if not level:
            return
        for part in level:
            if isinstance(part, dict):
                yield from part.items()
        parts = [list(part.values()) if isinstance(part, dict) else part for part in level]
        level = [item for part in parts for item in part if isinstance(item, (dict, list))]
    raise InputError(f"{where}: its config.json is nested deeper than {_DEEPEST} levels")


def _told(value: Any) -> str:
    return f"'{shown(value)}'" if isinstance(value, str) else shown(repr(value)[:100], 60)
