"""How long it takes at least from the end of a unit to the end of everything, along one path through the graph.

A piece meets a path in one stretch, because nothing leaves a piece and comes back. So along a fixed path the least
time is that of a chain cut into host units and stretches that fit a memory, which a small dynamic programme finds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import FloatArray
from placewright.placers.calls.relaxation import Relaxed


class Tails(NamedTuple):
    """Least seconds to the end of everything."""

    edge_s: FloatArray  # [edges] from the end of a unit, along this edge; aligned with ``successor``
    start_s: FloatArray  # [units] from the moment that all a unit reads is there, its own time included
    open_s: FloatArray  # [units] from the end of a unit's own work in a piece that may go on with later units


def find_tails(relaxed: Relaxed) -> Tails:
    """The least times along the paths that seem longest."""
    n_units, n_sorts = relaxed.time_s.shape
    shared = np.bincount(relaxed.class_of_unit, minlength=len(relaxed.class_bytes))
    size = (relaxed.class_bytes / np.maximum(shared, 1))[relaxed.class_of_unit]  # a stretch never counts too much
    alone = relaxed.time_s.copy()
    readers = np.diff(relaxed.consumer_ptr)
    for u in range(n_units):
        for t in relaxed.input[relaxed.input_ptr[u] : relaxed.input_ptr[u + 1]].tolist():
            if relaxed.tensor_producer[t] < 0 and readers[t] == 1:
                alone[u] += relaxed.in_s[t]
    into, out = np.zeros((len(relaxed.successor), n_sorts)), np.zeros((len(relaxed.successor), n_sorts))
    for t, u in enumerate(relaxed.tensor_producer.tolist()):
        if u < 0:
            continue
        for v in relaxed.consumer[relaxed.consumer_ptr[t] : relaxed.consumer_ptr[t + 1]].tolist():
            edge = relaxed.successor_ptr[u] + np.searchsorted(
                relaxed.successor[relaxed.successor_ptr[u] : relaxed.successor_ptr[u + 1]], v
            )
            into[edge] += relaxed.in_s[t]
            out[edge] += relaxed.out_s[t]
    tails = Tails(np.zeros(len(relaxed.successor)), np.zeros(n_units), np.zeros(n_units))
    _fill(
        relaxed.successor_ptr, relaxed.successor, relaxed.host_time_s, alone, size, relaxed.limit_bytes, into, out,
        tails.edge_s, tails.start_s, tails.open_s,
    )  # fmt: skip
    return tails


@njit(cache=True, nogil=True)
def _fill(
    successor_ptr: Any, successor: Any, host_time_s: Any, time_s: Any, size: Any, limit: Any, into: Any, out: Any,
    edge_tail: Any, start_tail: Any, open_tail: Any,
) -> None:  # fmt: skip
    n_units = time_s.shape[0]
    next_edge = np.full(n_units, -1, dtype=np.int64)
    tail = np.zeros(n_units)
    for u in range(n_units - 1, -1, -1):
        for edge in range(successor_ptr[u], successor_ptr[u + 1]):
            v = successor[edge]
            found = _from(v, edge, next_edge, tail, successor, host_time_s, time_s, size, limit, into, out)
            edge_tail[edge] = found
            if next_edge[u] < 0 or found > tail[u]:
                tail[u] = found
                next_edge[u] = edge
        start_tail[u] = _from(u, -1, next_edge, tail, successor, host_time_s, time_s, size, limit, into, out)
        open_tail[u] = _onwards(u, next_edge, tail, successor, time_s, size, limit, out)


@njit(cache=True, nogil=True)
def _from(
    first: int, entry: int, next_edge: Any, tail: Any, successor: Any, host_time_s: Any, time_s: Any, size: Any,
    limit: Any, into: Any, out: Any,
) -> float:  # fmt: skip
    """Least time along the path that starts with ``first``, reached over the edge ``entry``."""
    best = host_time_s[first] + tail[first]
    for k in range(limit.shape[0]):
        total = into[entry, k] if entry >= 0 else 0.0
        used = 0.0
        v = first
        while True:
            used += size[v]
            total += time_s[v, k]
            if used > limit[k] or total >= best:
                break
            edge = next_edge[v]
            if edge < 0:
                best = min(best, total)
                break
            best = min(best, total + out[edge, k] + tail[v])
            v = successor[edge]
    return best


@njit(cache=True, nogil=True)
def _onwards(
    first: int, next_edge: Any, tail: Any, successor: Any, time_s: Any, size: Any, limit: Any, out: Any
) -> float:
    """Least time along the path behind ``first``, which is in a piece that has not ended yet."""
    if next_edge[first] < 0:
        return 0.0
    best = np.inf
    for k in range(limit.shape[0]):
        total = 0.0
        used = size[first]
        v = first
        while used <= limit[k] and total < best:
            edge = next_edge[v]
            if edge < 0:
                best = min(best, total)
                break
            best = min(best, total + out[edge, k] + tail[v])
            v = successor[edge]
            used += size[v]
            total += time_s[v, k]
    return best if best < np.inf else 0.0
