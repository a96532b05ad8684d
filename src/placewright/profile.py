"""``Profile``: what operators and copies cost on which kind of device, and how each figure was come by."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.files import read_json, write_whole
from placewright.text import shown

FORMAT = "placewright-profile/1"


@dataclass(frozen=True)
class CopyCurve:
    """Measured copy times over one link: straight lines between the points, the last slope beyond them."""

    size_bytes: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.size_bytes, self.size_bytes[1:], strict=False))
        if not self.size_bytes or len(self.size_bytes) != len(self.seconds) or not ascending:
            raise InputError("a copy curve needs as many times as sizes, at least one, sizes ascending")

    def copy_s(self, size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds for copies of the given sizes; zero bytes take no time."""
        sizes, seconds = np.array(self.size_bytes), np.array(self.seconds)
        result = np.interp(size_bytes, sizes, seconds)
        if len(sizes) > 1:
            slope = max(0.0, (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]))
            result = np.where(size_bytes > sizes[-1], seconds[-1] + slope * (size_bytes - sizes[-1]), result)
        return np.where(size_bytes > 0, result, 0.0)


@dataclass(frozen=True, eq=False)
class Profile:
    """Seconds per op and kind of device. Infinite = cannot run there, NaN = not known; nothing is guessed silently.

    ``is_measured`` tells measured figures from modelled ones; ``spread_s`` is the half width of the 95% interval
    (NaN where there is none).
    """

    op_names: tuple[str, ...]
    kinds: tuple[str, ...]
    time_s: NDArray[np.float64]  # [ops, kinds]
    is_measured: NDArray[np.bool_]  # [ops, kinds]
    spread_s: NDArray[np.float64]  # [ops, kinds]
    copies: Mapping[str, CopyCurve] = field(default_factory=dict)  # by link name
    date: str = ""
    machine: str = ""
    software: str = ""

    def times_for(self, op_names: tuple[str, ...], kinds: tuple[str, ...]) -> NDArray[np.float64]:
        """Return [ops, kinds] seconds in the order asked for; an op or kind that is missing or unknown is an error."""
        missing = [k for k in kinds if k not in self.kinds]
        if missing:
            raise InputError(
                f"the profile has no times for device kind '{shown(missing[0])}'; "
                f"it knows {', '.join(shown(k) for k in self.kinds)}"
            )
        row = {name: i for i, name in enumerate(self.op_names)}
        absent = [n for n in op_names if n not in row]
        if absent:
            raise InputError(f"the profile has no times for operator '{shown(absent[0])}' ({len(absent)} missing)")
        times = self.time_s[np.ix_([row[n] for n in op_names], [self.kinds.index(k) for k in kinds])]
        if np.isnan(times).any():
            op, kind = np.argwhere(np.isnan(times))[0]
            raise InputError(f"the profile does not know the time of '{shown(op_names[op])}' on '{shown(kinds[kind])}'")
        return times

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON, whole or not at all."""
        document = {
            "format": FORMAT,
            "date": self.date,
            "machine": self.machine,
            "software": self.software,
            "kinds": list(self.kinds),
            "ops": [self._entry(i) for i in range(len(self.op_names))],
            "copies": {n: {"size_bytes": c.size_bytes, "seconds": c.seconds} for n, c in self.copies.items()},
        }
        write_whole(path, json.dumps(document, indent=1) + "\n")

    def _entry(self, i: int) -> dict[str, Any]:
        return {
            "name": self.op_names[i],
            "time_s": [_plain(t) for t in self.time_s[i]],
            "spread_s": [_plain(t) for t in self.spread_s[i]],
            "is_measured": self.is_measured[i].tolist(),
        }

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read what :meth:`save` wrote."""
        document = read_json(path)
        where = f"{shown(str(path))}"
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f'{where}: not a profile: expected "format": "{FORMAT}"')
        try:
            ops, kinds = document["ops"], tuple(str(k) for k in document["kinds"])
            shape = (len(ops), len(kinds))
            return cls(
                op_names=tuple(str(op["name"]) for op in ops),
                kinds=kinds,
                time_s=np.array([[_number(t) for t in op["time_s"]] for op in ops]).reshape(shape),
                is_measured=np.array([op["is_measured"] for op in ops], dtype=np.bool_).reshape(shape),
                spread_s=np.array([[_number(t) for t in op["spread_s"]] for op in ops]).reshape(shape),
                copies={
                    str(n): CopyCurve(tuple(map(float, c["size_bytes"])), tuple(map(float, c["seconds"])))
                    for n, c in document["copies"].items()
                },
                date=str(document.get("date", "")),
                machine=str(document.get("machine", "")),
                software=str(document.get("software", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{where}: not a valid profile: {shown(str(error))}") from error


def modelled_profile(
    op_names: tuple[str, ...], kinds: tuple[str, ...], time_s: NDArray[np.float64], source: str
) -> Profile:
    """A profile whose figures all come from a cost model; ``source`` names the model."""
    return Profile(
        op_names=op_names,
        kinds=kinds,
        time_s=time_s,
        is_measured=np.zeros(time_s.shape, dtype=np.bool_),
        spread_s=np.full(time_s.shape, np.nan),
        software=source,
    )


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return "unsupported" if math.isinf(value) else float(value)


def _number(value: object) -> float:
    if value is None:
        return math.nan
    if value == "unsupported":
        return math.inf
    number = float(value)  # type: ignore[arg-type]
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"time {value!r} is not a finite number >= 0")
    return number
