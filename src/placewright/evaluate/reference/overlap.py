"""Twin of ``core/judge/overlap``, with the memory of ``core/judge/memory``."""

from __future__ import annotations

import math

from placewright.cluster import Link
from placewright.evaluate.reference._copies import (
    consumers,
    copy_time,
    direct_link,
    down_link,
    op_time,
    outputs,
    up_link,
)
from placewright.problems import Problem

Copy = tuple[float, float]  # start, end


class _Channels:
    """When each device can next send and receive."""

    def __init__(self, problem: Problem) -> None:
        devices = problem.cluster.devices
        self.send = [("both" if d.half_duplex else "send", i) for i, d in enumerate(devices)]
        self.receive = [("both" if d.half_duplex else "receive", i) for i, d in enumerate(devices)]
        self.free: dict[tuple[str, int], float] = {}

    def book(self, ready: float, took: float, link: Link | None, sender: int | None, receiver: int | None) -> Copy:
        if took == 0 or link is None:
            return ready, ready + took
        ends = [self.send[sender]] if sender is not None and link.busy in ("both", "sender") else []
        ends += [self.receive[receiver]] if receiver is not None and link.busy in ("both", "receiver") else []
        start = max([ready, *(self.free.get(end, 0.0) for end in ends)])
        self.free.update(dict.fromkeys(ends, start + took))
        return start, start + took


def overlap_value_and_peaks(
    problem: Problem, device: list[int], priority: list[float] | None = None
) -> tuple[float, list[float]]:
    """Finish of the last op, and the largest memory of each device."""
    if any(math.isinf(op_time(problem, v, d)) for v, d in enumerate(device)):
        return math.inf, _resident(problem, device)
    channels = _Channels(problem)
    missing = [int(n) for n in problem.graph.input_ptr[1:] - problem.graph.input_ptr[:-1]]
    ready = [0.0] * problem.n_ops
    waiting = {v for v in range(problem.n_ops) if missing[v] == 0}  # inputs known to arrive, not yet started
    running: dict[int, int] = {}  # device -> op
    start: dict[int, float] = {}
    end: dict[int, float] = {}
    arrivals: dict[tuple[int, int], Copy] = {}  # (tensor, device)
    sent_up: dict[int, Copy] = {}  # tensor
    now = 0.0
    while waiting or running:
        for d in range(problem.n_devices):
            candidates = [v for v in waiting if device[v] == d and ready[v] <= now]
            if d not in running and candidates:
                v = min(candidates, key=lambda v: (priority[v] if priority else 0.0, ready[v], v))
                waiting.remove(v)
                running[d], start[v], end[v] = v, now, now + op_time(problem, v, d)
        now = min([end[v] for v in running.values()] + [ready[v] for v in waiting if ready[v] > now])
        for u in sorted(v for v in running.values() if end[v] == now):
            del running[device[u]]
            for t in outputs(problem, u):
                for v in consumers(problem, t):
                    arrived = _arrival(problem, channels, t, device[u], device[v], now, arrivals, sent_up)
                    ready[v] = max(ready[v], arrived)
                    missing[v] -= 1
                    if missing[v] == 0:
                        waiting.add(v)
    value = max(end.values())
    return value, _peaks(problem, device, start, end, arrivals, sent_up, value)


def _arrival(
    problem: Problem, channels: _Channels, t: int, s: int, d: int, now: float,
    arrivals: dict[tuple[int, int], Copy], sent_up: dict[int, Copy],
) -> float:  # fmt: skip
    if s == d:
        return now
    if (t, d) not in arrivals:
        link = direct_link(problem, s, d)
        if link is not None:
            arrivals[t, d] = channels.book(now, copy_time(problem, t, link), link, s, d)
        else:
            if t not in sent_up:
                up = up_link(problem, s)
                sent_up[t] = channels.book(now, copy_time(problem, t, up), up, s, None)
            down = down_link(problem, d)
            arrivals[t, d] = channels.book(sent_up[t][1], copy_time(problem, t, down), down, None, d)
    return arrivals[t, d][1]


def _resident(problem: Problem, device: list[int]) -> list[float]:
    sizes = problem.memory_bytes.tolist()
    return [sum(s for s, at in zip(sizes, device, strict=True) if at == d) for d in range(problem.n_devices)]


def _peaks(
    problem: Problem, device: list[int], start: dict[int, float], end: dict[int, float],
    arrivals: dict[tuple[int, int], Copy], sent_up: dict[int, Copy], value: float,
) -> list[float]:  # fmt: skip
    resident = _resident(problem, device)
    if not problem.track_activations:
        return resident
    alive: list[tuple[int, float, float, float]] = []  # device, from, until, bytes
    for t, u in enumerate(problem.graph.tensor_producer.tolist()):
        size, readers = float(problem.graph.tensor_bytes[t]), consumers(problem, t)
        home_until = [end[u]] + [end[v] for v in readers if device[v] == device[u]]
        home_until += [sent_up[t][1]] if t in sent_up and up_link(problem, device[u]) is not None else []
        home_until += [value] if not readers else []
        for d in {device[v] for v in readers} - {device[u]}:
            if direct_link(problem, device[u], d) is not None:
                home_until.append(arrivals[t, d][1])
            alive.append((d, arrivals[t, d][0], max(end[v] for v in readers if device[v] == d), size))
        alive.append((device[u], start[u], max(home_until), size))
    moments = sorted({s for _, s, _, _ in alive})
    peaks = list(resident)
    for d in range(problem.n_devices):
        for moment in moments:
            live = sum(size for at, s, e, size in alive if at == d and s <= moment < e)
            peaks[d] = max(peaks[d], resident[d] + live)
    return peaks
