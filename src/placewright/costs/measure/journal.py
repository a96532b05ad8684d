"""What a measurement has found so far, in a side file: one JSON line per finding, so that a stop loses at most one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.files import read_text, write_whole
from placewright.text import shown


class Journal:
    """Findings by key. With a path they are kept on disc as they come; ``resume`` reads those of an earlier run.

    ``settings`` say what is measured; a file of other settings is refused.
    """

    def __init__(self, path: Path | None, settings: dict[str, Any], *, resume: bool = False) -> None:
        self.path = path
        self._findings: dict[str, list[Any]] = {}
        if path is None:
            return
        if resume and path.exists():
            for key, value in _lines(path, settings):
                self._findings.setdefault(key, []).append(value)
        lines = [settings, *([key, value] for key, values in self._findings.items() for value in values)]
        write_whole(path, "".join(json.dumps(line) + "\n" for line in lines))

    def found(self, key: str) -> list[Any]:
        """All findings under a key, oldest first."""
        return self._findings.get(key, [])

    def keys_of(self, prefix: str) -> list[str]:
        """All keys with that beginning."""
        return [key for key in self._findings if key.startswith(prefix)]

    def add(self, key: str, value: Any) -> None:
        """Keep a finding. If it cannot be written, those before it stay as they are, in the file and here."""
        if self.path is not None:
            self._append((json.dumps([key, value]) + "\n").encode())
        self._findings.setdefault(key, []).append(value)

    def _append(self, line: bytes) -> None:
        assert self.path is not None
        try:
            with self.path.open("ab", buffering=0) as stream:
                size_bytes = stream.tell()
                try:
                    if stream.write(line) != len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    stream.truncate(size_bytes)  # a part of a line would spoil what is added after it
                    raise
        except OSError as error:
            hint = "; what was measured before is in it, --resume continues" if self.keys_of("passes") else ""
            reason = shown(error.strerror or str(error))
            raise InputError(f"{shown(str(self.path), 200)}: cannot be written: {reason}{hint}") from error

    def remove(self) -> None:
        """Delete the side file: all is in the profile now."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _lines(path: Path, settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    text, where = read_text(path), shown(str(path), 200)
    whole = text[: text.rfind("\n") + 1].splitlines()  # the last line may have been cut off
    try:
        head, *findings = [json.loads(line) for line in whole] or [None]
        if head != json.loads(json.dumps(settings)):
            raise InputError(
                f"{where}: is of another measurement (model, devices or runtime differ): "
                "delete it, or leave out --resume"
            )
        for key, value in findings:
            yield str(key), value
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}: is damaged: delete it, or leave out --resume") from error
