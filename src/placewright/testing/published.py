"""Published problems, which are not part of the project: found by what the environment says, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from placewright.errors import InputError

WORKLOADS = "PLACEWRIGHT_WORKLOADS"  # a folder with the folders throughput, latency and experts
REFERENCE = "PLACEWRIGHT_REFERENCE"  # a table of what the original programs found
_WHERE_FROM = "docs/reproducing.md says where to get them"


def published_problems() -> Path:
    """The folder of published problems; :class:`InputError` says what is missing and where to get it."""
    named = os.environ.get(WORKLOADS)
    if not named:
        raise InputError(f"the published problems are needed: {WORKLOADS} names their folder; {_WHERE_FROM}")
    if not Path(named).is_dir():
        raise InputError(f"{WORKLOADS} is '{named}', which is no folder of published problems; {_WHERE_FROM}")
    return Path(named)


def published_files(objective: str, part_of_name: str = "") -> list[Path]:
    """The problems for an objective (``throughput`` or ``latency``) whose names contain a text; never none."""
    folder = published_problems() / objective
    found = [path for path in sorted(folder.glob("*.json")) if part_of_name in path.stem]
    if not found:
        wanted = f" whose name contains '{part_of_name}'" if part_of_name else ""
        raise InputError(f"{folder} has no problem{wanted}; {_WHERE_FROM}")
    return found


def reference_table() -> Path | None:
    """The table of the original programs' figures, where there is one."""
    named = os.environ.get(REFERENCE)
    if named and not Path(named).is_file():
        raise InputError(f"{REFERENCE} is '{named}', which is no file")
    return Path(named) if named else None
