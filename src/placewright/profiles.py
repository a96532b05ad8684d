"""``Profile``: what operators and copies cost on which kind of device, and how each figure was come by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.frontends.assemble import fingerprint
from placewright.graph import IntArray, OpGraph
from placewright.text import shown


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

    def fit(self) -> tuple[float, float]:
        """Return (latency in seconds, bandwidth in bytes per second) of the line with the least relative errors."""
        sizes, seconds = np.array(self.size_bytes), np.array(self.seconds)
        if len(sizes) == 1:
            return 0.0, float(sizes[0] / seconds[0])
        columns = np.stack([1 / seconds, sizes / seconds], axis=1)
        (latency_s, per_byte_s), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)
        if latency_s < 0 or per_byte_s <= 0:  # a curve that is no line: the slowest rate seen
            return 0.0, float((sizes / seconds).min())
        return float(latency_s), float(1 / per_byte_s)


@dataclass(frozen=True)
class Measurement:
    """How the times of one kind of device were measured. ``whole_s`` is the whole model on it, run as usual.

    ``sum_s`` is the sum of its ops as measured; the profile holds them multiplied by ``scale``. ``unattributed_s`` is
    the part of ``sum_s`` that the runtime spent on work of its own, given to the ops it belongs to.
    """

    runtime: str
    device: str
    threads: int
    precision: str
    repeats: int
    whole_s: float
    whole_spread_s: float
    sum_s: float
    scale: float = 1.0
    unattributed_s: float = 0.0
    machine: str = ""
    software: str = ""
    date: str = ""


@dataclass(frozen=True)
class Calibration:
    """What was added to every copy so that executed placements come out right, and how right they then are.

    Errors are medians of relative errors of the predicted latency, over the placements that were executed.
    """

    placements: int
    copy_latency_s: float
    copy_s_per_byte: float
    error_before: float
    error_after: float
    rank_correlation: float


@dataclass(frozen=True, eq=False)
class Profile:
    """Seconds per op and kind of device. Infinite = cannot run there, NaN = not known; nothing is guessed silently.

    ``is_measured`` tells measured figures from modelled ones; ``spread_s`` is the half width of the 95% interval
    (NaN where there is none). ``groups`` lists ops that the runtime ran as one kernel: the time of a group stands with
    one of its ops, so they must be placed together. ``fingerprint`` names the model; empty means any with these ops.
    ``segment_overhead_s`` replaces what a cluster says of its kinds; ``copies`` include what ``calibration`` added.

    >>> profile = modelled_profile(("a", "b"), ("gpu",), np.array([[1e-3], [2e-3]]), source="by hand")
    >>> profile.time_s.sum(), profile.is_measured.any()
    (np.float64(0.003), np.False_)
    """

    op_names: tuple[str, ...]
    kinds: tuple[str, ...]
    time_s: NDArray[np.float64]  # [ops, kinds]
    is_measured: NDArray[np.bool_]  # [ops, kinds]
    spread_s: NDArray[np.float64]  # [ops, kinds]
    copies: Mapping[str, CopyCurve] = field(default_factory=dict)  # by link name
    groups: tuple[tuple[str, ...], ...] = ()
    measurements: Mapping[str, Measurement] = field(default_factory=dict)  # by kind
    model: str = ""
    fingerprint: str = ""
    source: str = ""
    segment_overhead_s: Mapping[str, float] = field(default_factory=dict)  # by kind
    calibration: Calibration | None = None

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

    def check_fits(self, graph: OpGraph) -> None:
        """Raise :class:`InputError` if the profile was made for another model."""
        theirs = graph_fingerprint(graph) if self.fingerprint else ""
        if theirs != self.fingerprint:
            raise InputError(
                f"the profile is of model '{shown(self.model)}' (fingerprint {shown(self.fingerprint[:12])}), "
                f"not of '{shown(graph.name)}' ({theirs[:12]}): measure this one with 'placewright profile'"
            )

    def merge(self, newer: Profile) -> Profile:
        """Return both profiles of one model as one; where both know a figure, the newer one's counts."""
        if (self.fingerprint, sorted(self.op_names)) != (newer.fingerprint, sorted(newer.op_names)):
            raise InputError(
                f"profiles of different models cannot be merged: '{shown(self.model)}' (fingerprint "
                f"{shown(self.fingerprint[:12])}) and '{shown(newer.model)}' ({shown(newer.fingerprint[:12])})"
            )
        kinds = tuple(dict.fromkeys([*self.kinds, *newer.kinds]))
        row = {name: i for i, name in enumerate(newer.op_names)}
        rows = [row[name] for name in self.op_names]
        merged = [np.full((len(rows), len(kinds)), np.nan) for _ in range(3)]
        for profile, order in ((self, range(len(rows))), (newer, rows)):
            for k, kind in enumerate(profile.kinds):
                known = ~np.isnan(profile.time_s[order, k])
                column = kinds.index(kind)
                for target, source in zip(merged, (profile.time_s, profile.spread_s, profile.is_measured), strict=True):
                    target[known, column] = source[order, k][known]
        return replace(
            self,
            kinds=kinds,
            time_s=merged[0],
            spread_s=merged[1],
            is_measured=merged[2] == 1,
            copies={**self.copies, **newer.copies},
            groups=united_groups([*self.groups, *newer.groups]),
            measurements={**self.measurements, **newer.measurements},
            segment_overhead_s={**self.segment_overhead_s, **newer.segment_overhead_s},
            calibration=newer.calibration or self.calibration,
            source="; ".join(dict.fromkeys(s for s in (self.source, newer.source) if s)),
        )

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON, whole or not at all."""
        from placewright.profile_file import write_profile

        write_profile(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read what :meth:`save` wrote."""
        from placewright.profile_file import read_profile

        return read_profile(path)


def modelled_profile(
    op_names: tuple[str, ...], kinds: tuple[str, ...], time_s: NDArray[np.float64], source: str
) -> Profile:
    """A profile whose figures all come from a cost model; ``source`` names the model.

    >>> modelled_profile(("a", "b"), ("gpu", "cpu"), np.array([[1.0, 5.0], [2.0, 3.0]]), "by hand").source
    'by hand'
    """
    return Profile(
        op_names=op_names,
        kinds=kinds,
        time_s=time_s,
        is_measured=np.zeros(time_s.shape, dtype=np.bool_),
        spread_s=np.full(time_s.shape, np.nan),
        source=source,
    )


def graph_fingerprint(graph: OpGraph) -> str:
    """Return what tells models apart, whatever their weights: the frontend's hash, or one of names and edges."""
    given = graph.metadata.get("fingerprint")
    return given if isinstance(given, str) and given else fingerprint(graph)


def united_groups(groups: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Join groups that share an op; groups of one op are left out."""
    group_of: dict[str, list[str]] = {}
    for group in groups:
        joined = list(dict.fromkeys([n for name in group for n in group_of.get(name, [name])]))
        group_of.update(dict.fromkeys(joined, joined))
    distinct = {id(group): group for group in group_of.values()}
    return tuple(tuple(group) for group in distinct.values() if len(group) > 1)


def colocated(graph: OpGraph, groups: Iterable[Sequence[str]]) -> OpGraph:
    """Return the graph with the ops of each group kept on one device, besides the classes it already has."""
    index = graph.index_of
    classes = [np.flatnonzero(graph.colocation == c) for c in np.unique(graph.colocation) if c >= 0]
    named = [[graph.op_names[v] for v in members] for members in classes]
    colocation: IntArray = np.full(graph.n_ops, -1, dtype=np.int32)
    for number, group in enumerate(united_groups([*named, *groups])):
        colocation[[index[name] for name in group if name in index]] = number
    colocation.flags.writeable = False
    return replace(graph, colocation=colocation)
