"""What a measurement has found so far, in a side file: one JSON line per finding, so that a stop loses at most one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placewright.documents import check_version, decoded_json, finite
from placewright.errors import InputError
from placewright.files import read_text, write_whole
from placewright.reading import reading
from placewright.text import shown

VERSION = 1  # of the format
FORMAT = f"placewright-measurement/{VERSION}"


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
        lines = [
            {"format": FORMAT, **settings},
            *([key, value] for key, values in self._findings.items() for value in values),
        ]
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
    with reading(path, "a side file of a measurement") as where:
        text = read_text(path)
        whole = text[: text.rfind("\n") + 1].splitlines()  # the last line may have been cut off
        try:
            head, *lines = [decoded_json(line, where) for line in whole] or [None]
        except InputError as error:
            raise _damaged(where) from error
        if isinstance(head, dict) and "format" in head:
            check_version(head.pop("format"), "measurement", VERSION, where)
        if head != json.loads(json.dumps(settings)):
            raise InputError(
                f"{where}: is of another measurement (model, devices or runtime differ): "
                "delete it, or leave out --resume"
            )
        findings = []
        for line in lines:
            if not (isinstance(line, list) and len(line) == 2 and isinstance(line[0], str) and _is_finding(*line)):
                raise _damaged(where)
            findings.append((line[0], line[1]))
    yield from findings


def _damaged(where: str) -> InputError:
    return InputError(f"{where}: what an earlier run left is damaged: delete it, or leave out --resume")


def _is_finding(key: str, value: Any) -> bool:
    """Whether a line may be what :mod:`campaign` writes under a key of that kind."""
    if not key.startswith(("passes ", "curve ", "setting ")):
        return True
    if not isinstance(value, list):
        return False
    if key.startswith("passes "):
        return all((finite(x) or 0.0) >= 0 and finite(x) is not None for x in value)
    if key.startswith("curve "):
        ways, figures = value[:2], [finite(x) for x in value[2:]]
        return (
            len(value) == 4 and all(isinstance(w, str) for w in ways) and all(x is not None and x >= 0 for x in figures)
        )
    return len(value) == 2 and _is_setting(value[0]) and _are_groups(value[1])


def _is_setting(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 5):
        return False
    runtime, device, threads, precision, software = value
    texts = all(isinstance(x, str) for x in (runtime, device, precision, software))
    return texts and type(threads) is int and 0 <= threads < 2**31


def _are_groups(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(g, list) and all(isinstance(n, str) for n in g) for g in value)
