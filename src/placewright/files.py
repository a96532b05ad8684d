"""Reading files that may be anything, and writing files whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.text import shown

_parts: set[str] = set()  # files that are being written


def read_text(path: str | Path) -> str:
    """Return the text of a regular UTF-8 file; everything else is an :class:`InputError` that names the file."""
    where = shown(str(path), limit=200)
    try:
        if os.path.isdir(path):
            raise InputError(f"{where}: is a directory, expected a file")
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f"{where}: is not a regular file")
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{where}: cannot be read: {shown(reason)}") from error


def read_json(path: str | Path) -> Any:
    """Return the decoded JSON of a file. NaN and infinities are let through for the reader to refuse by field."""
    text, where = read_text(path), shown(str(path), limit=200)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise InputError(f"{where}: not valid JSON for this purpose: nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"{where}: not valid JSON for this purpose: {shown(str(error))}") from error


def write_whole(path: str | Path, text: str) -> None:
    """Write a text file so that a reader finds the old content or the new one, never a part."""
    write_whole_bytes(path, text.encode("utf-8", errors="surrogatepass"))


def write_whole_bytes(path: str | Path, content: bytes) -> None:
    """:func:`write_whole` for any content."""
    target = Path(path)
    where = shown(str(path), limit=200)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{where}: cannot be written: {shown(reason)}") from error
    _parts.add(temporary)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"{where}: cannot be written: {shown(error.strerror or str(error))}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        _parts.discard(temporary)


def remove_parts() -> None:
    """Remove what other threads are writing, for a process that ends without waiting for them."""
    for temporary in list(_parts):
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
