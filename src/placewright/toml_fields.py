"""Fields of TOML files: every error names the file, the field, the value and what was expected."""

from __future__ import annotations

import math
import re
import tomllib
from typing import Any, cast

from placewright.documents import not_too_deep, value_text
from placewright.errors import InputError, suggestion
from placewright.text import shown

LARGEST_TOML_BYTES = 8 * 2**20
_SCALE = {
    "bytes": {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
              "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
    "seconds": {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "flops": {"": 1, "G": 1e9, "T": 1e12},
}  # fmt: skip
_SCALE["bytes/s"] = {("" if u == "" else f"{u}/s"): f for u, f in _SCALE["bytes"].items()}


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The document, or an :class:`InputError` that says where it is not TOML."""
    try:
        return cast(dict[str, Any], not_too_deep(tomllib.loads(text), where, "TOML"))
    except (ValueError, RecursionError) as error:  # also of an integer of thousands of digits
        raise InputError(f"{where}: not valid TOML: {shown(str(error))}") from error


def only_known(entry: dict[str, Any], known: set[str], where: str) -> None:
    """Refuse fields that are not known, with the nearest that is."""
    for field in entry:
        if field not in known:
            raise InputError(f"{where}: unknown field '{shown(field)}'; {suggestion(field, known)}")


def tables(document: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    """The tables ``[[name]]``, an empty list if there are none."""
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise InputError(f"{where}: '{name}' is not a list of tables, expected [[{name}]]")
    return entries


def whole_number(entry: dict[str, Any], field: str, where: str, default: int, least: int, most: int) -> int:
    """A whole number within limits."""
    value = entry.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(f"{where}: '{field}' is {value_text(value)}, expected a whole number from {least} to {most}")
    return value


def quantity(entry: dict[str, Any], field: str, unit: str, where: str, default: Any) -> float:
    """A number with a unit of ``unit`` (bytes, bytes/s, seconds, flops)."""
    if field not in entry and default is not None:
        return float(default)
    value = entry.get(field)
    text = str(value) if isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < 2**63) else ""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*", text)
    try:
        if match is None or isinstance(value, bool) or match[2] not in _SCALE[unit]:
            raise ValueError(value)
        number = float(match[1]) * _SCALE[unit][match[2]]
        if not math.isfinite(number):
            raise ValueError(value)
    except ValueError:
        example = {"bytes": "16GiB", "bytes/s": "12GB/s", "seconds": "10us", "flops": "9.3e12"}[unit]
        found = "missing" if value is None else f"'{value_text(value)}'"
        raise InputError(f"{where}: '{field}' is {found}, expected {unit}, for example \"{example}\"") from None
    return number
