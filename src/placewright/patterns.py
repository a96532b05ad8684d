"""Regular expressions out of files, searched for in names: some take for ever on a name of thirty letters."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from placewright.apart import Apart, Ended, Refused
from placewright.errors import InputError
from placewright.text import shown

LIMIT_S = 5.0
_MANY = 16  # repeats up to so often are no repeats
_MOST_REPEATS = 2  # one after the other, before time is taken


def matching(pattern: str, names: tuple[str, ...]) -> tuple[bool, ...]:
    """Which names hold what the pattern says; raises ``re.error`` if it is none, ``InputError`` if it takes long.

    >>> matching("^a", ("ab", "ba"))
    (True, False)
    """
    compiled = re.compile(pattern)
    if not _may_take_long(pattern):
        return tuple(compiled.search(name) is not None for name in names)
    return _matching_apart(pattern, names)


def _may_take_long(pattern: str) -> bool:
    """True if the pattern has repeats or choices inside repeats, looks back at groups, or repeats much in a row."""
    import re._parser as parser  # type: ignore[import-not-found]

    count, todo = 0, [(parser.parse(pattern), False)]
    while todo:
        part, is_inside = todo.pop()
        for code, argument in part:
            name, inner = str(code), is_inside
            if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and int(argument[1]) > _MANY:
                if is_inside:
                    return True
                count, inner = count + 1, True
            if name.startswith("GROUPREF") or (name == "BRANCH" and is_inside):
                return True
            todo += [(found, inner) for found in _parts(argument, parser.SubPattern)]
    return count > _MOST_REPEATS


def _parts(argument: Any, kind: type) -> Iterable[Any]:
    if isinstance(argument, kind):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for inside in argument:
            yield from _parts(inside, kind)


@functools.lru_cache(maxsize=64)
def _matching_apart(pattern: str, names: tuple[str, ...]) -> tuple[bool, ...]:
    with Apart(Path(__file__).with_name("patterns_apart.py")) as process:
        try:
            return tuple(process.ask(json.dumps([pattern, *names]).encode(), LIMIT_S + len(names) * 1e-4))
        except (Ended, Refused) as error:
            raise InputError(f"the pattern '{shown(pattern)}' is too hard to search for: {error}") from error
