"""Costs for the torch executor on a CPU and a CUDA device, measured through the executor itself.

An eager op on CUDA costs its kernel or its launch, whichever the stream waits for: both are measured in one pass (the
device sleeps while the host queues ops, so that neither hides the other), and an op's time is by how much it delays
the end of the stream. Recorded as CUDA graphs, ops cost their kernels. Copies are timed as the executor makes them,
the handing over between threads included. A few executed placements then scale the columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placewright.cluster import Cluster
from placewright.evaluate import evaluate_many
from placewright.execute.torch import TorchRun
from placewright.execute.torch_weights import WeightStore
from placewright.graph import FloatArray, IntArray, OpGraph
from placewright.problems import Problem
from placewright.profiles import CopyCurve, Profile, graph_fingerprint

if TYPE_CHECKING:
    import torch

_SLEEP_CYCLES = 30_000_000  # long enough for the host to queue the ops of one stretch
_OPS_PER_STRETCH = 150  # a stream takes about a thousand launches and events before the host has to wait
_PINGPONG = 6  # ops of the model that goes to and fro
COPY_SIZES = (2**10, 2**14, 2**18, 2**20, 2**22)  # floats


class OpTimes(NamedTuple):
    """Seconds of ops, by the graph's numbers; ops that the executor does not call take none."""

    cpu_s: FloatArray
    kernel_s: FloatArray  # on the CUDA device, nothing else counted
    launch_s: FloatArray  # on the host, for the CUDA device
    whole_s: Mapping[str, float]  # cpu, eager, graphs: runs of the whole model

    def eager_s(self) -> FloatArray:
        """What each op adds to an eager run of the whole, scaled to its measured length."""
        added = stream_delays(self.launch_s, self.kernel_s)
        return added * (self.whole_s["eager"] / max(float(added.sum()), 1e-12))

    def graphs_s(self) -> FloatArray:
        """What each op adds to the run of a CUDA graph."""
        return self.kernel_s * (self.whole_s["graphs"] / max(float(self.kernel_s.sum()), 1e-12))


class Scales(NamedTuple):
    """What executed placements say about a problem's times."""

    by_kind: tuple[float, ...]  # factors of the ops' times
    copies: float  # factor of the copies' times
    copy_latency_s: float  # and what each takes besides


def stream_delays(launch_s: Sequence[float] | FloatArray, kernel_s: Sequence[float] | FloatArray) -> FloatArray:
    """By how much each op puts off the end of a stream that a host fills while the device works.

    >>> stream_delays([2.0, 2.0, 2.0], [5.0, 1.0, 1.0]).tolist()
    [7.0, 1.0, 1.0]
    """
    host = end = 0.0
    delays = np.zeros(len(launch_s))
    for i, (launch, kernel) in enumerate(zip(launch_s, kernel_s, strict=True)):
        host += launch
        after = max(host, end) + kernel
        delays[i], end = after - end, after
    return delays


def measure_ops(
    program: torch.export.ExportedProgram,
    graph: OpGraph,
    inputs: Sequence[Any],
    device: str,
    store: WeightStore,
    passes: int = 10,
    warm_up: int = 2,
) -> OpTimes:
    """Time the ops of a program on the CPU and on ``device``; a ``device`` of cpu stands in where there is no other.

    Every way of running it is timed ``passes`` times, after ``warm_up`` runs that do not count.
    """
    names = [n.name for n in program.graph.nodes if n.op == "call_function"]
    whole = {}
    for key, torch_name, use_graphs in (("cpu", "cpu", False), ("eager", device, False), ("graphs", device, True)):
        run = TorchRun(program, {}, {"all": torch_name}, store=store, use_graphs=use_graphs)
        whole[key] = median_s(lambda run=run: run(*inputs), passes, warm_up)  # type: ignore[misc]
        run.close()
    is_cuda = device.startswith("cuda")
    rows = {k: np.zeros((passes, len(names))) for k in ("cpu", "kernel", "launch")}
    row_of = {name: i for i, name in enumerate(names)}
    host_marks: list[tuple[str, float]] = []
    cpu_run = TorchRun(
        program, {}, {"all": "cpu"}, store=store, mark=lambda n: host_marks.append((n, time.perf_counter()))
    )
    for p in range(-warm_up, passes):
        host_marks.clear()
        last = time.perf_counter()
        cpu_run(*inputs)
        for name, at in host_marks:
            rows["cpu"][p, row_of[name]] = at - last
            last = at
    cpu_run.close()
    if is_cuda:
        queue = _QueuedMarks()
        gpu_run = TorchRun(program, {}, {"all": device}, store=store, mark=queue.mark)
        for p in range(-warm_up, passes):
            queue.begin()
            gpu_run(*inputs)
            for name, launch, kernel in queue.times():
                rows["launch"][p, row_of[name]], rows["kernel"][p, row_of[name]] = launch, kernel
        gpu_run.close()
    else:
        rows["kernel"] = rows["cpu"] * 0.5
    index = graph.index_of

    def by_op(values: FloatArray) -> FloatArray:
        result = np.zeros(graph.n_ops)
        for name, value in zip(names, np.median(values, axis=0), strict=True):
            if name in index:
                result[index[name]] = value
        return result

    return OpTimes(by_op(rows["cpu"]), by_op(rows["kernel"]), by_op(rows["launch"]), whole)


def measure_copies(device: str, repeats: int = 15) -> CopyCurve:
    """Seconds of one copy in the executor, from its producer's end to the reader's start, the mean of both directions.

    A chain of small ops is run with every second op on ``device``, and on each device alone.
    """
    import torch

    class Chain(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            for _ in range(_PINGPONG):
                x = x + 1.0
            return x

    seconds = []
    for size in COPY_SIZES:
        x = torch.zeros(size)
        program = torch.export.export(Chain(), (x,))
        names = [n.name for n in program.graph.nodes if n.op == "call_function"]
        devices = {"a": "cpu", "b": device}
        ways = {
            "to and fro": {n: "ab"[i % 2] for i, n in enumerate(names)},
            "a": dict.fromkeys(names, "a"),
            "b": dict.fromkeys(names, "b"),
        }
        took = {}
        for key, placed in ways.items():
            run = TorchRun(program, placed, devices)
            took[key] = median_s(lambda run=run, x=x: run(x), repeats)  # type: ignore[misc]
            run.close()
        # Alone on the other device the input is copied once, too.
        extra = took["to and fro"] - (took["a"] + took["b"]) / 2
        seconds.append(max(extra / (_PINGPONG - 1), 1e-7))
    rising = np.maximum.accumulate(seconds)
    return CopyCurve(tuple(4.0 * s for s in COPY_SIZES), tuple(float(s) for s in rising))


def calibrated_profile(
    graph: OpGraph, cluster: Cluster, times: OpTimes, copies: CopyCurve, *, use_graphs: bool
) -> Profile:
    """A profile for a cluster of one host kind and one CUDA kind, as eager torch or CUDA graphs run it."""
    device_s = times.graphs_s() if use_graphs else times.eager_s()
    host_s = times.cpu_s * (times.whole_s["cpu"] / max(float(times.cpu_s.sum()), 1e-12))
    time_s = np.stack([host_s if kind.is_host else device_s for kind in cluster.kinds], axis=1)
    return Profile(
        op_names=graph.op_names,
        kinds=tuple(kind.name for kind in cluster.kinds),
        time_s=time_s,
        is_measured=np.ones(time_s.shape, dtype=np.bool_),
        spread_s=np.full(time_s.shape, np.nan),
        copies={link.name: copies for link in cluster.link_table().links},
        model=graph.name,
        fingerprint=graph_fingerprint(graph),
        source="measured in the torch executor, " + ("CUDA graphs" if use_graphs else "eager"),
    )


def fit_scales(problem: Problem, placements: IntArray, measured_s: FloatArray, rounds: int = 40) -> Scales:
    """Fit the few figures of :class:`Scales` to executed placements.

    The mean squared log error is made small, one figure at a time; figures stay near 1 and 0 unless the placements say
    otherwise.
    """
    n_kinds = problem.op_time_s.shape[1]
    figures = np.zeros(n_kinds + 2)  # logs of the factors; the latency in 10 us

    def scales(x: FloatArray) -> Scales:
        factors = np.exp(x)
        return Scales(tuple(map(float, factors[:n_kinds])), float(factors[n_kinds]), float(max(0.0, x[-1]) * 1e-5))

    def loss(x: FloatArray) -> float:
        predicted = evaluate_many(scaled(problem, scales(x)), placements).value
        return float((np.log(predicted / measured_s) ** 2).mean() + 1e-3 * (x**2)[:-1].sum())

    best, step = loss(figures), np.array([0.3] * (n_kinds + 1) + [2.0])
    for _ in range(rounds):
        for i in range(len(figures)):
            is_better = False
            for sign in (1.0, -1.0):
                trial = figures.copy()
                trial[i] += sign * step[i]
                if (value := loss(trial)) < best:
                    best, figures, is_better = value, trial, True
                    break
            step[i] *= 1.3 if is_better else 0.6
    return scales(figures)


def scaled(problem: Problem, scales: Scales) -> Problem:
    """The problem with its times multiplied and every copy lengthened."""
    copies = problem.tensor_copy_s * scales.copies + np.where(problem.tensor_copy_s > 0, scales.copy_latency_s, 0.0)
    return replace(problem, op_time_s=problem.op_time_s * np.array(scales.by_kind), tensor_copy_s=copies)


def median_s(run: Callable[[], object], repeats: int, warm_up: int = 3) -> float:
    """The median of timed calls; each call must wait for its device."""
    for _ in range(warm_up):
        run()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


class _QueuedMarks:
    """Host and device times of ops that are queued while the device sleeps."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self.begin()

    def begin(self) -> None:
        self._names: list[str] = []
        self._host: list[tuple[float, float]] = []  # when the op was called and queued, after and before its mark
        self._n_events = 0
        self._pairs: list[tuple[Any, Any]] = []
        self._previous: Any = None
        self._left_at = time.perf_counter()

    def mark(self, name: str) -> None:
        import torch

        called = time.perf_counter()
        event = self._next_event()
        event.record()
        self._names.append(name)
        self._host.append((self._left_at, called))
        self._pairs.append((self._previous, event))
        self._previous = event
        if len(self._names) % _OPS_PER_STRETCH == 1:
            torch.cuda._sleep(_SLEEP_CYCLES)  # type: ignore[no-untyped-call]
            self._previous = self._next_event()
            self._previous.record()
        self._left_at = time.perf_counter()

    def times(self) -> list[tuple[str, float, float]]:
        """(op, seconds of its launch, seconds on the device); the first op's time there is not known, taken as 0."""
        return [
            (name, called - left, before.elapsed_time(event) * 1e-3 if before is not None else 0.0)
            for name, (left, called), (before, event) in zip(self._names, self._host, self._pairs, strict=True)
        ]

    def _next_event(self) -> Any:
        import torch

        if self._n_events == len(self._events):
            event: Any = torch.cuda.Event
            self._events.append(event(enable_timing=True))
        self._n_events += 1
        return self._events[self._n_events - 1]
