"""A measuring campaign: every kind of device, every link, pass by pass; stopping keeps what has been measured."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placewright.cluster import Cluster, DeviceKind
from placewright.costs.machine import machine_text
from placewright.costs.measure.copies import COPY_SIZES_BYTES, HOST, copier, link_ends
from placewright.costs.measure.journal import Journal
from placewright.costs.measure.runner import Runner
from placewright.costs.measure.timing import median_and_spread
from placewright.costs.roofline import supported_ops
from placewright.errors import InputError
from placewright.frontends.base import one_line
from placewright.graph import OpGraph
from placewright.profiles import CopyCurve, Measurement, Profile, graph_fingerprint, united_groups
from placewright.text import shown

_WARM_UP_RUNS = 3
_COPY_REPEATS = 15
_FEWEST_PASSES = 3
_CURVE = "curve "
Say = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """What a campaign found; ``is_complete`` is false if it was stopped."""

    profile: Profile
    is_complete: bool


class _Eta:
    """Says how far the passes are, and about how long the rest takes: devices not begun count like this one."""

    def __init__(self, passes: int, say: Say) -> None:
        self.say, self._left, self._done, self._began = say, passes, 0, 0.0

    def begin(self) -> None:
        """The passes of another device begin."""
        self._done, self._began = 0, time.monotonic()

    def pass_done(self, text: str) -> None:
        self._done, self._left = self._done + 1, self._left - 1
        left_s = (time.monotonic() - self._began) / self._done * self._left
        self.say(f"{text}, about {left_s:.0f} s left")


def measure(
    graph: OpGraph,
    cluster: Cluster,
    kinds: Sequence[DeviceKind],
    make_runner: Callable[[DeviceKind], Runner],
    *,
    repeats: int,
    journal: Journal,
    calibrate: bool = False,
    max_seconds: float = math.inf,
    say: Say = lambda text: None,
) -> Finding:
    """Measure the ops of a model on ``kinds`` and the links between them. Ctrl-C ends it with what is there.

    With ``calibrate`` the times of a kind are scaled so that their sum is the latency of the whole model on it. After
    ``max_seconds`` on one kind no further pass is begun, but there are at least 3.
    """
    is_complete = True
    eta = _Eta(len(kinds) * repeats - sum(len(journal.found(_passes(kind))) for kind in kinds), say)
    try:
        for kind in kinds:
            _measure_kind(kind, make_runner, repeats, max_seconds, journal, eta)
        _measure_copies(cluster, kinds, journal, say)
    except KeyboardInterrupt:
        is_complete = False
    return found_so_far(graph, kinds, journal, calibrate=calibrate, is_complete=is_complete)


def found_so_far(
    graph: OpGraph, kinds: Sequence[DeviceKind], journal: Journal, *, calibrate: bool, is_complete: bool = False
) -> Finding:
    """What a journal holds, as a profile; kinds without a full pass are left out."""
    done = [kind for kind in kinds if journal.found(_passes(kind))]
    if not done:
        raise InputError("stopped before anything was measured; nothing is written")
    try:
        return Finding(_profile(graph, done, journal, calibrate), is_complete)
    except Exception as error:  # only an earlier run's side file can be so wrong
        where = f"{shown(str(journal.path), 200)}: " if journal.path is not None else ""
        raise InputError(f"{where}what an earlier run left is damaged: leave out --resume") from error


def _measure_kind(
    kind: DeviceKind,
    make_runner: Callable[[DeviceKind], Runner],
    repeats: int,
    max_seconds: float,
    journal: Journal,
    eta: _Eta,
) -> None:
    if len(journal.found(_passes(kind))) >= repeats:
        return
    eta.say(f"{kind.name}: preparing")
    try:
        runner = make_runner(kind)
        _warm_up(runner, max_seconds)
    except (RuntimeError, ValueError) as error:  # out of memory, a kernel that is not there, a shape it refuses
        raise InputError(
            f"device kind '{shown(kind.name)}': the model does not run there: {one_line(error)}"
        ) from error
    if not journal.found(f"setting {kind.name}"):
        journal.add(f"setting {kind.name}", [runner.setting, runner.groups])
    start = time.monotonic()
    eta.begin()
    while (done := len(journal.found(_passes(kind)))) < repeats:
        if done >= _FEWEST_PASSES and time.monotonic() - start > max_seconds:
            return
        # Whole and parts in turn: what disturbs the machine disturbs both.
        whole_s = runner.whole_s()
        times, unattributed_s = runner.op_times_s()
        journal.add(_passes(kind), [whole_s, unattributed_s, *times.tolist()])
        eta.pass_done(f"{kind.name}: pass {done + 1} of {repeats}, {whole_s * 1e3:.4g} ms")


def _warm_up(runner: Runner, max_seconds: float) -> None:
    start = time.monotonic()
    for _ in range(_WARM_UP_RUNS):
        runner.whole_s()
        runner.op_times_s()
        if time.monotonic() - start > max_seconds / 4:
            return


def _measure_copies(cluster: Cluster, kinds: Sequence[DeviceKind], journal: Journal, say: Say) -> None:
    measured = {kind.name for kind in kinds}
    for link, source, target in link_ends(cluster):
        if any(end is not None and end.name not in measured for end in (source, target)):
            continue
        way = [_copy_device(end) for end in (source, target)]
        curve = f"{_CURVE}{link.name}"
        for size_bytes in COPY_SIZES_BYTES:
            is_known = any(found[:3] == [*way, size_bytes] for found in journal.found(curve))
            copy = None if is_known else copier(way[0], way[1], size_bytes)
            if copy is None:
                continue
            say(f"{link.name}: copies of {size_bytes} bytes")
            copy()
            journal.add(curve, [*way, size_bytes, float(np.median([copy() for _ in range(_COPY_REPEATS)]))])


def _copy_device(end: DeviceKind | None) -> str:
    if end is None or end.is_host:
        return HOST
    return end.runtime_device.lower() or "cuda"


def _passes(kind: DeviceKind) -> str:
    return f"passes {kind.name}"


def _profile(graph: OpGraph, kinds: Sequence[DeviceKind], journal: Journal, calibrate: bool) -> Profile:
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    times, spreads, measurements, groups = [], [], {}, []
    for kind in kinds:
        (runtime, device, threads, precision, software), fused = journal.found(f"setting {kind.name}")[0]
        passes = np.array(journal.found(_passes(kind)))
        median, spread = median_and_spread(passes)
        sum_s = float(median[2:].sum())
        scale = float(median[0] / sum_s) if calibrate and sum_s > 0 else 1.0
        can_run = supported_ops(graph, kind)
        times.append(np.where(can_run, median[2:] * scale, np.inf))
        spreads.append(spread[2:] * scale)
        groups += fused
        measurements[kind.name] = Measurement(
            runtime, device, threads, precision, len(passes), float(median[0]), float(np.nan_to_num(spread[0])), sum_s,
            scale, float(median[1]), machine_text(), software, date,
        )  # fmt: skip
    time_s = np.stack(times, axis=1)
    return Profile(
        op_names=graph.op_names,
        kinds=tuple(kind.name for kind in kinds),
        time_s=time_s,
        is_measured=np.isfinite(time_s),
        spread_s=np.stack(spreads, axis=1),
        copies=_curves(journal),
        groups=united_groups(groups),
        measurements=measurements,
        model=graph.name,
        fingerprint=graph_fingerprint(graph),
        source="measured",
    )


def _curves(journal: Journal) -> dict[str, CopyCurve]:
    """Return a curve per link; both directions of a link of one name count as one, by their mean."""
    curves = {}
    for key in journal.keys_of(_CURVE):
        by_size: dict[float, list[float]] = {}
        for _, _, size_bytes, seconds in journal.found(key):
            by_size.setdefault(float(size_bytes), []).append(seconds)
        points = sorted((size, float(np.mean(seconds))) for size, seconds in by_size.items())
        curves[key.removeprefix(_CURVE)] = CopyCurve(tuple(p[0] for p in points), tuple(p[1] for p in points))
    return curves
