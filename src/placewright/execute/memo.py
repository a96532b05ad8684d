"""Measurements that are not made twice: a file of what was measured, or failed, for which placement.

An SQLite database; every measurement is in it, whole, as soon as it is made, so a killed run loses none, and several
runs may share one file.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from placewright.errors import InputError
from placewright.text import shown

_SCHEMA = """
create table if not exists measurement (
    context text not null,    -- model, runtime and devices, as a hash
    placement text not null,  -- op to device, as a hash
    samples_s text not null,  -- JSON list of seconds, empty if it failed
    failure text not null,    -- why it failed, empty if it did not
    made_at real not null     -- seconds since 1970
);
create index if not exists by_key on measurement (context, placement);
create table if not exists assignment (
    context text not null,
    placement text not null,
    document text not null,   -- JSON: what brings the placement back
    primary key (context, placement)
);
"""


class Measurement(NamedTuple):
    """Seconds of the runs of one placement, or why it could not run."""

    samples_s: tuple[float, ...]
    failure: str = ""


def context_key(**facts: object) -> str:
    """A hash of whatever makes measurements comparable: model fingerprint, runtime, versions, devices."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def placement_key(device_of_name: Mapping[str, str]) -> str:
    """A hash of a placement, whatever the order of its ops."""
    return hashlib.sha256(json.dumps(dict(device_of_name), sort_keys=True).encode()).hexdigest()


class Memo:
    """What was measured under one context; use it as a context manager."""

    def __init__(self, path: str | Path, context: str) -> None:
        self._context = context
        try:
            self._database = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            self._database.execute("pragma journal_mode=wal")
            self._database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise InputError(f"{shown(str(path), 200)}: not a file of measurements: {shown(str(error))}") from error

    def find(self, placement: str) -> Measurement | None:
        """All samples of a placement; a failure if it ever failed; ``None`` if it is new."""
        rows = self._database.execute(
            "select samples_s, failure from measurement where context = ? and placement = ? order by made_at",
            (self._context, placement),
        ).fetchall()
        if not rows:
            return None
        samples = tuple(float(s) for text, _ in rows for s in json.loads(text))
        return Measurement(samples, next((failure for _, failure in rows if failure), ""))

    def add(self, placement: str, measurement: Measurement) -> None:
        """Keep a measurement; samples of one placement add up."""
        self._database.execute(
            "insert into measurement values (?, ?, ?, ?, ?)",
            (self._context, placement, json.dumps(measurement.samples_s), measurement.failure, time.time()),
        )

    def keep_assignment(self, placement: str, document: Mapping[str, Any]) -> None:
        """Keep what brings a placement back, so that a later run can go on with it."""
        self._database.execute(
            "insert or ignore into assignment values (?, ?, ?)", (self._context, placement, json.dumps(document))
        )

    def assignments(self) -> dict[str, dict[str, Any]]:
        """All that was kept under this context, by placement."""
        rows = self._database.execute(
            "select placement, document from assignment where context = ? order by rowid", (self._context,)
        ).fetchall()
        return {placement: json.loads(document) for placement, document in rows}

    def __len__(self) -> int:
        query = "select count(distinct placement) from measurement where context = ?"
        return int(self._database.execute(query, (self._context,)).fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Memo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
