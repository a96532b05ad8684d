"""Minimum cuts by push-relabel: highest label first, gaps, global relabelling. Whole-number capacities, resumable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.graph import BoolArray, FloatArray, IntArray

LARGEST_SUM = 2.0**60  # of all capacities as whole numbers: no excess or residual capacity can overflow
WORK_PER_CALL = 4_000_000  # arcs looked at between two looks at the clock: some hundredths of a second
ENDLESS = -1.0  # a capacity that no cut may pay


class Network(NamedTuple):
    """Arcs between inner nodes, each with a capacity both ways, and every node's arcs from source and to sink."""

    tail: IntArray
    head: IntArray
    forward: FloatArray
    backward: FloatArray
    from_source: FloatArray  # [nodes]
    to_sink: FloatArray  # [nodes]


class Cut(NamedTuple):
    """A cut and a lower bound on all cuts. ``is_least`` unless the search was stopped; it may still be then."""

    at_sink: BoolArray  # [nodes]
    bound: float
    is_least: bool


def minimum_cut(network: Network, should_stop: Callable[[], bool] = lambda: False) -> Cut:
    """Find a minimum cut.

    Capacities become whole numbers by a power of two and rounding down. No cut gets dearer by that, so the least
    whole-number cut, scaled back, is a bound for the true one: at most one unit (2^-60 of the sum) per arc below it.
    """
    n = len(network.from_source)
    ends = (network.from_source, network.to_sink)
    total = float(sum(np.maximum(c, 0.0).sum() for c in (network.forward, network.backward, *ends)))
    # The power of two below the ratio; a network without cost needs none.
    scale = 2.0 ** np.floor(np.log2(LARGEST_SUM / total)) if total > 0 else 1.0
    forward, backward = _whole(network.forward, scale), _whole(network.backward, scale)
    supply, room = _whole(network.from_source, scale), _whole(network.to_sink, scale)
    through = np.minimum(supply, room)
    excess, room = supply - through, room - through
    first, to, residual, mate = _arcs(n, network.tail, network.head, forward, backward)
    height = np.empty(n, dtype=np.int32)
    counters = np.zeros(2, dtype=np.int64)  # what reached the sink, whether all is done
    while not counters[1]:
        _push_relabel(n, first, to, residual, mate, excess, room, height, counters, WORK_PER_CALL)
        if not counters[1] and should_stop():
            break
    bound = (int(through.sum()) + int(counters[0])) / scale
    return Cut(_reaches_sink(first, to, residual, mate, room, height), bound * (1 - 1e-15), bool(counters[1]))


def _whole(capacity: FloatArray, scale: float) -> NDArray[np.int64]:
    finite = np.floor(np.maximum(capacity, 0.0) * scale).astype(np.int64)
    return np.where(capacity == ENDLESS, np.int64(LARGEST_SUM), finite)


@njit(cache=True, nogil=True)
def _arcs(n: int, tail: Any, head: Any, forward: Any, backward: Any) -> Any:
    """Arcs by their tail: (first [nodes + 1], to, residual, mate)."""
    m = tail.shape[0]
    first = np.zeros(n + 1, dtype=np.int32)
    for e in range(m):
        first[tail[e] + 1] += 1
        first[head[e] + 1] += 1
    for v in range(n):
        first[v + 1] += first[v]
    at = first[:-1].copy()
    to, mate = np.empty(2 * m, dtype=np.int32), np.empty(2 * m, dtype=np.int32)
    residual = np.empty(2 * m, dtype=np.int64)
    for e in range(m):
        i, j = at[tail[e]], at[head[e]]
        at[tail[e]] += 1
        at[head[e]] += 1
        to[i], residual[i], mate[i] = head[e], forward[e], j
        to[j], residual[j], mate[j] = tail[e], backward[e], i
    return first, to, residual, mate


@njit(cache=True, nogil=True)
def _distances(first: Any, to: Any, residual: Any, mate: Any, room: Any, height: Any, queue: Any) -> int:
    """Exact distances to the sink, more than there are nodes where there is no way; returns how many have one."""
    n = room.shape[0]
    end = 0
    for v in range(n):
        height[v] = n + 1
        if room[v] > 0:
            height[v] = 1
            queue[end] = v
            end += 1
    begin = 0
    while begin < end:
        v = queue[begin]
        begin += 1
        for i in range(first[v], first[v + 1]):
            u = to[i]
            if height[u] > n and residual[mate[i]] > 0:
                height[u] = height[v] + 1
                queue[end] = u
                end += 1
    return end


@njit(cache=True, nogil=True)
def _reaches_sink(first: Any, to: Any, residual: Any, mate: Any, room: Any, height: Any) -> Any:
    n = room.shape[0]
    _distances(first, to, residual, mate, room, height, np.empty(n, dtype=np.int32))
    return height <= n


@njit(cache=True, nogil=True)
def _push_relabel(
    n: int, first: Any, to: Any, residual: Any, mate: Any, excess: Any, room: Any, height: Any, counters: Any,
    work_limit: int,
) -> None:  # fmt: skip
    """Go on from any preflow; heights are found anew. Sets ``counters[1]`` when no excess can reach the sink."""
    queue = np.empty(n, dtype=np.int32)
    top = np.empty(n + 2, dtype=np.int32)  # per height: a stack of active nodes
    below = np.empty(n, dtype=np.int32)
    population = np.zeros(n + 2, dtype=np.int32)
    current = np.empty(n, dtype=np.int32)
    reached_sink = counters[0]
    work, relabel_work, highest = -n - to.shape[0], 0, 0  # the first distances are free: every call gets somewhere
    period = 6 * n + to.shape[0] // 2
    fresh = False
    while True:
        if not fresh:
            fresh = True
            relabel_work = 0
            with_way = _distances(first, to, residual, mate, room, height, queue)
            work += n + to.shape[0]
            top[:] = -1
            population[:] = 0
            highest = 0
            for k in range(with_way - 1, -1, -1):
                v = queue[k]
                h = height[v]
                current[v] = first[v]
                population[h] += 1
                if excess[v] > 0:
                    below[v] = top[h]
                    top[h] = v
                    highest = max(highest, h)
        while highest > 0 and top[highest] < 0:
            highest -= 1
        if highest == 0:
            counters[1] = 1
            break
        if work > work_limit:
            break
        v = top[highest]
        top[highest] = below[v]
        h = height[v]
        have = excess[v]
        if room[v] > 0:
            sent = min(have, room[v])
            room[v] -= sent
            have -= sent
            reached_sink += sent
        i = current[v]
        while have > 0:
            if i == first[v + 1]:
                lowest = n + 1
                for j in range(first[v], first[v + 1]):
                    if residual[j] > 0 and height[to[j]] < lowest:
                        lowest = height[to[j]]
                        i = j
                work += first[v + 1] - first[v]
                relabel_work += first[v + 1] - first[v] + 12
                population[h] -= 1
                # Nothing at the old height: no way down is left from here, nor from anything above.
                h = n + 1 if population[h] == 0 else min(n + 1, lowest + 1)
                height[v] = h
                if h > n:
                    break
                population[h] += 1
                continue
            u = to[i]
            if residual[i] > 0 and height[u] == h - 1:
                sent = min(have, residual[i])
                residual[i] -= sent
                residual[mate[i]] += sent
                have -= sent
                if excess[u] == 0:
                    below[u] = top[h - 1]
                    top[h - 1] = u
                    highest = max(highest, h - 1)
                excess[u] += sent
                if have == 0:
                    break
            i += 1
            work += 1
        current[v] = i
        excess[v] = have
        if relabel_work > period:
            fresh = False
    counters[0] = reached_sink
