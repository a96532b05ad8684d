"""Reading files that may be anything, and writing files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from placewright.documents import decoded_json
from placewright.errors import InputError
from placewright.text import bytes_text, shown

# Decoded, a text takes up to 25 times its size in memory; what 30,000 ops need is below 10 MiB.
LARGEST_BYTES = 64 * 2**20

_parts: set[str] = set()  # files that are being written


def read_text(path: str | Path, most_bytes: int = LARGEST_BYTES) -> str:
    """Return the text of a regular UTF-8 file; everything else is an :class:`InputError` that names the file."""
    where = shown(str(path), limit=200)
    try:
        if os.path.isdir(path):
            raise InputError(f"{where}: is a directory, expected a file")
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f"{where}: is not a regular file")
        if os.path.exists(path) and os.path.getsize(path) > most_bytes:
            raise InputError(f"{where}: is larger than {bytes_text(most_bytes)}, the most that is read of such a file")
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{where}: cannot be read: {shown(reason)}") from error


def read_json(path: str | Path) -> Any:
    """Return the decoded JSON of a file. NaN and infinities are let through for the reader to refuse by field."""
    return decoded_json(read_text(path), shown(str(path), limit=200))


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
