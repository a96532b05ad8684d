"""The door that every reader of foreign files has: through it nothing comes but an :class:`InputError`, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placewright.errors import InputError, MissingExtraError
from placewright.text import shown

_LONGEST = 2000


@contextmanager
def reading(path: str | Path, what: str) -> Iterator[str]:
    """Whatever goes wrong inside while a file is read leaves as one line that begins with the file's name.

    ``what`` says what the file should be, such as ``"a profile"``. The cause is kept, for ``--debug``. The name of the
    file as messages show it is what ``with`` gives.

    >>> with reading("box.toml", "a cluster"):
    ...     {}["device"]
    Traceback (most recent call last):
    placewright.errors.InputError: box.toml: not a cluster that can be read: KeyError 'device'
    """
    where = shown(str(path), 200)
    try:
        yield where
    except MissingExtraError:
        raise
    except InputError as error:
        if where in str(error) and "\n" not in str(error):
            raise
        raise InputError(_from_file(where, str(error))) from error
    except Exception as error:
        if (wanted := _missing_extra(error)) is not None:
            raise wanted from error
        raise InputError(f"{where}: not {what} that can be read: {_reason(error)}") from error
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":  # a library in Rust gave up; all others are signals and exits
            raise
        raise InputError(f"{where}: not {what} that can be read: {_reason(error)}") from error


def _from_file(where: str, message: str) -> str:
    message = shown(message, _LONGEST)
    return message if where in message else f"{where}: {message}"


def _missing_extra(error: BaseException) -> MissingExtraError | None:
    from placewright.extras import missing_extra

    return missing_extra(error)


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return shown(error.strerror)
    from placewright.frontends.base import one_line

    return one_line(error)
