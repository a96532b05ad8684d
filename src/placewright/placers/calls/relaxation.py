"""A relaxation of the model ``calls`` that keeps what matters: how pieces wait, copy, compute and fill a memory.

The relaxed problem asks for a partition of the ops into host ops and pieces whose calls do not wait for each other in
a circle. Every piece picks its own accelerator: their number is not limited, and neither is how often one is used.
So every valid placement, whatever the number of its pieces, is a solution of the relaxed problem with the same value
or a better one, and the relaxed optimum is a lower bound. What is kept, and why it may be:

* a piece's bytes: ops that must share a device count together as soon as a piece holds one of them, because the
  piece's accelerator then holds them all;
* copies cost the least of the ways they may go (exactly one way where all copies go through host memory);
* an op whose inputs all come from one op that it must share a device with, or from others that follow that op in
  the same way, is always in its piece: no path leaves the accelerator in between. A unit is an op with such
  followers; on the host it counts as over when the first of its tensors that others read is there;
* a source that hardly matters is read as if it were wherever it costs least: once per piece the smaller of copying it
  in and computing it there, once per host op its earliest finish;
* a sink that takes no time and hardly any memory is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.graph import BoolArray, FloatArray, sums_by_index
from placewright.problems import Problem

Ints = NDArray[np.int64]
MOST_SORTS = 6  # accelerators of more sorts than this are taken for one sort that is best at everything


class Sorts(NamedTuple):
    """Accelerators that differ in nothing but their names, seen as columns; costs are the least possible."""

    devices: list[list[int]]
    time_s: FloatArray  # [ops, sorts], infinite where ops or those they share a device with may not be
    limit_bytes: FloatArray  # [sorts]
    in_s: FloatArray  # [tensors, sorts]
    out_s: FloatArray  # [tensors, sorts]


class Relaxed(NamedTuple):
    """Units in a topological order, tensors between them and from sources that are read everywhere."""

    unit_of_op: Ints  # [ops] -1 where the op was left out
    host_time_s: FloatArray  # [units]
    host_ready_s: FloatArray  # [units] the least finish of the sources it reads
    time_s: FloatArray  # [units, sorts]
    class_of_unit: Ints
    class_bytes: FloatArray  # [classes]
    limit_bytes: FloatArray  # [sorts]
    successor_ptr: Ints  # [units + 1]
    successor: Ints  # distinct
    tensor_producer: Ints  # [tensors] unit, -1 for a source
    consumer_ptr: Ints  # [tensors + 1]
    consumer: Ints  # distinct units other than the producer
    in_s: FloatArray  # [tensors, sorts]
    out_s: FloatArray  # [tensors, sorts]
    output_ptr: Ints  # [units + 1]
    output: Ints  # tensors of a unit
    input_ptr: Ints  # [units + 1]
    input: Ints  # tensors a unit reads, sources included


def core_relaxed(relaxed: Relaxed) -> _core.calls.Relaxed:
    """The relaxed problem as the core sees it."""
    return _core.calls.Relaxed(relaxed._asdict())


def host_times(problem: Problem) -> FloatArray:
    """[ops]: least time on any host device that takes the op and all that it must share a device with."""
    time = _group_times(problem)[:, problem.arrays.is_host]
    return time.min(axis=1, initial=np.inf)


def accelerator_sorts(problem: Problem) -> Sorts:
    """Accelerators by sort; with too many sorts, one that is at least as good as each."""
    a = problem.arrays
    time = _group_times(problem)
    keyed: dict[tuple[bytes, ...], list[int]] = {}
    accelerators = np.flatnonzero(~a.is_host).tolist()
    into = {d: _least_in(problem, d) for d in accelerators}
    out = {d: _least_out(problem, d) for d in accelerators}
    for d in accelerators:
        limit = np.float64(a.memory_limit_bytes[d]).tobytes()
        key = (time[:, d].tobytes(), limit, into[d].tobytes(), out[d].tobytes())
        keyed.setdefault(key, []).append(d)
    devices = list(keyed.values())
    first = [members[0] for members in devices]
    n_tensors = problem.graph.n_tensors
    sorts = Sorts(
        devices,
        np.ascontiguousarray(time[:, first]),
        a.memory_limit_bytes[first] * (1 + 1e-12),  # sums in another order than the evaluator's differ by a hair
        np.stack([into[d] for d in first], axis=1) if first else np.zeros((n_tensors, 0)),
        np.stack([out[d] for d in first], axis=1) if first else np.zeros((n_tensors, 0)),
    )
    if len(devices) <= MOST_SORTS:
        return sorts
    return Sorts(
        [accelerators],
        sorts.time_s.min(axis=1, keepdims=True),
        sorts.limit_bytes.max(keepdims=True),
        sorts.in_s.min(axis=1, keepdims=True),
        sorts.out_s.min(axis=1, keepdims=True),
    )


def relax(problem: Problem, sorts: Sorts, *, negligible_s: float, negligible_bytes: float) -> Relaxed:
    """Build the relaxed problem; sources and sinks up to the given time and size are not units of their own.

    Whatever these two are, the result is a relaxation; they trade its strength for its size.
    """
    g = problem.graph
    group = problem.group_of_op.astype(np.int64)
    group_bytes = sums_by_index(group, problem.memory_bytes, problem.n_ops)
    host = host_times(problem)
    unit = _followers(problem, group)
    _drop_sinks(problem, group, group_bytes, host, sorts, unit, negligible_bytes)
    sources = _Sources(problem, sorts, host)
    for v in np.flatnonzero(np.bincount(unit[unit >= 0], minlength=problem.n_ops) == 1).tolist():
        if unit[v] == v and sources.takes(v, group, group_bytes, negligible_s, negligible_bytes):
            unit[v] = -1
    main = np.flatnonzero(unit == np.arange(problem.n_ops))
    number = np.full(problem.n_ops + 1, -1, dtype=np.int64)
    number[main] = np.arange(len(main))
    unit_of_op = number[unit]

    time = np.zeros((len(main), len(sorts.devices)))
    kept = unit_of_op >= 0
    np.add.at(time, unit_of_op[kept], sorts.time_s[kept])
    classes, class_of_unit = np.unique(group[main], return_inverse=True)

    producer: list[int] = []
    consumers: list[list[int]] = []
    into: list[FloatArray] = []
    out: list[FloatArray] = []
    for t in range(g.n_tensors):
        u = int(g.tensor_producer[t])
        home = int(unit_of_op[u])
        is_source = t in sources.cost_s
        readers = unit_of_op[g.consumer_op[g.consumer_ptr[t] : g.consumer_ptr[t + 1]]]
        outside = sorted({w for w in readers.tolist() if w >= 0 and w != home})
        if not outside or (home < 0 and not is_source):
            continue
        producer.append(home)
        consumers.append(outside)
        into.append(sources.cost_s[t] if is_source else sorts.in_s[t])
        out.append(np.zeros(len(sorts.devices)) if is_source else sorts.out_s[t])
    ready = np.zeros(len(main))
    for i, v in enumerate(main.tolist()):
        ready[i] = sources.ready_for(v)
    return _assembled(
        unit_of_op,
        _unit_host_times(problem, host, unit, main),
        ready,
        time,
        class_of_unit,
        group_bytes[classes],
        sorts,
        producer,
        consumers,
        into,
        out,
    )


def _assembled(
    unit_of_op: Ints,
    host_time_s: FloatArray,
    ready: FloatArray,
    time: FloatArray,
    class_of_unit: Ints,
    class_bytes: FloatArray,
    sorts: Sorts,
    producer: list[int],
    consumers: list[list[int]],
    into: list[FloatArray],
    out: list[FloatArray],
) -> Relaxed:
    n, n_sorts, n_tensors = len(host_time_s), len(sorts.devices), len(producer)
    edges = sorted({(u, w) for u, ws in zip(producer, consumers, strict=True) if u >= 0 for w in ws})
    source = np.array([u for u, _ in edges], dtype=np.int64)
    tensor = (
        np.repeat(np.arange(n_tensors, dtype=np.int64), [len(ws) for ws in consumers])
        if n_tensors
        else np.zeros(0, np.int64)
    )
    consumer = np.array([w for ws in consumers for w in ws], dtype=np.int64)
    home = np.array(producer, dtype=np.int64)
    made = np.flatnonzero(home >= 0)
    return Relaxed(
        unit_of_op=unit_of_op,
        host_time_s=host_time_s,
        host_ready_s=ready,
        time_s=time,
        class_of_unit=class_of_unit.astype(np.int64),
        class_bytes=class_bytes,
        limit_bytes=sorts.limit_bytes,
        successor_ptr=_pointers(source, n),
        successor=np.array([w for _, w in edges], dtype=np.int64),
        tensor_producer=home,
        consumer_ptr=_pointers(tensor, n_tensors),
        consumer=consumer,
        in_s=np.array(into).reshape(n_tensors, n_sorts),
        out_s=np.array(out).reshape(n_tensors, n_sorts),
        output_ptr=_pointers(home[made], n),
        output=made[np.argsort(home[made], kind="stable")],
        input_ptr=_pointers(consumer, n),
        input=tensor[np.argsort(consumer, kind="stable")],
    )


def _pointers(row: Ints, n_rows: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))]).astype(np.int64)


def _group_times(problem: Problem) -> FloatArray:
    """[ops, devices]: infinite where the op, or one it must share a device with, may not be."""
    allowed = problem.allowed.copy()
    np.logical_and.at(allowed, problem.group_of_op, problem.allowed)
    fits: BoolArray = allowed[problem.group_of_op]
    return np.where(fits, problem.op_device_time_s, np.inf)


def _least_in(problem: Problem, d: int) -> FloatArray:
    a = problem.arrays
    ways = [a.copy_s[:, a.from_host[d]] if a.from_host[d] >= 0 else np.zeros(problem.graph.n_tensors)]
    ways += [a.copy_s[:, a.direct[e, d]] for e in range(problem.n_devices) if e != d and a.direct[e, d] >= 0]
    return np.asarray(np.min(ways, axis=0))


def _least_out(problem: Problem, d: int) -> FloatArray:
    """Direct copies to another accelerator are paid there."""
    a = problem.arrays
    nothing = np.zeros(problem.graph.n_tensors)
    ways = [a.copy_s[:, a.to_host[d]] if a.to_host[d] >= 0 else nothing]
    others = [e for e in range(problem.n_devices) if e != d and a.direct[d, e] >= 0]
    ways += [a.copy_s[:, a.direct[d, e]] if a.is_host[e] else nothing for e in others]
    return np.asarray(np.min(ways, axis=0))


def _followers(problem: Problem, group: Ints) -> Ints:
    """First op of each op's unit."""
    g = problem.graph
    unit = np.arange(problem.n_ops)
    for v in range(problem.n_ops):
        before = {int(unit[g.tensor_producer[t]]) for t in g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]]}
        if len(before) == 1:
            (first,) = before
            if group[first] == group[v]:
                unit[v] = first
    return unit


def _unit_host_times(problem: Problem, host: FloatArray, unit: Ints, main: Ints) -> FloatArray:
    """From a unit's start on the host to the first of its tensors that others read, or to its end if there is none."""
    g = problem.graph
    finish = host.copy()
    first, last = np.full(problem.n_ops, np.inf), np.zeros(problem.n_ops)
    for v in np.flatnonzero(unit >= 0).tolist():
        u = int(unit[v])
        if u != v:
            finish[v] += max(finish[g.tensor_producer[t]] for t in g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]])
        readers = g.consumer_op[g.consumer_ptr[g.tensor_ptr[v]] : g.consumer_ptr[g.tensor_ptr[v + 1]]]
        last[u] = max(last[u], finish[v])
        if ((unit[readers] >= 0) & (unit[readers] != u)).any():
            first[u] = min(first[u], finish[v])
    return np.where(np.isfinite(first), first, last)[main]


def _drop_sinks(
    problem: Problem,
    group: Ints,
    group_bytes: FloatArray,
    host: FloatArray,
    sorts: Sorts,
    unit: Ints,
    negligible_bytes: float,
) -> None:
    g = problem.graph
    size = np.bincount(unit, minlength=problem.n_ops)
    for v in range(problem.n_ops - 1, -1, -1):
        readers = g.consumer_op[g.consumer_ptr[g.tensor_ptr[v]] : g.consumer_ptr[g.tensor_ptr[v + 1]]]
        is_sink = unit[v] == v and size[v] == 1 and (unit[readers] < 0).all()
        takes_time = host[v] > 0 and sorts.time_s[v].min(initial=np.inf) > 0
        if is_sink and not takes_time and group_bytes[group[v]] <= negligible_bytes:
            unit[v] = -1


class _Sources:
    """Ops that are taken for readable everywhere."""

    def __init__(self, problem: Problem, sorts: Sorts, host: FloatArray) -> None:
        self.graph, self.sorts, self.host = problem.graph, sorts, host
        self.cost_s: dict[int, FloatArray] = {}  # per tensor: the least that a piece that reads it pays
        self.finish_s: dict[int, float] = {}  # per op

    def takes(self, v: int, group: Ints, group_bytes: FloatArray, negligible_s: float, negligible_bytes: float) -> bool:
        g = self.graph
        inputs = g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]].tolist()
        tensors = [t for t in range(g.tensor_ptr[v], g.tensor_ptr[v + 1]) if g.consumer_ptr[t] < g.consumer_ptr[t + 1]]
        if not tensors or any(t not in self.cost_s for t in inputs):
            return False
        readers = np.concatenate([g.consumer_op[g.consumer_ptr[t] : g.consumer_ptr[t + 1]] for t in tensors])
        if group_bytes[group[v]] > negligible_bytes and (group[readers] != group[v]).any():
            return False
        own = [self.cost_s[t] for t in inputs if g.consumer_ptr[t + 1] - g.consumer_ptr[t] == 1]
        inside = self.sorts.time_s[v] + np.sum(own, axis=0) if own else self.sorts.time_s[v]
        sent = inside + np.min([self.sorts.out_s[t] for t in tensors], axis=0)
        finish = min(self.host[v] + self.ready_for(v), float(sent.min(initial=np.inf)))
        if finish > negligible_s:
            return False
        self.finish_s[v] = finish
        for i, t in enumerate(tensors):
            computed = inside if i == 0 else np.zeros_like(inside)  # a piece with several of its tensors computes once
            self.cost_s[t] = np.minimum(self.sorts.in_s[t], computed)
        return True

    def ready_for(self, v: int) -> float:
        g = self.graph
        inputs = g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]].tolist()
        return max((self.finish_s.get(int(g.tensor_producer[t]), 0.0) for t in inputs), default=0.0)
