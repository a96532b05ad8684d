"""Who does what when, for the page: lanes of the timeline, memory over time, tables of segments and copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate import Slice, timeline
from placewright.evaluate.occupancy import Occupancy, occupancy
from placewright.graph import sums_by_index
from placewright.placement import Placement
from placewright.reports.packing import number, numbers
from placewright.text import shown

_TICKS = 10**7  # the whole timeline in whole numbers
_MEMORY_POINTS = 400
_ROWS = 300


def timeline_columns(p: Placement) -> dict[str, Any]:
    """One lane of compute per device, then one per way that tensors take; slices in whole ticks of the end.

    Under ``pipeline`` nobody's clock is another's: a device's copies stand with its load, not with a link.
    """
    slices = _slices(p)
    end_s = max((s.end_s for s in slices), default=0.0)
    scale = _TICKS / end_s if 0 < end_s < np.inf else 0.0
    lanes: dict[tuple[str, int, int], int] = {}
    keys = [_lane(p, s) for s in slices]
    for key in sorted(set(keys), key=lambda k: (k[0] != "compute", k)):
        lanes[key] = len(lanes)
    start = [round(s.start_s * scale) if scale else 0 for s in slices]
    return {
        "end": number(end_s, 9),
        "ticks": _TICKS,
        "lanes": [{"what": what, "from": a, "to": b} for what, a, b in lanes],
        "lane": [lanes[k] for k in keys],
        "start": np.diff(np.array(start, dtype=np.int64), prepend=0).tolist(),
        "took": [round((s.end_s - s.start_s) * scale) if scale else 0 for s in slices],
        # Ops count from 0 upwards, tensors from -1 downwards.
        "what": [s.op if s.op >= 0 else -1 - s.tensor if s.tensor >= 0 else None for s in slices],
        "overhead": [i for i, s in enumerate(slices) if s.what == "overhead"],
    }


def _slices(p: Placement) -> list[Slice]:
    assert p.device_of_op is not None
    slices = [s for s in timeline(p.problem, p.device_of_op, p.priority) if np.isfinite(s.end_s)]
    if p.problem.execution == "pipeline":
        return slices
    # A copy over a direct link is in the books of both ends; its lane is the link, so once is enough.
    direct_in = {(s.tensor, s.peer, s.device) for s in slices if s.what == "copy in" and s.peer >= 0}
    return [s for s in slices if not (s.what == "copy out" and (s.tensor, s.device, s.peer) in direct_in)]


def _lane(p: Placement, s: Slice) -> tuple[str, int, int]:
    """What the lane holds, and its devices: from and to, -1 = host memory."""
    if s.what in ("compute", "overhead"):
        return "compute", s.device, s.device
    if p.problem.execution == "pipeline":
        added = p.problem.communication == "added"
        return "compute" if added else "copies", s.device, s.device
    return ("copies", s.peer, s.device) if s.what == "copy in" else ("copies", s.device, s.peer)


def memory_columns(p: Placement) -> list[dict[str, Any]]:
    """Memory over time per device, thinned out without losing a peak."""
    assert p.device_of_op is not None
    end_s = p.value if np.isfinite(p.value) else 0.0
    curves = occupancy(p.problem, p.device_of_op, p.priority)
    return [
        {"time": numbers(c.time_s, 6), "bytes": numbers(c.size_bytes, 6), "timed": len(c.time_s) > 1}
        for c in (_thinned(c, end_s) for c in curves)
    ]


def _thinned(curve: Occupancy, end_s: float) -> Occupancy:
    if len(curve.time_s) <= _MEMORY_POINTS:
        return curve
    bins = np.minimum((curve.time_s / end_s * _MEMORY_POINTS).astype(int), _MEMORY_POINTS - 1)
    used = np.unique(bins)
    first = np.searchsorted(bins, used)
    peaks = np.maximum.reduceat(curve.size_bytes, first)
    return Occupancy(used * (end_s / _MEMORY_POINTS), peaks)


def segments_table(p: Placement, segment: NDArray[np.int32], n_segments: int) -> dict[str, Any]:
    """Every segment: device, ops, compute, what comes in and what goes out; the longest ones of very many."""
    assert p.device_of_op is not None
    g, device = p.problem.graph, p.device_of_op
    time_s = p.problem.op_time_s[np.arange(g.n_ops), p.problem.cluster.device_kind[device]]
    compute = sums_by_index(segment, np.where(np.isfinite(time_s), time_s, 0.0), n_segments)
    first = np.full(n_segments, g.n_ops, dtype=np.int64)
    np.minimum.at(first, segment, np.arange(g.n_ops))
    crossing = device[g.edge_producer] != device[g.consumer_op]
    source, target = segment[g.edge_producer], segment[g.consumer_op]
    entering = np.unique(np.stack([g.edge_tensor[crossing], target[crossing]], axis=1), axis=0)
    leaving = np.unique(np.stack([g.edge_tensor[crossing], source[crossing]], axis=1), axis=0)
    rows = np.sort(np.argsort(-compute, kind="stable")[:_ROWS])
    columns = {
        "ops": np.bincount(segment, minlength=n_segments),
        "compute": compute,
        "bytes_in": sums_by_index(entering[:, 1], g.tensor_bytes[entering[:, 0]], n_segments),
        "bytes_out": sums_by_index(leaving[:, 1], g.tensor_bytes[leaving[:, 0]], n_segments),
    }
    return {
        "total": n_segments,
        "segment": rows.tolist(),
        "device": device[first[rows]].tolist(),
        "first": first[rows].tolist(),
        **{name: numbers(column[rows], 9) for name, column in columns.items()},
    }


def copies_table(p: Placement) -> dict[str, Any]:
    """The largest tensors that change device: once per receiving device, with the time on the way."""
    assert p.device_of_op is not None
    problem, g, device = p.problem, p.problem.graph, p.device_of_op
    crossing = device[g.edge_producer] != device[g.consumer_op]
    pairs = np.unique(np.stack([g.edge_tensor[crossing], device[g.consumer_op][crossing]], axis=1), axis=0)
    largest = pairs[np.argsort(-g.tensor_bytes[pairs[:, 0]], kind="stable")[:_ROWS]]
    source = device[g.tensor_producer[largest[:, 0]]]
    links = problem.links

    def took(t: int, s: int, d: int) -> float:
        ways = [links.direct[s, d]] if links.direct[s, d] >= 0 else [links.to_host[s], links.from_host[d]]
        return sum(float(problem.tensor_copy_s[t, way]) for way in ways if way >= 0)

    return {
        "total": len(pairs),
        "op": g.tensor_producer[largest[:, 0]].tolist(),
        "tensor": [shown(g.tensor_names[t], 200) for t in largest[:, 0].tolist()],
        "from": source.tolist(),
        "to": largest[:, 1].tolist(),
        "bytes": numbers(g.tensor_bytes[largest[:, 0]], 9),
        "took": [number(took(t, int(s), d), 6) for (t, d), s in zip(largest.tolist(), source, strict=True)],
    }
