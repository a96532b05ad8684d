"""Fusion of two labellings: every unit takes its device from the one or from the other, by one minimum cut.

Expansions (everyone may go to one device) and swaps (two devices exchange units) are fusions. The copies of a tensor
are sums of terms "home stays or goes, and any of these readers stays (or goes)". Most are submodular and become arcs
around one auxiliary node. What is not is replaced by a term of the home alone that is never too small and is right
for the first labelling: if that is the present one, the result is never worse than it.

With two devices and everybody free, nothing is replaced: the cut is the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import FloatArray, IntArray
from placewright.placers.sequential.labelling import Energy
from placewright.placers.sequential.push_relabel import ENDLESS, Network, minimum_cut

STAYS, GOES = 0, 1
COST_OF_GOING, COST_OF_STAYING = 0, 1  # rows of a node's arcs: from the source, to the sink


class Fused(NamedTuple):
    """The labelling of the cut, and a lower bound on all fusions that is proven if ``is_exact``."""

    label: IntArray
    bound: float
    is_exact: bool


def fuse(
    energy: Energy,
    first: IntArray,
    second: IntArray,
    unary_s: FloatArray | None = None,
    order: tuple[IntArray, IntArray] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Fused:
    """Fuse two labellings that differ in at most two ways per device: see the module.

    ``unary_s`` [units, devices] replaces the units' times (prices of memory added, for instance). ``order`` holds
    pairs of units (u, v): if u takes its second label, so does v.
    """
    e = energy
    unary = e.time_s if unary_s is None else unary_s
    node = np.full(e.n_units, -1, dtype=np.int32)
    free = np.flatnonzero(first != second)
    node[free] = np.arange(len(free))
    fixed = np.flatnonzero(first == second)
    base = float(unary[fixed, first[fixed]].sum())
    n_edges, n_tensors = len(e.reader), len(e.home)
    tail, head = np.empty((2, 8 * n_edges + 6 * n_tensors), dtype=np.int32)
    capacity = np.empty(len(tail))
    ends = np.zeros((2, len(free) + 3 * n_edges + 4 * n_tensors))
    ends[COST_OF_GOING, : len(free)] = unary[free, second[free]]
    ends[COST_OF_STAYING, : len(free)] = unary[free, first[free]]
    n_arcs, n_nodes, constant, is_exact = _network(
        e.home, e.reader_ptr, e.reader, e.copy_s, e.direct, e.to_host, e.from_host,
        first, second, node, len(free), tail, head, capacity, ends,
    )  # fmt: skip
    tail, head, capacity = tail[:n_arcs], head[:n_arcs], capacity[:n_arcs]
    backward = np.zeros(n_arcs)
    if order is not None:
        u, v = node[order[0]], node[order[1]]
        both = (u >= 0) & (v >= 0)
        # u at the sink's side and v at the source's: the arc v -> u must not be cut.
        tail, head = np.append(tail, v[both]), np.append(head, u[both])
        capacity = np.append(capacity, np.full(both.sum(), ENDLESS))
        backward = np.zeros(len(tail))
    cut = minimum_cut(Network(tail, head, capacity, backward, ends[0, :n_nodes], ends[1, :n_nodes]), should_stop)
    label = first.copy()
    goes = free[cut.at_sink[: len(free)]]
    label[goes] = second[goes]
    return Fused(label, base + constant + cut.bound, bool(is_exact))


@njit(cache=True, nogil=True)
def any_term(
    weight: float, side: int, who: Any, count: int, home: int, tail: Any, head: Any, capacity: Any, ends: Any,
    n_arcs: int, n_nodes: int,
) -> tuple[int, int]:  # fmt: skip
    """Add ``weight`` if any of ``who`` is on ``side`` and ``home`` on the other (-1: whatever home does)."""
    if weight <= 0.0 or count == 0:
        return n_arcs, n_nodes
    if count == 1 and home < 0:
        ends[COST_OF_STAYING if side == STAYS else COST_OF_GOING, who[0]] += weight
        return n_arcs, n_nodes
    centre = home
    if count > 1:
        centre = n_nodes
        n_nodes += 1
        if home < 0:
            ends[COST_OF_STAYING if side == STAYS else COST_OF_GOING, centre] += weight
        else:
            tail[n_arcs], head[n_arcs] = (centre, home) if side == STAYS else (home, centre)
            capacity[n_arcs] = weight
            n_arcs += 1
    for k in range(count):
        tail[n_arcs], head[n_arcs] = (who[k], centre) if side == STAYS else (centre, who[k])
        capacity[n_arcs] = weight
        n_arcs += 1
    return n_arcs, n_nodes


@njit(cache=True, nogil=True)
def _network(
    home: Any, reader_ptr: Any, reader: Any, copy_s: Any, direct: Any, to_host: Any, from_host: Any,
    first: Any, second: Any, node: Any, n_free: int, tail: Any, head: Any, capacity: Any, ends: Any,
) -> tuple[int, int, float, bool]:  # fmt: skip
    """Fill the arcs of all tensors; returns how many arcs and nodes there are, a constant, and whether it is exact."""
    n_devices = direct.shape[0]
    n_arcs, n_nodes, constant, exact = 0, n_free, 0.0, True
    is_there = np.zeros(n_devices, dtype=np.bool_)  # a reader that cannot move
    staying, going = np.zeros(n_devices, dtype=np.int32), np.zeros(n_devices, dtype=np.int32)
    most = 1
    for t in range(home.shape[0]):
        most = max(most, reader_ptr[t + 1] - reader_ptr[t])
    who = np.empty(most, dtype=np.int32)
    for t in range(home.shape[0]):
        begin, end = reader_ptr[t], reader_ptr[t + 1]
        h = node[home[t]]
        s, r = first[home[t]], second[home[t]]
        is_there[:] = False
        staying[:] = 0
        going[:] = 0
        for e in range(begin, end):
            v = reader[e]
            if node[v] < 0:
                is_there[first[v]] = True
            else:
                staying[first[v]] += 1
                going[second[v]] += 1
        for d in range(n_devices):
            if not is_there[d] and staying[d] == 0 and going[d] == 0:
                continue
            cost_s = 0.0 if d == s else copy_s[t, direct[s, d] if direct[s, d] >= 0 else from_host[d]]
            cost_r = 0.0 if d == r else copy_s[t, direct[r, d] if direct[r, d] >= 0 else from_host[d]]
            if is_there[d]:
                if h < 0:
                    constant += cost_s
                else:
                    ends[COST_OF_STAYING, h] += cost_s
                    ends[COST_OF_GOING, h] += cost_r
                continue
            # Never both: in an expansion and in a swap a device is either left or entered.
            side = STAYS if staying[d] > 0 else GOES
            count = 0
            for e in range(begin, end):
                v = reader[e]
                if node[v] >= 0 and (first[v] if side == STAYS else second[v]) == d:
                    who[count] = node[v]
                    count += 1
            n_arcs, n_nodes = any_term(
                min(cost_s, cost_r), side, who, count, -1, tail, head, capacity, ends, n_arcs, n_nodes
            )
            if h < 0:
                continue
            if (cost_r > cost_s) == (side == STAYS):
                n_arcs, n_nodes = any_term(
                    abs(cost_r - cost_s), side, who, count, h, tail, head, capacity, ends, n_arcs, n_nodes
                )
            elif cost_r != cost_s:
                exact = False
                ends[COST_OF_STAYING if cost_s > cost_r else COST_OF_GOING, h] += abs(cost_s - cost_r)
        for home_side in range(1 if h < 0 else 2):  # the way up to host memory, once
            at = s if home_side == STAYS else r
            up = copy_s[t, to_host[at]]
            if up <= 0.0:
                continue
            always, any_stays, any_goes = False, False, False
            for e in range(begin, end):
                v = reader[e]
                stays = first[v] != at and direct[at, first[v]] < 0
                goes = second[v] != at and direct[at, second[v]] < 0
                always |= stays and goes
                any_stays |= stays
                any_goes |= goes
            side = STAYS if any_stays else GOES
            if not always and not any_stays and not any_goes:
                continue
            if not always and ((any_stays and any_goes) or (h >= 0 and side == home_side)):
                exact = False
                always = True
            if always:
                if h < 0:
                    constant += up
                else:
                    ends[COST_OF_STAYING if home_side == STAYS else COST_OF_GOING, h] += up
                continue
            count = 0
            for e in range(begin, end):
                v = reader[e]
                d = first[v] if side == STAYS else second[v]
                if node[v] >= 0 and d != at and direct[at, d] < 0:
                    who[count] = node[v]
                    count += 1
            n_arcs, n_nodes = any_term(up, side, who, count, h, tail, head, capacity, ends, n_arcs, n_nodes)
    return n_arcs, n_nodes, constant, exact
