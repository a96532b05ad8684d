"""One placement in detail: value, loads, memory, segments, and on demand who ran when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate.judging import find_pieces, find_segments, judge_of, peak_bytes, resident_bytes, simulated
from placewright.graph import FloatArray, IntArray, sums_by_index
from placewright.problems import Problem


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a placement costs and where.

    ``load`` is a device's busy time per sample: compute under ``overlap``, with its copies (and segment overheads)
    under the other models. ``memory_bytes`` is the peak where the model keeps time, else the resident sum.
    """

    value: float
    load: FloatArray  # [devices]
    memory_bytes: FloatArray  # [devices]
    ops: IntArray  # [devices]: number of ops
    segments: int
    bytes_moved: float


class Slice(NamedTuple):
    """A stretch of time on a device.

    ``op`` is set for compute; ``tensor`` and ``peer`` (other device, -1 = host) for copies.
    """

    device: int
    what: Literal["compute", "copy in", "copy out", "overhead"]
    start_s: float
    end_s: float
    op: int = -1
    tensor: int = -1
    peer: int = -1


def evaluate(
    problem: Problem,
    device_of_op: NDArray[np.int32],
    priority: FloatArray | None = None,
    replicas: NDArray[np.int32] | None = None,
) -> Evaluation:
    """Evaluate one placement under the problem's execution model; faults do not matter here (see ``check``).

    ``replicas`` [devices] (``pipeline`` only): how many devices share the work of the stage on each device; the others
    are not named, and hold no ops of their own.
    """
    device = np.ascontiguousarray(device_of_op, dtype=np.int32)
    a = problem.arrays
    n_devices = problem.n_devices
    used = resident_bytes(problem, device)
    compute = sums_by_index(device, problem.op_time_s[np.arange(problem.n_ops), a.device_kind[device]], n_devices)
    n_segments, segment = find_segments(problem, device)
    if problem.execution == "overlap":
        value, load, used = _overlap(problem, device, priority, used, compute)
    elif problem.execution == "sequential":
        copies, overhead = np.empty(n_devices), np.empty(n_devices)
        judge_of(problem).copies_total(device, copies)
        judge_of(problem).overheads(device, segment, n_segments, overhead)
        load = compute + copies + overhead
        value = float(load.sum())
    elif problem.execution == "calls":
        value, load = _calls(problem, device)
    else:
        value, load = _pipeline(problem, device, replicas)
    return Evaluation(
        value=float(value),
        load=load,
        memory_bytes=used,
        ops=np.bincount(device, minlength=n_devices).astype(np.int32),
        segments=int(n_segments),
        bytes_moved=bytes_moved(problem, device),
    )


def bytes_moved(problem: Problem, device: NDArray[np.int32]) -> float:
    """Bytes that cross devices: each tensor once per destination device."""
    g = problem.graph
    pairs = g.edge_tensor.astype(np.int64) * problem.n_devices + device[g.consumer_op]
    crossing = device[g.edge_producer] != device[g.consumer_op]
    tensors = np.unique(pairs[crossing]) // problem.n_devices
    return float(g.tensor_bytes[tensors].sum())


def timeline(problem: Problem, device_of_op: NDArray[np.int32], priority: FloatArray | None = None) -> list[Slice]:
    """Who ran when: compute and copies per device, by start time.

    Under ``pipeline`` there is no clock; a device's slices show how one sample fills its load: copies in, ops, copies
    out.
    """
    device = np.ascontiguousarray(device_of_op, dtype=np.int32)
    slices = {
        "overlap": _overlap_slices,
        "sequential": _sequential_slices,
        "calls": _calls_slices,
        "pipeline": _pipeline_slices,
    }[problem.execution](problem, device, priority)
    return sorted(slices, key=lambda s: (s.start_s, s.device, s.end_s, s.op, s.tensor))


def _overlap(
    problem: Problem, device: NDArray[np.int32], priority: FloatArray | None, used: FloatArray, compute: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    value, record = simulated(problem, device, priority)
    keeps_track = np.isfinite(value) and problem.track_activations
    peak = peak_bytes(problem, device, record, value) if keeps_track else used
    return value, compute, peak


def _calls(problem: Problem, device: NDArray[np.int32]) -> tuple[float, FloatArray]:
    value, group, _, took = _call_groups(problem, device)
    load = np.zeros(problem.n_devices)
    _, first = np.unique(group, return_index=True)
    np.add.at(load, device[first], sum(took))
    return value, load


def _call_groups(
    problem: Problem, device: NDArray[np.int32]
) -> tuple[float, IntArray, FloatArray, tuple[FloatArray, FloatArray, FloatArray]]:
    n, group = find_pieces(problem, device)
    start, took = np.empty(n), (np.empty(n), np.empty(n), np.empty(n))
    value = judge_of(problem).run_groups(device, group, n, start, *took)
    return value, group, start, took


def _pipeline(
    problem: Problem, device: NDArray[np.int32], replicas: NDArray[np.int32] | None
) -> tuple[float, FloatArray]:
    n = problem.n_devices
    compute, copies = np.empty((n, 2)), np.empty((n, 2))
    judge_of(problem).loads(device, compute, copies)
    sync = np.zeros(n)
    if replicas is not None:
        compute, copies = compute / replicas[:, None], copies / replicas[:, None]
        sync = _sync_load(problem, device, replicas)
    overlapped, split = problem.communication == "overlapped", problem.schedule == "gpipe"
    work, sent = compute.sum(axis=1), copies.sum(axis=1)
    load = (np.maximum(work, sent) if overlapped else work + sent) + sync
    if not sync.any():
        return judge_of(problem).largest_load(compute, copies), load
    if not split:
        return float(load.max()), load
    parts = np.maximum(compute, copies) if overlapped else compute + copies
    return float(parts[:, 0].max() + (parts[:, 1] + sync).max()), load


def _sync_load(problem: Problem, device: NDArray[np.int32], replicas: NDArray[np.int32]) -> FloatArray:
    """Seconds per sample that the replicas of each stage spend on agreeing about weights (a ring exchange)."""
    if problem.sync_s is None:
        return np.zeros(problem.n_devices)
    once = problem.sync_s[np.arange(problem.n_ops), problem.cluster.device_kind[device]]
    return 2 * (replicas - 1) / replicas * sums_by_index(device, once, problem.n_devices)


def _op_time(problem: Problem, device: NDArray[np.int32], op: int) -> float:
    return float(problem.op_time_s[op, problem.arrays.device_kind[device[op]]])


def _overlap_slices(problem: Problem, device: NDArray[np.int32], priority: FloatArray | None) -> list[Slice]:
    _, record = simulated(problem, device, priority)
    slices = [
        Slice(int(d), "compute", float(record.start_s[v]), float(record.end_s[v]), op=v) for v, d in enumerate(device)
    ]
    source = device[problem.graph.tensor_producer]
    for t, d in np.argwhere(~np.isnan(record.copies[:, :, 0])).tolist():
        through_host = problem.links.direct[source[t], d] < 0
        begin, end = record.copies[t, d].tolist()
        if not (through_host and problem.links.from_host[d] < 0):
            slices.append(Slice(d, "copy in", begin, end, tensor=t, peer=-1 if through_host else int(source[t])))
        if not through_host:
            slices.append(Slice(int(source[t]), "copy out", begin, end, tensor=t, peer=d))
    for t in np.flatnonzero(~np.isnan(record.up_legs[:, 0])).tolist():
        begin, end = record.up_legs[t].tolist()
        slices.append(Slice(int(source[t]), "copy out", begin, end, tensor=t))
    return slices


def _sequential_slices(problem: Problem, device: NDArray[np.int32], priority: FloatArray | None) -> list[Slice]:
    g, links, now = problem.graph, problem.links, 0.0
    n_segments, segment = find_segments(problem, device)
    slices: list[Slice] = []
    held: set[tuple[int, int]] = set()  # (tensor, device), device -1 = host memory

    def spend(d: int, what: Literal["compute", "copy in", "copy out", "overhead"], took: float, **rest: int) -> None:
        nonlocal now
        slices.append(Slice(d, what, now, now + took, **rest))
        now += took

    by_segment = np.split(
        np.argsort(segment, kind="stable"), np.cumsum(np.bincount(segment, minlength=n_segments))[:-1]
    )
    for members in by_segment:
        d = int(device[members[0]])
        if problem.arrays.segment_overhead_s[d] > 0:
            spend(d, "overhead", float(problem.arrays.segment_overhead_s[d]))
        for v in members.tolist():
            for t in g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]].tolist():
                s = int(device[g.tensor_producer[t]])
                if s == d or (t, d) in held:
                    continue
                held.add((t, d))
                if links.direct[s, d] >= 0:
                    spend(d, "copy in", float(problem.tensor_copy_s[t, links.direct[s, d]]), tensor=t, peer=s)
                    continue
                if links.to_host[s] >= 0 and (t, -1) not in held:
                    spend(s, "copy out", float(problem.tensor_copy_s[t, links.to_host[s]]), tensor=t)
                held.add((t, -1))
                if links.from_host[d] >= 0:
                    spend(d, "copy in", float(problem.tensor_copy_s[t, links.from_host[d]]), tensor=t)
            spend(d, "compute", _op_time(problem, device, v), op=v)
    return slices


def _calls_slices(problem: Problem, device: NDArray[np.int32], priority: FloatArray | None) -> list[Slice]:
    _, group, start, (took_in, compute, took_out) = _call_groups(problem, device)
    clock = start + took_in
    slices: list[Slice] = []
    for v in range(problem.n_ops):
        took = _op_time(problem, device, v)
        begin = float(clock[group[v]])
        slices.append(Slice(int(device[v]), "compute", begin, begin + took, op=v))
        clock[group[v]] += took
    _, first = np.unique(group, return_index=True)
    for g, v in enumerate(first.tolist()):
        if took_in[g] > 0:
            slices.append(Slice(int(device[v]), "copy in", float(start[g]), float(start[g] + took_in[g])))
        if took_out[g] > 0:
            begin = float(start[g] + took_in[g] + compute[g])
            slices.append(Slice(int(device[v]), "copy out", begin, begin + float(took_out[g])))
    return slices


def _pipeline_slices(problem: Problem, device: NDArray[np.int32], priority: FloatArray | None) -> list[Slice]:
    g, links = problem.graph, problem.links
    clock = [0.0] * problem.n_devices
    copies: list[tuple[int, Literal["copy in", "copy out"], float, int, int]] = []
    for t in range(g.n_tensors):
        s = int(device[g.tensor_producer[t]])
        consumers = g.consumer_op[g.consumer_ptr[t] : g.consumer_ptr[t + 1]]
        targets = [int(d) for d in np.unique(device[consumers]) if d != s]
        if any(links.direct[s, d] < 0 for d in targets) and links.to_host[s] >= 0:
            copies.append((s, "copy out", float(problem.tensor_copy_s[t, links.to_host[s]]), t, -1))
        for d in targets:
            link = links.direct[s, d]
            if link >= 0:
                took = float(problem.tensor_copy_s[t, link])
                copies += [(s, "copy out", took, t, d)] if links.busy[link] & 1 else []
                copies += [(d, "copy in", took, t, s)] if links.busy[link] & 2 else []
            elif links.from_host[d] >= 0:
                copies.append((d, "copy in", float(problem.tensor_copy_s[t, links.from_host[d]]), t, -1))
    slices: list[Slice] = []

    def lay(what: Literal["copy in", "copy out"], starts: list[float]) -> None:
        for d, kind, took, t, peer in copies:
            if kind == what:
                slices.append(Slice(d, what, starts[d], starts[d] + took, tensor=t, peer=peer))
                starts[d] += took

    copy_clock = clock if problem.communication == "added" else [0.0] * problem.n_devices
    lay("copy in", copy_clock)
    for v, d in enumerate(device.tolist()):
        took = _op_time(problem, device, v)
        slices.append(Slice(d, "compute", clock[d], clock[d] + took, op=v))
        clock[d] += took
    lay("copy out", copy_clock)
    return slices
