"""Small problems made by hand for list schedulers, and plans by the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from placewright.cluster import Busy, Cluster, Device, DeviceKind, Link
from placewright.graph import build_graph
from placewright.placers.overlap.attempts import Schedule, Scheduler
from placewright.problems import Problem, Rule


def hand_made(
    times: dict[str, Sequence[float]],
    copies: Sequence[tuple[str, float, Sequence[str]]],
    *,
    pins: dict[str, int] | None = None,
    classes: Sequence[Sequence[str]] = (),
    weights: dict[str, float] | None = None,
    memory: Sequence[float] | None = None,
    busy: Busy = "both",
) -> Problem:
    """Ops with their time on each device, tensors (producer, copy time, consumers), all devices linked directly."""
    names = list(times)
    n_devices = len(times[names[0]])
    colocation = [next((c for c, members in enumerate(classes) if n in members), -1) for n in names]
    graph, order = build_graph(
        "by hand",
        names,
        [(names.index(u), 1.0, [names.index(v) for v in readers]) for u, _, readers in copies],
        weight_bytes=[(weights or {}).get(n, 0.0) for n in names],
        colocation=colocation,
    )
    assert order.tolist() == list(range(len(names)))
    link = Link("link", busy=busy)
    limits = memory or [np.inf] * n_devices
    devices = tuple(Device(f"device{d}", f"kind{d}", limits[d]) for d in range(n_devices))
    pairs = {(a.name, b.name): link for a, b in permutations(devices, 2)}
    return Problem(
        graph=graph,
        cluster=Cluster("by hand", tuple(DeviceKind(f"kind{d}") for d in range(n_devices)), devices, {}, {}, pairs),
        op_time_s=np.array([times[n] for n in names], dtype=np.float64),
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=np.array([[c] for _, c, _ in sorted(copies, key=lambda x: names.index(x[0]))]).reshape(-1, 1),
        track_activations=False,
        rules=tuple(Rule("pin", f"^{n}$", f"device{d}") for n, d in (pins or {}).items()),
    )


def planned(problem: Problem, scheduler: Callable[..., Scheduler], *arguments: Any) -> Schedule:
    """The kernel's own plan, before any repair."""
    undecided = np.full(problem.n_ops, -1, dtype=np.int32)
    return scheduler(problem, *arguments)(undecided, problem.arrays.memory_limit_bytes)


def starts(problem: Problem, plan: Schedule) -> dict[str, tuple[int, float]]:
    """Device and start of each op by name."""
    rows = zip(problem.graph.op_names, plan.device.tolist(), plan.start_s.tolist(), strict=True)
    return {name: (device, start) for name, device, start in rows}
