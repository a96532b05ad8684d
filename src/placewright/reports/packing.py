"""Columns made small: names by what they share with the one before, words once, numbers with few digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.text import shown

_LONGEST = 20_000


def shared_start(sequences: Sequence[str] | Sequence[list[str]]) -> int:
    """How many elements all sequences begin with.

    >>> shared_start(["conv1", "conv2"]), shared_start([["a", "b"], ["a", "c", "d"]])
    (4, 1)
    """
    # What the least and the greatest share, all in between share too.
    low: Sequence[str] = min(sequences)
    high: Sequence[str] = max(sequences)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def packed_names(names: Sequence[str]) -> dict[str, list[Any]]:
    """Each name as the number of characters it shares with the name before, and the rest.

    >>> packed_names(["conv/a", "conv/b"])
    {'keep': [0, 5], 'rest': ['conv/a', 'b']}
    """
    safe = [shown(n, _LONGEST) for n in names]
    keep = [0, *(shared_start(pair) for pair in pairwise(safe))]
    # JavaScript counts characters beyond the basic plane twice; such names are written whole.
    keep = [k if n.isascii() else 0 for k, n in zip(keep, safe, strict=False)]
    return {"keep": keep, "rest": [n[k:] for k, n in zip(keep, safe, strict=True)]}


def packed_words(words: Iterable[str]) -> dict[str, list[Any]]:
    """Each distinct word once, and which one stands where.

    >>> packed_words(["conv", "relu", "conv"])
    {'words': ['conv', 'relu'], 'at': [0, 1, 0]}
    """
    number: dict[str, int] = {}
    at = [number.setdefault(shown(w, _LONGEST), len(number)) for w in words]
    return {"words": list(number), "at": at}


def number(value: Any, digits: int = 6) -> float | int | None:
    """A number with few digits, whole where it is whole; ``None`` where it is not finite.

    >>> number(0.123456789), number(2.0), number(float("inf"))
    (0.123457, 2, None)
    """
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{float(value):.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def numbers(values: NDArray[Any] | Iterable[float], digits: int = 6) -> list[float | int | None]:
    """:func:`number` of each."""
    return [number(v, digits) for v in np.asarray(values, dtype=np.float64).tolist()]
