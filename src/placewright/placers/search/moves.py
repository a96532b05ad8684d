"""Moves of the annealer: small changes of a placement that follow the graph and the clock.

Every move stages changes in a chain (they take effect at once) and the chain takes them back if they do not please.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.placers.search.state_overlap import Log
from placewright.placers.search.view_overlap import Loads, move_op
from placewright.problems import Arrays

SINGLE, CRITICAL, SWAP, CLUSTER, CLUSTER_SWAP, BOUNDARY, ORDER, CRITICAL_ORDER, RANKS, PRICED = range(10)
N_KINDS = 10


class Chain(NamedTuple):
    """One annealed placement, its best predecessor, and scratch room."""

    device: IntArray  # [ops], the present placement
    rank: IntArray  # [ops], its order: a permutation
    op_of_rank: IntArray
    best_device: IntArray
    best_rank: IntArray
    values: FloatArray  # [3]: present score, best valid value, the loads' part of the present score
    price: FloatArray  # [devices]: of a second of work, for moves that look for cheaper devices
    random: NDArray[np.uint64]  # [1]
    unit_of_op: IntArray  # what moves together
    unit_ptr: IntArray
    unit_op: IntArray
    allowed: BoolArray  # [units, devices]
    staged_unit: IntArray
    staged_from: IntArray
    staged_ranks: IntArray  # pairs of ops whose ranks were exchanged
    counts: IntArray  # [3]: staged units, staged rank pairs, length of the critical path
    first_change: IntArray  # [1]: ops that had ended when the first change takes effect
    work_change_s: FloatArray  # [devices]
    critical: IntArray  # [ops]: the critical path, from its end
    mark: IntArray  # [ops]: number of the search that saw an op last
    queue: IntArray  # [ops]
    stamp: IntArray  # [1]
    old_rank: IntArray  # [ops]
    tried: IntArray  # [kinds]
    taken: IntArray  # [kinds]
    gain: FloatArray  # [kinds]: how much accepted moves of the kind lowered the score


class Flow(NamedTuple):
    """What moves need to know of a problem. Small on purpose: big bundles of arrays take kernels long to compile."""

    producer_ptr: IntArray  # [ops + 1]
    producer: IntArray  # [inputs]: op that each input comes from
    consumer_ptr: IntArray  # [ops + 1]
    consumer: IntArray  # [outputs]: op that reads, once for every tensor it reads
    time_s: FloatArray  # [ops, devices]


def flow_of(a: Arrays, time_s: FloatArray) -> Flow:
    """Collect the arrays."""
    producer, consumer_ptr = a.tensor_producer[a.input_tensor], a.consumer_ptr[a.tensor_ptr]
    # One memory layout for every problem, or the kernels are compiled twice.
    return Flow(a.input_ptr, producer, consumer_ptr, a.consumer_op, np.ascontiguousarray(time_s))


@njit(cache=True, nogil=True)
def below(state: Any, n: int) -> int:
    """A random whole number from 0 to ``n - 1``."""
    return int(uniform(state) * n)


@njit(cache=True, nogil=True)
def uniform(state: Any) -> float:
    """A random number in [0, 1): xorshift, because chains hop between threads and must not share a generator."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return float(x >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def stage(g: Flow, loads: Loads, log: Log, c: Chain, unit: int, to: int) -> None:
    """Put a unit on another device."""
    at = c.device[c.unit_op[c.unit_ptr[unit]]]
    if at == to or not c.allowed[unit, to]:
        return
    n = c.counts[0]
    c.staged_unit[n], c.staged_from[n] = unit, at
    c.counts[0] = n + 1
    first = c.first_change[0]
    for i in range(c.unit_ptr[unit], c.unit_ptr[unit + 1]):
        v = c.unit_op[i]
        move_op(loads, g.time_s, c.device, v, to)
        c.work_change_s[at] -= g.time_s[v, at]
        c.work_change_s[to] += g.time_s[v, to]
        if g.producer_ptr[v] == g.producer_ptr[v + 1]:
            first = -1
        for k in range(g.producer_ptr[v], g.producer_ptr[v + 1]):
            first = min(first, log.done_index[g.producer[k]])
    c.first_change[0] = first


@njit(cache=True, nogil=True)
def stage_ranks(g: Flow, log: Log, c: Chain, u: int, v: int) -> None:
    """Exchange the ranks of two ops."""
    n = c.counts[1]
    c.staged_ranks[2 * n], c.staged_ranks[2 * n + 1] = u, v
    c.counts[1] = n + 1
    exchange_ranks(c, u, v)
    c.first_change[0] = min(c.first_change[0], _ready_index(g, log, u), _ready_index(g, log, v))


@njit(cache=True, nogil=True)
def _ready_index(g: Flow, log: Log, v: int) -> int:
    """How many ops had ended when the last producer of ``v`` did, -1 if it reads nothing."""
    index = -1
    for k in range(g.producer_ptr[v], g.producer_ptr[v + 1]):
        index = max(index, log.done_index[g.producer[k]])
    return index


@njit(cache=True, nogil=True)
def exchange_ranks(c: Chain, u: int, v: int) -> None:
    """Exchange the ranks of two ops without staging."""
    c.rank[u], c.rank[v] = c.rank[v], c.rank[u]
    c.op_of_rank[c.rank[u]], c.op_of_rank[c.rank[v]] = u, v


@njit(cache=True, nogil=True)
def take_back(g: Flow, loads: Loads, c: Chain) -> None:
    """Undo what is staged."""
    for n in range(c.counts[0] - 1, -1, -1):
        unit = c.staged_unit[n]
        for i in range(c.unit_ptr[unit], c.unit_ptr[unit + 1]):
            move_op(loads, g.time_s, c.device, c.unit_op[i], c.staged_from[n])
    for n in range(c.counts[1] - 1, -1, -1):
        exchange_ranks(c, c.staged_ranks[2 * n], c.staged_ranks[2 * n + 1])


@njit(cache=True, nogil=True)
def _neighbour(g: Flow, c: Chain, v: int) -> int:
    """A random producer or consumer of an op, -1 if it has none."""
    n_in = g.producer_ptr[v + 1] - g.producer_ptr[v]
    first, last = g.consumer_ptr[v], g.consumer_ptr[v + 1]
    if n_in + last - first == 0:
        return -1
    pick = below(c.random, n_in + last - first)
    if pick < n_in:
        return g.producer[g.producer_ptr[v] + pick]
    return g.consumer[first + pick - n_in]


@njit(cache=True, nogil=True)
def _other_device(g: Flow, c: Chain, v: int) -> int:
    """A device for op ``v``: mostly one that a neighbour is on, else any."""
    at = c.device[v]
    if uniform(c.random) < 0.7:
        for _ in range(3):
            w = _neighbour(g, c, v)
            if w >= 0 and c.device[w] != at:
                return c.device[w]
    n_devices = g.time_s.shape[1]
    return (at + 1 + below(c.random, max(1, n_devices - 1))) % n_devices


@njit(cache=True, nogil=True)
def _grow(g: Flow, c: Chain, seed: int, size: int, backwards: bool, forwards: bool) -> int:
    """Fill the queue with up to ``size`` connected ops on the seed's device; return how many. Some are left out."""
    c.stamp[0] += 1
    stamp, at = c.stamp[0], c.device[seed]
    c.queue[0] = seed
    c.mark[seed] = stamp
    head, tail = 0, 1
    while head < tail and tail < size:
        v = c.queue[head]
        head += 1
        if backwards:
            for i in range(g.producer_ptr[v], g.producer_ptr[v + 1]):
                u = g.producer[i]
                if tail < size and c.device[u] == at and c.mark[u] != stamp and uniform(c.random) < 0.8:
                    c.mark[u] = stamp
                    c.queue[tail] = u
                    tail += 1
        if forwards:
            for i in range(g.consumer_ptr[v], g.consumer_ptr[v + 1]):
                u = g.consumer[i]
                if tail < size and c.device[u] == at and c.mark[u] != stamp and uniform(c.random) < 0.8:
                    c.mark[u] = stamp
                    c.queue[tail] = u
                    tail += 1
    return tail


@njit(cache=True, nogil=True)
def _stage_grown(g: Flow, loads: Loads, log: Log, c: Chain, count: int, to: int) -> None:
    for i in range(count):
        stage(g, loads, log, c, c.unit_of_op[c.queue[i]], to)


@njit(cache=True, nogil=True)
def _near_in_time(log: Log, c: Chain, v: int, same_device: bool) -> int:
    """An op that ended at about the same time, on the same device or on another, -1 if none was met."""
    n = c.device.shape[0]
    reach = min(n, 4 + 6 * c.price.shape[0])
    for _ in range(6):
        i = log.done_index[v] + below(c.random, 2 * reach + 1) - reach
        if 0 <= i < n and log.order[i] != v and (c.device[log.order[i]] == c.device[v]) == same_device:
            return log.order[i]
    return -1


@njit(cache=True, nogil=True)
def find_critical(a: Arrays, log: Log, c: Chain) -> None:
    """Walk back from the last op along what each op waited for: its device or its last input."""
    v = log.order[log.order.shape[0] - 1]
    n = 0
    while v >= 0 and n < c.critical.shape[0]:
        c.critical[n] = v
        n += 1
        v = log.before[v] if log.known_ready_s[v] < log.start_s[v] else last_producer(a, log, c, v)
    c.counts[2] = n


@njit(cache=True, nogil=True)
def last_producer(a: Arrays, log: Log, c: Chain, v: int) -> int:
    """The producer whose tensor would arrive last if channels were free, -1 if the op reads nothing."""
    last, last_s = -1, -1.0
    for i in range(a.input_ptr[v], a.input_ptr[v + 1]):
        t = a.input_tensor[i]
        u = a.tensor_producer[t]
        s, d = c.device[u], c.device[v]
        arrival_s = log.start_s[u] + a.op_time_s[u, a.device_kind[s]] + copy_time_s(a, t, s, d)
        if arrival_s > last_s:
            last, last_s = u, arrival_s
    return last


@njit(cache=True, nogil=True, inline="always")
def copy_time_s(a: Arrays, t: int, s: int, d: int) -> float:
    """Seconds of a copy over free channels."""
    took = 0.0
    if s != d:
        if a.direct[s, d] >= 0:
            took = a.copy_s[t, a.direct[s, d]]
        else:
            if a.to_host[s] >= 0:
                took += a.copy_s[t, a.to_host[s]]
            if a.from_host[d] >= 0:
                took += a.copy_s[t, a.from_host[d]]
    return took


@njit(cache=True, nogil=True)
def ranks_from_placement(a: Arrays, device: Any, noise: float, random: Any, rank: Any, op_of_rank: Any) -> None:
    """Rank ops by the longest path to the end under the present placement, copies included; longest first."""
    n = device.shape[0]
    path_s = np.zeros(n)
    for u in range(n - 1, -1, -1):
        behind = 0.0
        for t in range(a.tensor_ptr[u], a.tensor_ptr[u + 1]):
            for i in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                v = a.consumer_op[i]
                behind = max(behind, copy_time_s(a, t, device[u], device[v]) + path_s[v])
        path_s[u] = behind + a.op_time_s[u, a.device_kind[device[u]]] * (1.0 + noise * uniform(random))
    order = np.argsort(-path_s, kind="mergesort")
    for r in range(n):
        op_of_rank[r] = order[r]
        rank[order[r]] = r


@njit(cache=True, nogil=True)
def propose(g: Flow, loads: Loads, log: Log, c: Chain, kind: int, has_clock: bool, has_path: bool) -> None:
    """Stage a move of a kind; nothing is staged if none comes to mind.

    ``has_clock``: the log says when ops run; ``has_path``: the critical path is known.
    """
    n = c.device.shape[0]
    critical = has_path and c.counts[2] > 0 and (kind in (CRITICAL, CRITICAL_ORDER) or uniform(c.random) < 0.4)
    v = c.critical[below(c.random, c.counts[2])] if critical else below(c.random, n)
    size = 2 + int(2.0 ** (uniform(c.random) * np.log2(max(2.0, min(256.0, n / 4)))))
    if kind in (SINGLE, CRITICAL):
        stage(g, loads, log, c, c.unit_of_op[v], _other_device(g, c, v))
    elif kind == PRICED:
        _stage_priced(g, loads, log, c)
    elif kind == SWAP:
        w = _near_in_time(log, c, v, False) if has_clock else _neighbour(g, c, v)
        if w >= 0:
            at, to = c.device[v], c.device[w]
            stage(g, loads, log, c, c.unit_of_op[v], to)
            stage(g, loads, log, c, c.unit_of_op[w], at)
    elif kind == CLUSTER:
        to = _other_device(g, c, v)
        _stage_grown(g, loads, log, c, _grow(g, c, v, size, True, True), to)
    elif kind == CLUSTER_SWAP:
        w = _near_in_time(log, c, v, False) if has_clock else _neighbour(g, c, v)
        if w >= 0 and c.device[w] != c.device[v]:
            at, to = c.device[v], c.device[w]
            count = _grow(g, c, v, size, True, True)
            others = _grow_copy(g, c, w, count)
            _stage_grown(g, loads, log, c, count, to)
            for i in range(others):
                stage(g, loads, log, c, c.unit_of_op[c.old_rank[i]], at)
    elif kind == BOUNDARY:
        w = _neighbour(g, c, v)
        if w >= 0 and c.device[w] != c.device[v]:
            to = c.device[w]
            ahead = w < v  # the boundary moves on along the edge, or back
            _stage_grown(g, loads, log, c, _grow(g, c, v, min(size, 16), not ahead, ahead), to)
    elif kind == ORDER and has_clock:
        w = _near_in_time(log, c, v, True)
        if w >= 0:
            stage_ranks(g, log, c, v, w)
    elif kind == CRITICAL_ORDER and has_clock:
        w = log.before[v]
        if w >= 0 and c.rank[w] < c.rank[v]:
            stage_ranks(g, log, c, v, w)


@njit(cache=True, nogil=True)
def _stage_priced(g: Flow, loads: Loads, log: Log, c: Chain) -> None:
    """Of a few random ops, move the one whose work gets cheapest."""
    best_v, best_d, best_gain = -1, -1, 0.0
    for _ in range(4):
        v = below(c.random, c.device.shape[0])
        here = c.price[c.device[v]] * g.time_s[v, c.device[v]]
        for d in range(g.time_s.shape[1]):
            if c.allowed[c.unit_of_op[v], d]:
                gain = here - c.price[d] * g.time_s[v, d]
                if gain > best_gain:
                    best_v, best_d, best_gain = v, d, gain
    if best_v >= 0:
        stage(g, loads, log, c, c.unit_of_op[best_v], best_d)


@njit(cache=True, nogil=True)
def _grow_copy(g: Flow, c: Chain, seed: int, size: int) -> int:
    """As ``_grow``, into ``old_rank`` (free at this moment), leaving the queue as it is."""
    kept = c.queue[:size].copy()
    count = _grow(g, c, seed, size, True, True)
    c.old_rank[:count] = c.queue[:count]
    c.queue[:size] = kept
    return count
