"""Settings out of files: every field of the type that it has in the class, and within its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from placewright.documents import Fields
from placewright.errors import InputError, suggestion
from placewright.text import shown

Chosen = TypeVar("Chosen")
_LARGEST = 1e6  # of weights, rates and noise: no setting is near it


def checked_settings(
    default: Chosen,
    document: dict[str, Any],
    where: str,
    choices: Mapping[str, tuple[str, ...]],
    limits: Mapping[str, tuple[int, int]],
) -> Chosen:
    """``default``, a dataclass, with the fields of a document in place of its own.

    Whole numbers need ``limits``; texts are free unless they are one of ``choices``. What a field has in ``default``
    says of which type it is.
    """
    found = Fields(document, where)
    values: dict[str, Any] = {}
    names = [field.name for field in fields(default)]  # type: ignore[arg-type]
    for name in document:
        if name not in names:
            raise InputError(f"{where}: unknown field '{shown(name)}'; {suggestion(name, names)}")
        own = getattr(default, name)
        if isinstance(own, bool):
            values[name] = found.flag(name)
        elif isinstance(own, int):
            least, most = limits[name]
            values[name] = found.integer(name)
            if not least <= values[name] <= most:
                raise InputError(f"{where}: '{name}' is {values[name]}, expected {least} to {most}")
        elif isinstance(own, float):
            values[name] = found.number(name)
            if values[name] > _LARGEST:
                raise InputError(f"{where}: '{name}' is {values[name]:g}, expected at most {_LARGEST:g}")
        else:
            values[name] = found.chosen(name, choices[name]) if name in choices else found.text(name)
    return replace(default, **values)  # type: ignore[type-var]
