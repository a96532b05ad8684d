"""The door of checkpoint folders: the folder is read, and its model built and traced, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placewright.apart import Apart, Ended, Refused
from placewright.errors import InputError
from placewright.problems import Problem
from placewright.reading import reading

LIMIT_S = 120.0  # models of hundreds of layers take their time; counts are limited before
MOST_BYTES = 3 * 2**30


def problem_of(source: str) -> Problem:
    """The problem that ``hf:DIR?…`` stands for."""
    folder = source.removeprefix("hf:").partition("?")[0]
    with (
        reading(folder, "a checkpoint") as where,
        Apart(Path(__file__).with_name("hf_apart.py"), MOST_BYTES) as process,
    ):
        try:
            found: Any = process.ask(source.encode("utf-8", "surrogateescape"), LIMIT_S)
        except (Ended, Refused) as error:
            raise InputError(f"{where}: the model cannot be analysed: {error}") from error
        assert isinstance(found, Problem)
        return found
