"""Trace Event JSON, for Perfetto and chrome://tracing.

A process per device; in it a track for compute and one for the copies with each peer, more where slices would
overlap. Arrows lead from the op that makes a tensor over its copies to the op that reads it first. Where the execution
model keeps time, a counter shows each device's memory.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from placewright.errors import InputError
from placewright.evaluate import Slice, timeline
from placewright.evaluate.occupancy import occupancy
from placewright.export.base import Exported, devices_of, whole
from placewright.placement import Placement

COMPUTE = "compute"
_MOST_SLICES = 100_000
_MOST_SAMPLES = 8
_NS = 1e9
_NS_OF_OWN_UNIT = 1e6  # a published problem's unit is shown as milliseconds


class _Drawn(NamedTuple):
    """A slice of one sample, and its track: a name, and a number where several are needed."""

    slice: Slice
    sample: int
    start_ns: int
    end_ns: int
    track: tuple[str, int]


def trace(placement: Placement, output: Path) -> Exported:
    """The predicted timeline of one sample; of a pipeline, as many samples as there are stages, up to eight."""
    if not math.isfinite(placement.value):
        reason = placement.faults[0].message if placement.faults else "its value is infinite"
        raise InputError(f"this placement cannot run, so it has no timeline: {reason}")
    drawn = _without_overlap(_drawn(placement))
    thread_of = _threads(drawn)
    events = _names(placement, thread_of)
    events += [_event(placement, d, thread_of) for d in drawn]
    events += _arrows(placement, drawn, thread_of) + _memory(placement)
    problem = placement.problem
    about = {
        "model": whole(problem.graph.name),
        "objective": problem.objective,
        "execution": problem.execution,
        "value": placement.value,
        "unit": problem.time_unit or "the problem's own, shown as ms",
    }
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    losses = []
    if problem.execution == "pipeline" and placement.stage is None:
        losses.append("stages that do not follow one another have no clock: loads are drawn from time 0")
    if problem.execution == "calls":
        losses.append("the 'calls' model knows copies per call, not per tensor: there are no arrows")
    return Exported({output: (json.dumps(document, allow_nan=False) + "\n").encode()}, tuple(losses))


def _drawn(placement: Placement) -> list[_Drawn]:
    problem, device = placement.problem, devices_of(placement)
    names = problem.cluster.device_names
    slices = timeline(problem, device, placement.priority)
    scale = _nanoseconds(placement)
    stage_of: dict[int, int] = {}
    samples = 1
    if placement.stage is not None:
        stage_of = dict(zip(device.tolist(), placement.stage.tolist(), strict=True))
        samples = max(1, min(len(stage_of), _MOST_SAMPLES, _MOST_SLICES // max(len(slices), 1)))
    drawn = []
    for sample in range(samples):
        for s in slices:
            # In a full pipeline every stage starts a sample each ``value``.
            begins = (sample + stage_of[s.device]) * placement.value if s.device in stage_of else 0.0
            peer = names[s.peer] if s.peer >= 0 else "host memory"
            track = {"copy in": f"copies from {peer}", "copy out": f"copies to {peer}"}.get(s.what, COMPUTE)
            start_ns, end_ns = round((begins + s.start_s) * scale), round((begins + s.end_s) * scale)
            drawn.append(_Drawn(s, sample, start_ns, end_ns, (track, 1)))
    return drawn


def _nanoseconds(placement: Placement) -> float:
    return _NS if placement.problem.time_unit == "s" else _NS_OF_OWN_UNIT


def _without_overlap(drawn: list[_Drawn]) -> list[_Drawn]:
    """A slice that begins before its track is free goes to the next track of that name."""
    free_ns: dict[tuple[int, str], list[int]] = defaultdict(list)
    placed = []
    for d in sorted(drawn, key=lambda d: (d.start_ns, d.end_ns)):
        lanes = free_ns[d.slice.device, d.track[0]]
        lane = next((i for i, free in enumerate(lanes) if free <= d.start_ns), len(lanes))
        lanes[lane : lane + 1] = [d.end_ns]
        placed.append(d._replace(track=(d.track[0], lane + 1)))
    return placed


def _threads(drawn: list[_Drawn]) -> dict[tuple[int, tuple[str, int]], int]:
    """The number of each track within its device, compute first."""
    tracks = sorted({(d.slice.device, d.track) for d in drawn}, key=lambda t: (t[0], t[1][0] != COMPUTE, t[1]))
    numbers: dict[tuple[int, tuple[str, int]], int] = {}
    for device, track in tracks:
        numbers[device, track] = 1 + sum(1 for other, _ in numbers if other == device)
    return numbers


def _names(placement: Placement, thread_of: dict[tuple[int, tuple[str, int]], int]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": device + 1, "tid": 0, "args": {"name": whole(name)}}
        for device, name in enumerate(placement.problem.cluster.device_names)
    ]
    for (device, (track, lane)), number in thread_of.items():
        name = track if lane == 1 else f"{track} ({lane})"
        common = {"ph": "M", "pid": device + 1, "tid": number}
        events.append({**common, "name": "thread_name", "args": {"name": whole(name)}})
        events.append({**common, "name": "thread_sort_index", "args": {"sort_index": number}})
    return events


def _event(placement: Placement, d: _Drawn, thread_of: dict[tuple[int, tuple[str, int]], int]) -> dict[str, Any]:
    graph, s = placement.problem.graph, d.slice
    about: dict[str, Any] = {"sample": d.sample}
    if s.op >= 0:
        name = graph.op_names[s.op]
        about |= {"type": whole(graph.op_types[s.op]), "module": whole(graph.module_paths[s.op])}
    elif s.tensor >= 0:
        name = graph.op_names[graph.tensor_producer[s.tensor]]
        about |= {"bytes": float(graph.tensor_bytes[s.tensor]), "tensor": whole(graph.tensor_names[s.tensor])}
    else:
        name = s.what
    return {
        "ph": "X",
        "name": whole(name),
        "cat": "compute" if s.op >= 0 else s.what,
        "pid": s.device + 1,
        "tid": thread_of[s.device, d.track],
        "ts": d.start_ns / 1000,
        "dur": (d.end_ns - d.start_ns) / 1000,
        "args": about,
    }


def _arrows(
    placement: Placement, drawn: list[_Drawn], thread_of: dict[tuple[int, tuple[str, int]], int]
) -> list[dict[str, Any]]:
    """Flow events: one chain for every tensor and device it is copied to."""
    graph, device = placement.problem.graph, devices_of(placement)
    computed = {(d.sample, d.slice.op): d for d in drawn if d.slice.op >= 0}
    arrived = [d for d in drawn if d.slice.tensor >= 0 and d.slice.what == "copy in"]
    sent = {(d.sample, d.slice.tensor, d.slice.peer): d for d in drawn if d.slice.what == "copy out"}
    events: list[dict[str, Any]] = []
    for number, d in enumerate(arrived):
        t, s = d.slice.tensor, d.slice
        readers = graph.consumer_op[graph.consumer_ptr[t] : graph.consumer_ptr[t + 1]]
        here = [computed[d.sample, int(v)] for v in readers if device[v] == s.device]
        way_out = sent.get((d.sample, t, s.device if s.peer >= 0 else -1))
        maker = computed[d.sample, int(graph.tensor_producer[t])]
        chain = [maker, *([way_out] if way_out else []), d, *sorted(here, key=lambda r: r.start_ns)[:1]]
        middles = [(c.start_ns + c.end_ns) // 2 for c in chain]
        if middles != sorted(middles):
            continue  # no clock, or a copy that overlaps with its reader: an arrow backwards would say nothing
        for i, (c, at_ns) in enumerate(zip(chain, middles, strict=True)):
            step = {"ph": "s" if i == 0 else "t" if i < len(chain) - 1 else "f", "id": number, "cat": "tensor"}
            where = {"pid": c.slice.device + 1, "tid": thread_of[c.slice.device, c.track], "ts": at_ns / 1000}
            events.append({**step, "name": "copy", **where, **({} if i == 0 else {"bp": "e"})})
    return events


def _memory(placement: Placement) -> list[dict[str, Any]]:
    if placement.problem.execution != "overlap":
        return []
    scale = _nanoseconds(placement)
    return [
        {"ph": "C", "name": "memory", "pid": d + 1, "tid": 0, "ts": round(at_s * scale) / 1000, "args": {"bytes": size}}
        for d, steps in enumerate(occupancy(placement.problem, devices_of(placement), placement.priority))
        for at_s, size in zip(steps.time_s.tolist(), steps.size_bytes.tolist(), strict=True)
    ]
