"""Measurements that are not made twice: a file of what was measured, or failed, for which placement.

An SQLite database; every measurement is in it, whole, as soon as it is made, so a killed run loses none, and several
runs may share one file.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from placewright.documents import Fields, check_version_number, decoded_json, finite, kind_text
from placewright.errors import InputError
from placewright.files import LARGEST_BYTES
from placewright.reading import reading
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
_COLUMNS = {
    "measurement": ("context", "placement", "samples_s", "failure", "made_at"),
    "assignment": ("context", "placement", "document"),
}
_ENTRIES = {*(("table", name) for name in _COLUMNS), ("index", "by_key")}
VERSION = 1  # of the format, as the database's ``user_version``; 0 is that of files before there was any
_LONGEST_ANSWER_S = 5.0
_STEPS_BETWEEN_LOOKS = 100_000  # of the database's own machine; milliseconds


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
        self._context, self._path, self._ends_s = context, path, math.inf
        with reading(path, "a file of measurements") as where:
            try:
                self._database = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            except sqlite3.Error as error:
                raise InputError(f"{where}: not a file of measurements: {shown(str(error))}") from error
        try:
            self._open()
        except BaseException:
            self._database.close()  # else its locks stay as long as the error does
            raise

    def _open(self) -> None:
        with self._asking() as where:
            try:
                self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_BYTES)
                self._database.set_progress_handler(lambda: time.monotonic() > self._ends_s, _STEPS_BETWEEN_LOOKS)
                version = int(self._database.execute("pragma user_version").fetchone()[0])
                check_version_number(version, "memo", VERSION, where)
                self._check_schema(where)
                self._database.execute("pragma trusted_schema=off")
                self._database.execute("pragma journal_mode=wal")
                self._database.executescript(_SCHEMA)
                self._check_schema(where)
                if version != VERSION:
                    self._database.execute(f"pragma user_version={VERSION}")
            except sqlite3.Error as error:
                raise InputError(f"{where}: not a file of measurements: {shown(str(error))}") from error

    def find(self, placement: str) -> Measurement | None:
        """All samples of a placement; a failure if it ever failed; ``None`` if it is new."""
        with self._asking() as where:
            rows = self._database.execute(
                "select samples_s, failure from measurement where context = ? and placement = ? order by made_at",
                (self._context, placement),
            ).fetchall()
            if not rows:
                return None
            samples: list[float] = []
            failures = []
            for text, failure in rows:
                samples += _samples(text, f"{where}: measurement: 'samples_s'")
                failures.append(_text(failure, f"{where}: measurement: 'failure'"))
            return Measurement(tuple(samples), next((failure for failure in failures if failure), ""))

    def add(self, placement: str, measurement: Measurement) -> None:
        """Keep a measurement; samples of one placement add up."""
        with self._asking():
            self._database.execute(
                "insert into measurement values (?, ?, ?, ?, ?)",
                (self._context, placement, json.dumps(measurement.samples_s), measurement.failure, time.time()),
            )

    def keep_assignment(self, placement: str, document: Mapping[str, Any]) -> None:
        """Keep what brings a placement back, so that a later run can go on with it."""
        with self._asking():
            self._database.execute(
                "insert or ignore into assignment values (?, ?, ?)", (self._context, placement, json.dumps(document))
            )

    def assignments(self) -> dict[str, dict[str, Any]]:
        """All that was kept under this context, by placement."""
        with self._asking() as where:
            here = f"{where}: assignment"
            rows = self._database.execute(
                "select placement, document from assignment where context = ? order by rowid", (self._context,)
            ).fetchall()
            return {
                _text(placement, f"{here}: 'placement'"): Fields(decoded_json(_text(text, here), here), here).data
                for placement, text in rows
            }

    @contextmanager
    def _asking(self) -> Iterator[str]:
        """Whatever the database does to a question ends soon, and in one line."""
        self._ends_s = time.monotonic() + _LONGEST_ANSWER_S
        try:
            with reading(self._path, "a file of measurements") as where:
                yield where
        finally:
            self._ends_s = math.inf

    def _check_schema(self, where: str) -> None:
        """Only the tables that are made here, if they are there: views and triggers could do and cost anything."""
        entries = self._database.execute("select type, name from sqlite_master").fetchall()
        for kind, name in entries:
            is_own_index = kind == "index" and str(name).startswith("sqlite_autoindex_assignment")
            if (kind, name) not in _ENTRIES and not is_own_index:
                raise InputError(
                    f"{where}: not a file of measurements: it holds the {shown(str(kind))} '{shown(str(name))}'"
                )
        for table, expected in _COLUMNS.items():
            if ("table", table) in entries:
                columns = self._database.execute(f"pragma table_xinfo({table})").fetchall()
                if [(column[1], column[6]) for column in columns] != [(name, 0) for name in expected]:
                    raise InputError(
                        f"{where}: not a file of measurements: its table '{table}' has other columns than "
                        + ", ".join(expected)
                    )

    def __len__(self) -> int:
        query = "select count(distinct placement) from measurement where context = ?"
        with self._asking():
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


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} is {kind_text(value)}, expected text")
    return value


def _samples(text: Any, where: str) -> list[float]:
    values = decoded_json(_text(text, where), where)
    samples = [finite(value) for value in values] if isinstance(values, list) else [None]
    if any(s is None or s < 0 for s in samples):
        raise InputError(f"{where} is {kind_text(text)}, expected a list of seconds")
    return [s for s in samples if s is not None]
