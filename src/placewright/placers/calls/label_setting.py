"""The relaxed problem solved by labels on the lattice of ideals.

A solution is built up piece by piece along a chain of ideals. All that the rest of it has to know of an ideal's part
is when each unit of its frontier ends, and the end of what nobody reads: that is a label. A label that is nowhere
earlier than another one of the same ideal is dropped. So is one that cannot end below the cutoff. Where an ideal has
too many labels, some are replaced by their componentwise minimum, which keeps the bound valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import FloatArray
from placewright.placers.calls.frontier import Frontiers
from placewright.placers.calls.relaxation import Relaxed
from placewright.placers.calls.stopping import stop_flag
from placewright.placers.calls.tails import Tails
from placewright.placers.pipeline.lattice import Lattice

_LABEL_BYTES = 400 * 2**20
_SAME = 1e-13  # labels this close, relative to the cutoff, are taken for equal
_USED, _FREE, _SPARE, _VISITS, _BLENDS = 0, 1, 2, 3, 4  # counters
_NONE, _ROOT, _BLENDED = -1, -2, -3  # origins that are no labels


class Ration(NamedTuple):
    """What pieces use up, and how much of it there is."""

    per_piece: float
    per_unit: FloatArray  # [units]
    limit: float


class Solution(NamedTuple):
    """Groups of units in the order in which they can be run; host units are groups of one."""

    value: float
    groups: list[tuple[list[int], bool]]  # units, whether they run on the host

    @property
    def n_pieces(self) -> int:
        return sum(not on_host for _, on_host in self.groups)


class Outcome(NamedTuple):
    """``bound`` holds for the relaxed problem; ``solution`` is the best one below the cutoff, where it can be told."""

    bound: float
    solution: Solution | None
    is_finished: bool
    is_blended: bool  # labels were replaced by minima
    visits: int


def solve_labels(
    relaxed: Relaxed,
    lattice: Lattice,
    frontiers: Frontiers,
    tails: Tails,
    cutoff: float,
    width: int,
    should_stop: Callable[[], bool],
    ration: Ration | None = None,
) -> Outcome:
    """Bound the relaxed problem from below; solve it if ``width`` labels per ideal are enough.

    With a ``ration`` the answer, bound included, is about solutions that keep to it. Without, fewer pieces are
    preferred where nothing else differs.
    """
    is_rationed = ration is not None
    ration = ration or Ration(1.0, np.zeros(len(relaxed.host_time_s)), np.inf)
    n_ideals = len(lattice.parent)
    n_values = frontiers.widest + 1
    spare = max(0, min(n_ideals * (width + 1), _LABEL_BYTES // (8 * n_values + 30) - n_ideals))
    store = _Store(n_ideals, n_ideals + spare + 1, n_values, spare)
    with stop_flag(should_stop) as flag:
        at = _expand(
            flag, cutoff, _SAME * cutoff if np.isfinite(cutoff) else 0.0, width, is_rationed, *ration,
            lattice.edge_ptr, lattice.edge_unit, lattice.edge_target, frontiers.ptr, frontiers.unit,
            frontiers.tail_s, frontiers.wait_ptr, frontiers.waits, tails.open_s,
            relaxed.host_time_s, relaxed.host_ready_s, relaxed.time_s, relaxed.class_of_unit, relaxed.class_bytes,
            relaxed.limit_bytes, relaxed.successor_ptr, relaxed.tensor_producer, relaxed.consumer_ptr, relaxed.in_s,
            relaxed.out_s, relaxed.output_ptr, relaxed.output, relaxed.input_ptr, relaxed.input,
            store.head, store.count, store.value, store.rank, store.spent, store.link, store.origin, store.ideal,
            store.on_host, store.counters,
        )  # fmt: skip
    is_finished = at == n_ideals
    least = _least_pending(min(at, n_ideals - 1), store.head, store.rank, store.link)
    # Dropping a label for one that is later by a hair loses that hair at most once per unit.
    bound = min(cutoff, least) * (1 - _SAME * (len(relaxed.host_time_s) + 10))
    solution = _solution(lattice, store) if is_finished and least < cutoff else None
    return Outcome(bound, solution, is_finished, bool(store.counters[_BLENDS]), int(store.counters[_VISITS]))


class _Store:
    """Labels in linked lists, one list per ideal."""

    def __init__(self, n_ideals: int, capacity: int, n_values: int, spare: int) -> None:
        self.head = np.full(n_ideals, _NONE, dtype=np.int32)
        self.count = np.zeros(n_ideals, dtype=np.int32)
        self.value = np.empty((capacity, n_values))
        self.rank = np.empty(capacity)  # least value of a solution with this label
        self.spent = np.zeros(capacity)
        self.link = np.full(capacity, _NONE, dtype=np.int32)
        self.origin = np.full(capacity, _NONE, dtype=np.int32)
        self.ideal = np.zeros(capacity, dtype=np.int32)
        self.on_host = np.zeros(capacity, dtype=np.bool_)
        self.counters = np.array([1, _NONE, spare, 0, 0], dtype=np.int64)
        self.head[0], self.count[0], self.link[0], self.origin[0] = 0, 1, _NONE, _ROOT
        self.value[0], self.rank[0] = 0.0, 0.0


def _solution(lattice: Lattice, store: _Store) -> Solution | None:
    labels = []
    label = int(store.head[-1])
    while label >= 0:
        labels.append(label)
        label = int(store.link[label])
    best = min(labels, key=lambda i: store.rank[i])
    groups: list[tuple[list[int], bool]] = []
    label = best
    while store.origin[label] >= 0:
        before = int(store.origin[label])
        units = _members(lattice, int(store.ideal[label])) - _members(lattice, int(store.ideal[before]))
        groups.append((sorted(units), bool(store.on_host[label])))
        label = before
    if store.origin[label] != _ROOT:
        return None
    return Solution(float(store.rank[best]), groups[::-1])


def _members(lattice: Lattice, ideal: int) -> set[int]:
    found = set()
    while ideal > 0:
        found.add(int(lattice.last_unit[ideal]))
        ideal = int(lattice.parent[ideal])
    return found


@njit(cache=True, nogil=True)
def _least_pending(first: int, head: Any, rank: Any, link: Any) -> float:
    least = np.inf
    for ideal in range(first, head.shape[0]):
        label = head[ideal]
        while label >= 0:
            least = min(least, rank[label])
            label = link[label]
    return least


@njit(cache=True, nogil=True)
def _expand(  # type: ignore[no-untyped-def]
    flag, cutoff, tolerance, width, is_rationed, per_piece, per_unit, ration,
    edge_ptr, edge_unit, edge_target, slot_ptr, slot_unit, slot_tail, wait_ptr, waits, open_tail,
    host_time, host_ready, time, class_of_unit, class_bytes, limit, successor_ptr, tensor_producer, consumer_ptr,
    in_s, out_s, output_ptr, output, input_ptr, inputs,
    head, count, value, rank, spent, link, origin, label_ideal, on_host, counters,
):  # fmt: skip
    """Expand ideal after ideal until ``flag`` is set; return the first that is not done."""
    n_units, n_sorts = time.shape
    n_tensors = tensor_producer.shape[0]
    n_ideals, n_values = head.shape[0], value.shape[1]
    stamp = np.full(n_ideals, -1, dtype=np.int32)
    position = np.zeros(n_units, dtype=np.int64)
    inside = np.zeros(n_units, dtype=np.bool_)
    taken = np.zeros(class_bytes.shape[0], dtype=np.int64)
    reads = np.zeros(n_tensors, dtype=np.int64)  # members that read a tensor made outside
    left = np.zeros(n_tensors, dtype=np.int64)  # readers outside of a tensor made by a member
    at = np.zeros(n_units + 1, dtype=np.int64)
    added = np.zeros(n_units + 1, dtype=np.int64)
    cursor = np.zeros(n_units + 1, dtype=np.int64)
    used = np.zeros(n_units + 1)
    weight = np.zeros(n_units + 1)
    weight[0] = per_piece
    results = np.zeros(n_units + 1, dtype=np.int64)
    compute = np.zeros((n_units + 1, n_sorts))
    into, out = np.zeros_like(compute), np.zeros_like(compute)
    source = np.zeros(n_values, dtype=np.int64)
    fresh = np.empty(n_values)
    labels = np.empty(64, dtype=np.int64)
    for ideal in range(n_ideals):
        n_labels = 0
        label = head[ideal]
        while label >= 0:
            if n_labels == labels.shape[0]:
                longer = np.empty(2 * n_labels, dtype=np.int64)
                longer[:n_labels] = labels
                labels = longer
            labels[n_labels] = label
            n_labels += 1
            label = link[label]
        if n_labels == 0:
            continue
        here = slot_ptr[ideal + 1] - slot_ptr[ideal] + 1
        if n_labels > width:
            labels[:n_labels] = labels[:n_labels][np.argsort(rank[labels[:n_labels]], kind="mergesort")]
            keep = labels[width - 1]
            for i in range(width, n_labels):
                for s in range(here):
                    value[keep, s] = min(value[keep, s], value[labels[i], s])
                spent[keep] = min(spent[keep], spent[labels[i]])
            origin[keep] = _BLENDED
            counters[_BLENDS] = 1
            n_labels = width
        for s in range(slot_ptr[ideal], slot_ptr[ideal + 1]):
            position[slot_unit[s]] = s - slot_ptr[ideal] + 1
        start = np.empty((n_units + 1, n_labels))
        start[0] = 0.0
        depth = 0
        at[0] = ideal
        cursor[0] = edge_ptr[ideal]
        while depth >= 0:
            undo = cursor[depth] == edge_ptr[at[depth] + 1]
            if not undo:
                edge = cursor[depth]
                cursor[depth] += 1
                target = edge_target[edge]
                if stamp[target] == ideal:
                    continue
                stamp[target] = ideal
                counters[_VISITS] += 1
                if flag[0]:
                    return ideal
                u = edge_unit[edge]
                depth += 1
                added[depth] = u
                at[depth] = target
                cursor[depth] = edge_ptr[target]
                inside[u] = True
                c = class_of_unit[u]
                used[depth] = used[depth - 1] + (class_bytes[c] if taken[c] == 0 else 0.0)
                taken[c] += 1
                weight[depth] = weight[depth - 1] + per_unit[u]
                results[depth] = results[depth - 1] + (1 if successor_ptr[u] == successor_ptr[u + 1] else 0)
                for k in range(n_sorts):
                    compute[depth, k] = compute[depth - 1, k] + time[u, k]
                    into[depth, k] = into[depth - 1, k]
                    out[depth, k] = out[depth - 1, k]
                for i in range(n_labels):
                    start[depth, i] = start[depth - 1, i]
                for j in range(input_ptr[u], input_ptr[u + 1]):
                    t = inputs[j]
                    w = tensor_producer[t]
                    if w >= 0 and inside[w]:
                        left[t] -= 1
                        if left[t] == 0:
                            for k in range(n_sorts):
                                out[depth, k] -= out_s[t, k]
                        continue
                    if reads[t] == 0:
                        for k in range(n_sorts):
                            into[depth, k] += in_s[t, k]
                        if w >= 0:
                            for i in range(n_labels):
                                start[depth, i] = max(start[depth, i], value[labels[i], position[w]])
                    reads[t] += 1
                for j in range(output_ptr[u], output_ptr[u + 1]):
                    t = output[j]
                    left[t] = consumer_ptr[t + 1] - consumer_ptr[t]
                    for k in range(n_sorts):
                        out[depth, k] += out_s[t, k]

                piece_s, low = np.inf, np.inf
                for k in range(n_sorts):
                    if used[depth] <= limit[k]:
                        low = min(low, compute[depth, k] + into[depth, k])
                        piece_s = min(piece_s, compute[depth, k] + into[depth, k] + max(out[depth, k], 0.0))
                earliest = np.inf
                for i in range(n_labels):
                    earliest = min(earliest, start[depth, i])
                undo = earliest + low + open_tail[u] >= cutoff
                first_slot, n_slots = slot_ptr[target], slot_ptr[target + 1] - slot_ptr[target]
                for s in range(n_slots):
                    w = slot_unit[first_slot + s]
                    source[s + 1] = 0 if inside[w] else position[w]
                for choice in range(2):
                    is_host = choice == 1
                    if is_host and depth > 1:
                        break
                    took = host_time[u] if is_host else piece_s
                    if took == np.inf:
                        continue
                    for i in range(n_labels):
                        finish = start[depth, i]
                        if is_host:
                            finish = max(finish, host_ready[u])
                        finish += took
                        spends = spent[labels[i]] + (0.0 if is_host else weight[depth])
                        if finish >= cutoff or spends > ration:
                            continue
                        old = value[labels[i]]
                        fresh[0] = max(old[0], finish) if results[depth] > 0 else old[0]
                        for s in range(1, n_slots + 1):
                            fresh[s] = finish if source[s] == 0 else old[source[s]]
                        worth = fresh[0]
                        for s in range(n_slots):
                            slot = first_slot + s
                            least = np.inf
                            for j in range(wait_ptr[slot], wait_ptr[slot + 1]):
                                mask = waits[j]
                                latest = 0.0
                                for other in range(n_slots):
                                    if (mask >> np.uint64(other)) & np.uint64(1) != np.uint64(0):
                                        latest = max(latest, fresh[other + 1])
                                least = min(least, latest)
                            fresh[s + 1] = max(fresh[s + 1], least)
                            worth = max(worth, fresh[s + 1] + slot_tail[slot])
                        worth = max(worth, rank[labels[i]])
                        if worth >= cutoff:
                            continue
                        # Drop the new label, or the old ones, where one is nowhere earlier than the other.
                        dominated = False
                        before, other_label = -1, head[target]
                        while other_label >= 0:
                            following = link[other_label]
                            no_later, no_earlier = True, True
                            for s in range(n_slots + 1):
                                if value[other_label, s] > fresh[s] + tolerance:
                                    no_later = False
                                if value[other_label, s] < fresh[s]:
                                    no_earlier = False
                            if spent[other_label] > spends and (is_rationed or no_earlier):
                                no_later = False
                            if spent[other_label] < spends and is_rationed:
                                no_earlier = False
                            # A blended label is earlier than its rank tells: the rank is not that of what it replaces.
                            if counters[_BLENDS] and (no_later or no_earlier):
                                worth = min(worth, rank[other_label])
                                rank[other_label] = worth
                            if no_later:
                                dominated = True
                                break
                            if no_earlier:
                                if before < 0:
                                    head[target] = following
                                else:
                                    link[before] = following
                                count[target] -= 1
                                link[other_label] = counters[_FREE]
                                counters[_FREE] = other_label
                                if count[target] > 0:
                                    counters[_SPARE] += 1
                            else:
                                before = other_label
                            other_label = following
                        if dominated:
                            continue
                        is_spare = count[target] > 0
                        if is_spare and counters[_SPARE] <= 0:
                            # No room: the newest label of the ideal stands for both.
                            newest = head[target]
                            for s in range(n_slots + 1):
                                value[newest, s] = min(value[newest, s], fresh[s])
                            rank[newest] = min(rank[newest], worth)
                            spent[newest] = min(spent[newest], spends)
                            origin[newest] = _BLENDED
                            counters[_BLENDS] = 1
                            continue
                        if is_spare:
                            counters[_SPARE] -= 1
                        if counters[_FREE] >= 0:
                            new = counters[_FREE]
                            counters[_FREE] = link[new]
                        else:
                            new = counters[_USED]
                            counters[_USED] += 1
                        for s in range(n_slots + 1):
                            value[new, s] = fresh[s]
                        rank[new] = worth
                        spent[new] = spends
                        origin[new] = labels[i]
                        label_ideal[new] = target
                        on_host[new] = is_host
                        link[new] = head[target]
                        head[target] = new
                        count[target] += 1
            if undo:
                if depth > 0:
                    u = added[depth]
                    inside[u] = False
                    taken[class_of_unit[u]] -= 1
                    for j in range(input_ptr[u], input_ptr[u + 1]):
                        t = inputs[j]
                        w = tensor_producer[t]
                        if w >= 0 and inside[w]:
                            left[t] += 1
                        else:
                            reads[t] -= 1
                depth -= 1
    return n_ideals
