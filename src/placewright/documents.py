"""Decoded documents, JSON and TOML alike: how deep they may be, which version of a format they have, typed fields.

Every error names the place, the field, the value and what was expected.
"""

from __future__ import annotations

import json
import math
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from placewright.errors import InputError
from placewright.text import shown

DEEPEST = 64  # lists and objects inside each other: no format of ours has ten
_REQUIRED: Any = object()


def decoded_json(text: str, where: str) -> Any:
    """The document of a JSON text. NaN and infinities are let through for the reader to refuse by field."""
    try:
        return not_too_deep(json.loads(text), where, "JSON")
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise _too_deep(where, "JSON") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"{where}: not valid JSON for this purpose: {shown(str(error))}") from error


def not_too_deep(document: Any, where: str, language: str) -> Any:
    """The document as it is, unless lists and objects are nested more than ``DEEPEST`` times."""
    level = [document] if isinstance(document, (dict, list)) else []
    for _ in range(DEEPEST):
        inside = (value for part in level for value in (part.values() if isinstance(part, dict) else part))
        level = [value for value in inside if isinstance(value, (dict, list))]
        if not level:
            return document
    raise _too_deep(where, language)


def _too_deep(where: str, language: str) -> InputError:
    return InputError(f"{where}: not valid {language} for this purpose: nested too deeply (more than {DEEPEST} times)")


def check_version(found: Any, kind: str, newest: int, where: str) -> None:
    """Refuse a file of ours that a newer program wrote; ``found`` is its format, such as ``placewright-profile/3``.

    >>> check_version("placewright-profile/1", "profile", 1, "p.json")
    """
    match = re.fullmatch(rf"placewright-{kind}/([0-9]{{1,9}})", found) if isinstance(found, str) else None
    if match is None:
        raise InputError(
            f"{where}: not a {kind}: its format is {kind_text(found)}, expected 'placewright-{kind}/{newest}'"
        )
    check_version_number(int(match[1]), kind, newest, where)


def check_version_number(found: int, kind: str, newest: int, where: str) -> None:
    """:func:`check_version` for formats that hold nothing but the number."""
    if found > newest:
        raise InputError(
            f"{where}: {kind} format {found}, this placewright {_own_version()} reads up to {newest}; "
            "upgrade placewright"
        )
    if found < 0:
        raise InputError(f"{where}: not a {kind}: its format is {found}, expected {newest}")


def _own_version() -> str:
    try:
        return version("placewright")
    except PackageNotFoundError:
        return "(version unknown)"


class Fields:
    """One JSON object and the words for where it stands."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise InputError(f"{where}: is {kind_text(data)}, expected an object")
        self.data: dict[str, Any] = data
        self.where = where

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        """A finite number >= 0."""
        value = self._get(name, default)
        number = math.nan
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
        if not (math.isfinite(number) and number >= 0):
            raise self._wrong(name, value, "a finite number >= 0")
        return number

    def integer(self, name: str, default: Any = _REQUIRED) -> Any:
        """A whole number of at most 64 bits, or the default where the field is missing."""
        value = self._get(name, default)
        if value is default and default is not _REQUIRED:
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
            raise self._wrong(name, value, "a whole number")
        return value

    def count(self, name: str, most: int) -> int:
        """A whole number from 0 to ``most``."""
        value = self.integer(name)
        if not 0 <= value <= most:
            raise self._wrong(name, value, f"a whole number from 0 to {most}")
        return int(value)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        """true, false, 0 or 1."""
        value = self._get(name, default)
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            raise self._wrong(name, value, "true, false, 0 or 1")
        return bool(value)

    def chosen(self, name: str, among: tuple[str, ...]) -> str:
        """One of some strings."""
        value = self.text(name)
        if value not in among:
            raise self._wrong(name, value, " or ".join(among))
        return value

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        """A string."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a string")
        return value

    def list_of(self, name: str) -> list[Any]:
        """A list."""
        value = self._get(name, _REQUIRED)
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value

    def _get(self, name: str, default: Any) -> Any:
        value = self.data.get(name, default)
        if value is _REQUIRED:
            raise InputError(f"{self.where}: field '{shown(name)}' is missing")
        return value

    def _wrong(self, name: str, value: Any, expected: str) -> InputError:
        return InputError(f"{self.where}: '{shown(name)}' is {kind_text(value)}, expected {expected}")


def finite(value: Any) -> float | None:
    """A finite number as it is, ``None`` for everything else that a file may hold instead.

    >>> finite(3), finite("3"), finite(10**400)
    (3.0, None, None)
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def value_text(value: Any) -> str:
    """What a document holds in some place, as it is, up to 40 characters of one line.

    >>> value_text([1, 2]), value_text(10**5000)
    ('[1, 2]', 'a huge number')
    """
    try:
        return shown(str(value), 40)
    except ValueError:  # an integer of thousands of digits
        return "a huge number"


def kind_text(value: Any) -> str:
    """What a document holds in some place, for messages: short, on one line, whatever it is.

    >>> kind_text([1, 2]), kind_text("a\\nb"), kind_text(10**5000)
    ('a list', "'a\\\\nb'", 'a huge number')
    """
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    return f"'{value_text(value)}'" if isinstance(value, str) else value_text(value)
