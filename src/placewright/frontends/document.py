"""Checks of decoded JSON that make a new document out of what they know; whatever they do not know is left behind.

A check takes a value and returns what is to be used instead, or raises :class:`Misfit`. Checks are put together:
``record`` of fields, ``one_of`` kinds, ``listed`` items, ``named`` items.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from typing import Any

from placewright.text import shown

Check = Callable[[Any], Any]
MOST_VALUES = 12_000_000  # of one document; each takes up to some 80 bytes of memory
_REQUIRED = object()
_LOWEST, _HIGHEST = -(2**63), 2**64
_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


class Misfit(ValueError):
    """What is wrong, and in which field: the path grows while the error rises."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"{shown('.'.join(reversed(self.path)), 100)}: {self.what}" if self.path else self.what


def decoded(data: bytes) -> Any:
    """A JSON document, unless it holds more values than any program has."""
    n_values = data.count(b",") + data.count(b"[") + data.count(b"{")  # no fewer than there are
    if n_values > MOST_VALUES:
        raise Misfit(f"holds some {n_values} values, more than {MOST_VALUES}")
    return json.loads(data)


def kind(value: Any) -> str:
    """What JSON calls a value.

    >>> kind([]), kind(None)
    ('a list', 'null')
    """
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def whole(value: Any) -> int:
    """A whole number of 64 bits."""
    if type(value) is not int or not _LOWEST <= value < _HIGHEST:
        raise Misfit(f"is {_told(value)}, expected a whole number of 64 bits")
    return value


def count(value: Any) -> int:
    """A whole number that a size can be."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise Misfit(f"is {_told(value)}, expected a whole number from 0 to 2^63")
    return value


def number(value: Any) -> float:
    """A number, also one of the three that JSON lacks."""
    if isinstance(value, str) and value in _FLOATS:
        return _FLOATS[value]
    if type(value) is int and abs(value) < _HIGHEST:
        return float(value)
    if type(value) is not float:
        raise Misfit(f"is {_told(value)}, expected a number")
    return value


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise Misfit(f"is {_told(value)}, expected true or false")
    return value


def text(most: int = 10_000, pattern: str = "") -> Check:
    """A text of at most ``most`` characters that matches ``pattern`` as a whole."""
    form = re.compile(pattern) if pattern else None

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise Misfit(f"is {_told(value)}, expected a text")
        if len(value) > most:
            raise Misfit(f"has {len(value)} characters, more than {most}")
        if form is not None and form.fullmatch(value) is None:
            raise Misfit(f"is '{shown(value, 60)}', which no exported program has there")
        return value

    return check


def choice(values: Collection[Any]) -> Check:
    """One of the given values."""

    def check(value: Any) -> Any:
        if type(value) not in (int, str) or value not in values:
            raise Misfit(f"is {_told(value)}, which no exported program has there")
        return value

    return check


def listed(item: Check) -> Check:
    """A list whose items all pass."""

    def check(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Misfit(f"is {kind(value)}, expected a list")
        made: list[Any] = []
        try:
            for part in value:
                made.append(item(part))
        except Misfit as misfit:
            misfit.path.append(f"{len(made)}")
            raise
        return made

    return check


def named(name: Check, item: Check) -> Check:
    """An object that holds any number of items, by names."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit(f"is {kind(value)}, expected an object")
        made: dict[str, Any] = {}
        for key, part in value.items():
            try:
                made[name(key)] = item(part)
            except Misfit as misfit:
                misfit.path.append(key)
                raise
        return made

    return check


def optional(check: Check, default: Any = None) -> tuple[Check, Any]:
    """A field of a record that may be missing or null."""
    return check, default


def record(**fields: Check | tuple[Check, Any]) -> Check:
    """An object with these fields; others are left behind."""
    rows = [(n, *(f if isinstance(f, tuple) else (f, _REQUIRED))) for n, f in fields.items()]

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit(f"is {kind(value)}, expected an object")
        made: dict[str, Any] = {}
        for name, field, default in rows:
            part = value.get(name, None if default is not _REQUIRED else _REQUIRED)
            if part is _REQUIRED:
                raise Misfit(f"lacks '{name}'")
            if part is None and default is not _REQUIRED:
                made[name] = default() if callable(default) else default
                continue
            try:
                made[name] = field(part)
            except Misfit as misfit:
                misfit.path.append(name)
                raise
        return made

    return check


def one_of(kinds: dict[str, Check]) -> Check:
    """An object with one field, which says what kind of thing it holds."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) != 1:
            raise Misfit(f"is {kind(value)}, expected an object with one field")
        ((name, part),) = value.items()
        if name not in kinds:
            raise Misfit(f"is of kind '{shown(name, 60)}', which is not supported")
        try:
            return {name: kinds[name](part)}
        except Misfit as misfit:
            misfit.path.append(name)
            raise

    return check


def check_depth(value: Any, most: int) -> None:
    """Refuse a document whose lists and objects are nested deeper than ``most``."""
    level = [value]
    for _ in range(most + 1):
        lists = [part for part in level if isinstance(part, list)]
        lists += [list(part.values()) for part in level if isinstance(part, dict)]
        if not lists:
            return
        level = [item for part in lists for item in part if isinstance(item, (dict, list))]
    raise Misfit(f"is nested deeper than {most} levels")


def _told(value: Any) -> str:
    if isinstance(value, str):
        return f"'{shown(value, 60)}'"
    if type(value) is int:
        return str(value) if abs(value) < _HIGHEST else "a number of more than 64 bits"
    return repr(value) if type(value) in (float, bool) else kind(value)
