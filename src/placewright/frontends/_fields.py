"""Typed access to the fields of a decoded JSON object.

Every error names the place, the field, the value and what was expected.
"""

from __future__ import annotations

import math
from typing import Any

from placewright.errors import InputError
from placewright.text import shown

_REQUIRED: Any = object()


class Fields:
    """One JSON object and the words for where it stands."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise InputError(f"{where}: is {_kind(data)}, expected an object")
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
            raise InputError(f"{self.where}: field '{name}' is missing")
        return value

    def _wrong(self, name: str, value: Any, expected: str) -> InputError:
        return InputError(f"{self.where}: '{name}' is {_kind(value)}, expected {expected}")


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


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    try:
        text = str(value)
    except ValueError:  # an integer of thousands of digits
        return "a huge number"
    return f"'{shown(text, 40)}'" if isinstance(value, str) else shown(text, 40)
