"""How names and quantities are shown to people. Names come from foreign files and are never trusted."""

from __future__ import annotations

import math

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shown(name: str, limit: int = 80) -> str:
    """Return ``name`` safe to print: control characters, line breaks and lone surrogates are escaped.

    >>> shown("conv\\n1")
    'conv\\\\n1'
    """
    safe = escaped(name)
    if len(safe) <= limit:
        return safe
    head = (limit - 1) // 2
    return safe[:head] + "…" + safe[-(limit - 1 - head) :]


def escaped(name: str) -> str:
    """Return ``name`` with control characters, line breaks and lone surrogates escaped, however long it is."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in name)


def shown_list(names: list[str], limit: int = 5) -> str:
    """Return up to ``limit`` quoted names, and how many were left out."""
    text = ", ".join(f"'{shown(n)}'" for n in names[:limit])
    more = len(names) - limit
    return f"{text} and {more} more" if more > 0 else text


def bytes_text(size_bytes: float) -> str:
    """Return a size with a binary unit.

    >>> bytes_text(17185374208.0)
    '16.01 GiB'
    """
    if math.isinf(size_bytes):
        return "no limit"
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.4g} {_BYTE_UNITS[unit]}"


def time_text(value: float, unit: str = "s") -> str:
    """Return a duration; seconds get a readable prefix, a file's own unit is left as it is.

    >>> time_text(0.00325)
    '3.25 ms'
    >>> time_text(20.084, "")
    '20.084'
    """
    if not math.isfinite(value):
        return "—"
    if unit != "s":
        return f"{value:.6g}"
    factor, prefixed = _time_unit(value)
    return f"{value * factor:.4g} {prefixed}"


def interval_text(low_s: float, high_s: float) -> str:
    """Return both ends of an interval of durations, in one unit.

    >>> interval_text(0.02427, 0.02588)
    '24.27 to 25.88 ms'
    """
    factor, prefixed = _time_unit(high_s)
    return f"{low_s * factor:.4g} to {high_s * factor:.4g} {prefixed}"


def _time_unit(value_s: float) -> tuple[float, str]:
    magnitude = abs(value_s)
    if magnitude >= 1 or magnitude == 0:
        return 1.0, "s"
    return (1e3, "ms") if magnitude >= 1e-3 else (1e6, "us")
