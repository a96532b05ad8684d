"""Profiles as files: one JSON object, one column of times per kind of device; sets of them that come with the package.

A set is a folder with a profile per model; which one fits is decided by the model's fingerprint.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from placewright.documents import check_version, finite, kind_text
from placewright.errors import InputError, suggestion
from placewright.files import read_json, write_whole
from placewright.graph import FloatArray, OpGraph
from placewright.profiles import Calibration, CopyCurve, Measurement, Profile, graph_fingerprint
from placewright.reading import reading
from placewright.text import shown

VERSION = 1  # of the format
FORMAT = f"placewright-profile/{VERSION}"


def profile_set_names() -> list[str]:
    """Names of the sets of measured profiles that come with the package."""
    folder = _shipped()
    return sorted(f.name for f in folder.iterdir() if f.is_dir()) if folder.is_dir() else []


def find_profile(name_or_path: str | Path, graph: OpGraph) -> Profile:
    """Return the profile of a file, or the one that fits ``graph`` out of a folder or a set of the package."""
    path, where = Path(name_or_path), shown(str(name_or_path), limit=200)
    if os.path.isfile(path):
        return read_profile(path)
    if os.path.isdir(path):
        return _fitting(path, where, graph)
    if str(name_or_path) in profile_set_names():
        return _fitting(_shipped() / str(name_or_path), where, graph)
    if path.suffix or "/" in str(name_or_path):
        return read_profile(path)
    raise InputError(
        f"unknown profile '{where}': neither a file nor a set of the package; "
        f"{suggestion(str(name_or_path), profile_set_names())}"
    )


def read_profile(path: str | Path) -> Profile:
    """Read what :func:`write_profile` wrote."""
    with reading(path, "a profile") as where:
        document = read_json(path)
        if not isinstance(document, dict) or not str(document.get("format")).startswith("placewright-profile/"):
            raise InputError(f'{where}: not a profile: expected "format": "{FORMAT}"')
        check_version(document["format"], "profile", VERSION, where)
        try:
            return _profile(document)
        except InputError as error:
            raise InputError(f"{where}: not a valid profile: {error}") from error
        except KeyError as error:
            raise InputError(f"{where}: not a valid profile: field {shown(str(error))} is missing") from error
        except Exception as error:  # a value of any other kind than the field has
            raise InputError(f"{where}: not a valid profile: {shown(str(error))}") from error


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as JSON, whole or not at all."""
    document = {
        "format": FORMAT,
        "model": profile.model,
        "fingerprint": profile.fingerprint,
        "source": profile.source,
        "measurements": {kind: asdict(m) for kind, m in profile.measurements.items()},
        "copies": {n: {"size_bytes": c.size_bytes, "seconds": c.seconds} for n, c in profile.copies.items()},
        "segment_overhead_s": dict(profile.segment_overhead_s),
        "calibration": asdict(profile.calibration) if profile.calibration else None,
        "groups": profile.groups,
        "ops": profile.op_names,
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    columns = []
    for k, kind in enumerate(profile.kinds):
        measured = profile.is_measured[:, k]
        column = {
            "time_s": [_plain(t) for t in profile.time_s[:, k]],
            "spread_s": [_plain(t) for t in profile.spread_s[:, k]],
            "is_measured": bool(measured[0]) if (measured == measured[0]).all() else measured.tolist(),
        }
        columns.append(f"{json.dumps(kind)}: {json.dumps(column)}")
    lines.append('"kinds": {\n' + ",\n".join(columns) + "\n}")
    write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _profile(document: dict[str, Any]) -> Profile:
    ops = tuple(_text(name, "op") for name in document["ops"])
    if not ops or len(set(ops)) != len(ops):
        raise ValueError("'ops' must be distinct names, at least one")
    columns = document["kinds"]
    times = [_column(c["time_s"], len(ops), f"kind '{shown(k)}': time_s") for k, c in columns.items()]
    spreads = [_column(c["spread_s"], len(ops), f"kind '{shown(k)}': spread_s") for k, c in columns.items()]
    measured = [_flags(c["is_measured"], len(ops), f"kind '{shown(k)}'") for k, c in columns.items()]
    if not times:
        raise ValueError("'kinds' is empty, expected times of at least one kind of device")
    copies = document.get("copies", {}).items()
    return Profile(
        op_names=ops,
        kinds=tuple(columns),
        time_s=np.stack(times, axis=1),
        is_measured=np.stack(measured, axis=1),
        spread_s=np.stack(spreads, axis=1),
        copies={
            name: CopyCurve(tuple(_number(s) for s in curve["size_bytes"]), tuple(_number(s) for s in curve["seconds"]))
            for name, curve in copies
        },
        groups=tuple(tuple(_text(name, "op") for name in group) for group in document.get("groups", [])),
        measurements={kind: _measurement(m) for kind, m in document.get("measurements", {}).items()},
        model=_text(document.get("model", ""), "model"),
        fingerprint=_text(document.get("fingerprint", ""), "fingerprint"),
        source=_text(document.get("source", ""), "source"),
        segment_overhead_s={k: _number(s) for k, s in document.get("segment_overhead_s", {}).items()},
        calibration=_calibration(document.get("calibration")),
    )


def _measurement(entry: dict[str, Any]) -> Measurement:
    values: dict[str, Any] = {}
    for field in fields(Measurement):
        if field.type == "str":
            values[field.name] = _text(entry[field.name], field.name)
        elif field.type == "int":
            values[field.name] = int(_number(entry[field.name]))
        else:
            values[field.name] = _number(entry[field.name])
    return Measurement(**values)


def _calibration(entry: dict[str, Any] | None) -> Calibration | None:
    if entry is None:
        return None
    correlation = entry["rank_correlation"]  # the one figure that may be negative: predictions can be that bad
    if isinstance(correlation, bool) or not isinstance(correlation, (int, float)) or not -1 <= correlation <= 1:
        raise ValueError(f"rank_correlation is {kind_text(correlation)}, expected a number from -1 to 1")
    values = {f.name: _number(entry[f.name]) for f in fields(Calibration) if f.name != "rank_correlation"}
    placements = int(values.pop("placements"))
    return Calibration(placements=placements, rank_correlation=float(correlation), **values)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is {kind_text(value)}, expected text")
    return value


def _column(values: Any, n: int, what: str) -> FloatArray:
    if not isinstance(values, list) or len(values) != n:
        raise ValueError(f"{what}: expected {n} numbers, one per op")
    return np.array([_number_or_gap(v) for v in values])


def _flags(value: Any, n: int, what: str) -> Any:
    if isinstance(value, bool):
        return np.full(n, value)
    if not isinstance(value, list) or len(value) != n or not all(isinstance(v, bool) for v in value):
        raise ValueError(f"{what}: is_measured must be true, false, or one of them per op")
    return np.array(value, dtype=np.bool_)


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return "unsupported" if math.isinf(value) else float(f"{value:.6g}")


def _number_or_gap(value: object) -> float:
    if value is None:
        return math.nan
    return math.inf if value == "unsupported" else _number(value)


def _number(value: object) -> float:
    number = finite(value)
    if number is None or number < 0:
        raise ValueError(f"{kind_text(value)} is not a finite number >= 0")
    return number


def _fitting(folder: Any, where: str, graph: OpGraph) -> Profile:
    found = [f for f in folder.iterdir() if f.name.endswith(".json")]
    found.sort(key=lambda f: (not f.name.startswith(graph.name), f.name))  # the likely one first: reading takes time
    models = []
    for file in found:
        profile = read_profile(str(file))
        if profile.fingerprint == graph_fingerprint(graph):
            return profile
        models.append(profile.model)
    raise InputError(
        f"{where}: no profile there is of model '{shown(graph.name)}' "
        f"(fingerprint {graph_fingerprint(graph)[:12]}); it has {', '.join(shown(m) for m in models[:20]) or 'none'}"
    )


def _shipped() -> Any:
    return files("placewright.costs") / "profiles"
