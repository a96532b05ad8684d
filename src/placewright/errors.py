"""Errors that a user can act on; each carries the exit code of the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class PlacewrightError(Exception):
    """Base of all errors raised on purpose. The message is one line, meant for people.

    >>> issubclass(InputError, PlacewrightError), InputError.exit_code
    (True, 2)
    """

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled exception is made again from ``args``, which are not what every ``__init__`` takes; then it would
        # break the process pool that it travels through.
        return _made_again, (type(self), self.args, self.__dict__)


class InputError(PlacewrightError):
    """The input is wrong: the message names the file or option, the field, and what was expected.

    >>> from placewright import load
    >>> try:
    ...     load("zoo:incepton-v3")
    ... except InputError as error:
    ...     print(error)
    unknown model 'zoo:incepton-v3'; did you mean 'inception-v3'?
    """

    exit_code = 2


class CycleError(InputError):
    """The operators depend on each other in a circle; ``cycle`` lists their indices in the given numbering."""

    def __init__(self, message: str, cycle: list[int]) -> None:
        super().__init__(message)
        self.cycle = cycle


class MissingExtraError(InputError):
    """An optional package is needed; the message names the extra to install."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package '{package}': pip install 'placewright[{extra}]'")


def _made_again(kind: type[PlacewrightError], args: tuple[Any, ...], state: dict[str, Any]) -> PlacewrightError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def suggestion(word: str, known: Iterable[str], shown_at_most: int = 40) -> str:
    """Return a ``did you mean`` clause for a misspelt word, or the list of what is known.

    >>> suggestion("gpu1", ["gpu0", "cpu0"])
    "did you mean 'gpu0' or 'cpu0'?"
    """
    options = sorted(known)
    close = difflib.get_close_matches(word, options, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(f"'{c}'" for c in close) + "?"
    more = len(options) - shown_at_most
    return "known: " + ", ".join(options[:shown_at_most]) + (f" and {more} more" if more > 0 else "")
