"""What a measurement has found so far, in a side file: one JSON line per finding, so that a stop loses at most one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.files import read_text
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
        try:
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        except OSError as error:
            where = shown(str(path), 200)
            raise InputError(f"{where}: cannot be written: {shown(error.strerror or str(error))}") from error

    def found(self, key: str) -> list[Any]:
        """All findings under a key, oldest first."""
        return self._findings.get(key, [])

    def keys_of(self, prefix: str) -> list[str]:
        """All keys with that beginning."""
        return [key for key in self._findings if key.startswith(prefix)]

    def add(self, key: str, value: Any) -> None:
        self._findings.setdefault(key, []).append(value)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([key, value]) + "\n")

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
