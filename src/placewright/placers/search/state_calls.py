"""A judge for ``calls`` that follows small changes of one placement: only what a change touches is worked out again.

It follows the rules of :mod:`placewright.placers.judges.calls` (a test compares the two). A change is noted while it
is made, so that it can be taken back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.placers.search.state_overlap import lowest_bit, pop, push
from placewright.placers.search.view_calls import (
    DURATION,
    FINISH,
    GROUPS,
    LEVELS,
    NEW_TOP,
    NEW_VALUE,
    OPS,
    REBUILT,
    STAMP,
    START,
    TOP,
    VALUE,
    CallsEngine,
    find_tails,
    group_of,
    join_group,
    leave_group,
    level_of,
    rebuild,
)
from placewright.problems import Arrays

_SLACK = 1 + 1e-9  # sums in another order differ in the last digits; what is accepted must not be cut off
_ONE, _LOW6, _ZERO = np.uint64(1), np.int64(63), np.uint64(0)


@njit(cache=True, nogil=True)
def change(
    a: Arrays, k: CallsEngine, device: Any, staged: Any, unit_ptr: Any, unit_op: Any, limit_s: float, is_exact: bool
) -> float:
    """The value when the ops of the ``staged`` units are where ``device`` says; infinite if it exceeds ``limit_s``.

    Unless ``is_exact`` it is also infinite where a group ends so late that what waits for it at present would exceed
    the limit. That spares most of the work and is mostly right, but the change may have shortened what waits.

    Afterwards :func:`keep` the change or :func:`undo` it.
    """
    if k.values[VALUE] == np.inf:
        return rebuild(a, k, device)  # there is nothing to start from
    k.counts[REBUILT] = 0
    k.counts[STAMP] += 1
    _find_moved(k, device, staged, unit_ptr, unit_op)
    if k.counts[OPS] == 1 and not is_exact and _least_end_s(a, k, device, k.old_op[0, 0]) > limit_s * _SLACK:
        k.counts[LEVELS] = k.counts[OPS] = k.counts[GROUPS] = 0
        return np.inf
    _change_levels(a, k, device)
    _change_groups(a, k, device)
    value = _change_times(a, k, limit_s * _SLACK, is_exact)
    k.values[NEW_VALUE] = value
    return value


@njit(cache=True, nogil=True)
def _find_moved(k: CallsEngine, device: Any, staged: Any, unit_ptr: Any, unit_op: Any) -> None:
    at, op_seen, old_op, stamp, n_moved = k.at, k.op_seen, k.old_op, k.counts[STAMP], 0
    for s in range(staged.shape[0]):
        for i in range(unit_ptr[staged[s]], unit_ptr[staged[s] + 1]):
            v = unit_op[i]
            if device[v] != at[v] and op_seen[v] != stamp:
                op_seen[v] = stamp
                old_op[n_moved, 0] = v
                n_moved += 1
    k.counts[OPS] = n_moved


@njit(cache=True, nogil=True)
def _least_end_s(a: Arrays, k: CallsEngine, device: Any, v: int) -> float:
    """When everything ends at the earliest with one op moved, as far as its neighbours and what follows them tell."""
    input_ptr, input_tensor, tensor_producer, tensor_ptr = a.input_ptr, a.input_tensor, a.tensor_producer, a.tensor_ptr
    consumer_ptr, consumer_op, copy_s, is_host = a.consumer_ptr, a.consumer_op, a.copy_s, a.is_host
    group, times_s, tail_s, at, first = k.group, k.times_s, k.tail_s, k.at, k.first
    s, d, n, n_links = at[v], device[v], at.shape[0], copy_s.shape[1]
    copies_s = 0.0  # all that may be spared
    for i in range(input_ptr[v], input_ptr[v + 1]):
        for link in range(n_links):
            copies_s += copy_s[input_tensor[i], link]
    for t in range(tensor_ptr[v], tensor_ptr[v + 1]):
        for link in range(n_links):
            copies_s += copy_s[t, link]
    took_s, start_s, behind_s, joined = a.op_time_s[v, a.device_kind[d]], 0.0, 0.0, -1
    if not is_host[d]:
        level = level_of(input_ptr, input_tensor, tensor_producer, device, k.level[d], v, d)
        joined = n + d * ((first.shape[0] - n) // a.device_kind.shape[0]) + level
        if first[joined] >= 0:
            start_s, behind_s = times_s[joined, START], tail_s[joined]
            took_s += max(0.0, times_s[joined, DURATION] - copies_s)
    left_s = 0.0 if is_host[s] else a.op_time_s[v, a.device_kind[s]] + copies_s
    for i in range(input_ptr[v], input_ptr[v + 1]):
        h = group[tensor_producer[input_tensor[i]]]
        if h != joined:
            start_s = max(start_s, times_s[h, FINISH] - (left_s if h == group[v] else 0.0))
    for e in range(consumer_ptr[tensor_ptr[v]], consumer_ptr[tensor_ptr[v + 1]]):
        w = consumer_op[e]
        h = group[w]
        if h != group[v] and at[w] != d:
            behind_s = max(behind_s, times_s[h, DURATION] - copies_s + tail_s[h])
    return start_s + took_s + behind_s


@njit(cache=True, nogil=True)
def _change_levels(a: Arrays, k: CallsEngine, device: Any) -> None:
    """Follow levels from the ops that moved to where they are what they were; ops whose piece changes are noted."""
    input_ptr, input_tensor, tensor_producer = a.input_ptr, a.input_tensor, a.tensor_producer
    tensor_ptr, consumer_ptr, consumer_op = a.tensor_ptr, a.consumer_ptr, a.consumer_op
    at, todo, op_seen, old_op, old_level = k.at, k.todo, k.op_seen, k.old_op, k.old_level
    n, stamp, n_moved = device.shape[0], k.counts[STAMP], k.counts[OPS]
    n_ops, n_levels = n_moved, 0
    for d in range(a.device_kind.shape[0]):
        if a.is_host[d]:
            continue
        word, last = todo.shape[0], -1
        for i in range(n_moved):
            v = old_op[i, 0]
            if at[v] == d or device[v] == d:
                todo[v >> 6] |= _ONE << np.uint64(v & _LOW6)
                word, last = min(word, v >> 6), max(last, v >> 6)
        level = k.level[d]
        while word <= last:
            if todo[word] == _ZERO:
                word += 1
                continue
            v = (word << 6) + lowest_bit(todo[word])
            todo[word] &= todo[word] - _ONE
            now = level_of(input_ptr, input_tensor, tensor_producer, device, level, v, d)
            inside = device[v] == d
            if now != level[v]:
                old_level[n_levels, 0], old_level[n_levels, 1] = d * n + v, level[v]
                n_levels += 1
                level[v] = now
                if inside and op_seen[v] != stamp:
                    op_seen[v] = stamp
                    old_op[n_ops, 0] = v
                    n_ops += 1
            elif (at[v] == d) == inside:
                continue
            for e in range(consumer_ptr[tensor_ptr[v]], consumer_ptr[tensor_ptr[v + 1]]):
                w = consumer_op[e]
                todo[w >> 6] |= _ONE << np.uint64(w & _LOW6)
                last = max(last, w >> 6)
    k.counts[LEVELS], k.counts[OPS] = n_levels, n_ops


@njit(cache=True, nogil=True)
def _note(group_seen: Any, old_group: Any, old_times_s: Any, times_s: Any, counts: Any, g: int) -> None:
    """Keep a group's times as they were before the change."""
    if group_seen[g] != counts[STAMP]:
        group_seen[g] = counts[STAMP]
        i = counts[GROUPS]
        old_group[i] = g
        for j in range(3):
            old_times_s[i, j] = times_s[g, j]
        counts[GROUPS] = i + 1


@njit(cache=True, nogil=True, inline="always")
def _charge(
    tensor_producer: Any, consumer_ptr: Any, consumer_op: Any, copy_s: Any, is_host: Any, direct: Any, to_host: Any,
    from_host: Any, group: Any, at: Any, paid_by: Any, sent_to: Any, times_s: Any, group_seen: Any, old_group: Any,
    old_times_s: Any, counts: Any, t: int, mark: int, sign: float,
) -> None:  # fmt: skip
    """Add the copies of a tensor to the groups that pay for them, or with ``sign`` -1 take them away."""
    u = tensor_producer[t]
    s, g, out_paid = at[u], group[u], False
    for e in range(consumer_ptr[t], consumer_ptr[t + 1]):
        v = consumer_op[e]
        d, h = at[v], group[v]
        if h == g:
            continue
        link = direct[s, d] if s != d else -1
        if not is_host[s]:
            took = 0.0
            if link < 0 and not out_paid:
                out_paid = True
                took = copy_s[t, to_host[s]] if to_host[s] >= 0 else 0.0
            elif link >= 0 and is_host[d] and sent_to[d] != mark:
                sent_to[d] = mark
                took = copy_s[t, link]
            if took != 0.0:
                _note(group_seen, old_group, old_times_s, times_s, counts, g)
                times_s[g, DURATION] += sign * took
        if not is_host[d] and paid_by[h] != mark:
            paid_by[h] = mark
            link = link if link >= 0 else from_host[d]
            if link >= 0:
                _note(group_seen, old_group, old_times_s, times_s, counts, h)
                times_s[h, DURATION] += sign * copy_s[t, link]


@njit(cache=True, nogil=True)
def _change_groups(a: Arrays, k: CallsEngine, device: Any) -> None:
    """Put ops into their new groups, and what they and their copies take with them."""
    input_ptr, input_tensor, tensor_ptr, op_time_s = a.input_ptr, a.input_tensor, a.tensor_ptr, a.op_time_s
    tensor_producer, consumer_ptr, consumer_op, copy_s = a.tensor_producer, a.consumer_ptr, a.consumer_op, a.copy_s
    is_host, direct, to_host, from_host, device_kind = a.is_host, a.direct, a.to_host, a.from_host, a.device_kind
    group, at, first, following, previous, level = k.group, k.at, k.first, k.following, k.previous, k.level
    times_s, old_op, tensors, tensor_seen, counts = k.times_s, k.old_op, k.tensors, k.tensor_seen, k.counts
    paid_by, sent_to, group_seen, old_group, old_times_s = (
        k.paid_by,
        k.sent_to,
        k.group_seen,
        k.old_group,
        k.old_times_s,
    )
    stamp, n_ops, n_tensors, n = counts[STAMP], counts[OPS], 0, device.shape[0]
    per_device = (first.shape[0] - n) // device_kind.shape[0]
    counts[GROUPS] = 0
    for i in range(n_ops):
        v = old_op[i, 0]
        for j in range(input_ptr[v], input_ptr[v + 1]):
            t = input_tensor[j]
            if tensor_seen[t] != stamp:
                tensor_seen[t] = stamp
                tensors[n_tensors] = t
                n_tensors += 1
        for t in range(tensor_ptr[v], tensor_ptr[v + 1]):
            if tensor_seen[t] != stamp:
                tensor_seen[t] = stamp
                tensors[n_tensors] = t
                n_tensors += 1
    for moved in range(2):
        if moved:
            for i in range(n_ops):
                v = old_op[i, 0]
                g, d = group[v], at[v]
                old_op[i, 1], old_op[i, 2] = d, g
                _note(group_seen, old_group, old_times_s, times_s, counts, g)
                times_s[g, DURATION] -= op_time_s[v, device_kind[d]]
                leave_group(first, following, previous, group, v)
                d = device[v]
                h = group_of(n, per_device, is_host, level, v, d)
                _note(group_seen, old_group, old_times_s, times_s, counts, h)
                if first[h] < 0:
                    times_s[h, DURATION] = 0.0
                    times_s[h, START] = times_s[g, START]
                times_s[h, DURATION] += op_time_s[v, device_kind[d]]
                at[v] = d
                join_group(first, following, previous, group, v, h)
        for i in range(n_tensors):
            t = tensors[i]
            _charge(
                tensor_producer, consumer_ptr, consumer_op, copy_s, is_host, direct, to_host, from_host, group, at,
                paid_by, sent_to, times_s, group_seen, old_group, old_times_s, counts, t,
                (2 * stamp + moved) * tensor_seen.shape[0] + t, 1.0 if moved else -1.0,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _change_times(a: Arrays, k: CallsEngine, limit_s: float, is_exact: bool) -> float:
    """Follow the times from the groups that changed to where they are what they were."""
    input_ptr, input_tensor, tensor_producer = a.input_ptr, a.input_tensor, a.tensor_producer
    tensor_ptr, consumer_ptr, consumer_op = a.tensor_ptr, a.consumer_ptr, a.consumer_op
    group, first, following, times_s, counts = k.group, k.first, k.following, k.times_s, k.counts
    heap, heap_s, in_heap, old_op, tail_s = k.heap, k.heap_s, k.in_heap, k.old_op, k.tail_s
    changed, stamp, size, looks, unsettled = k.group_changed, counts[STAMP], 0, 0, counts[GROUPS]
    for i in range(counts[GROUPS]):
        g = k.old_group[i]
        in_heap[g] = True
        changed[g] = stamp
        push(heap, heap_s, size, g, times_s[g, START])
        size += 1
    for i in range(counts[OPS]):
        u = old_op[i, 0]
        for e in range(consumer_ptr[tensor_ptr[u]], consumer_ptr[tensor_ptr[u + 1]]):
            g = group[consumer_op[e]]
            if not in_heap[g]:
                in_heap[g] = True
                push(heap, heap_s, size, g, times_s[g, START])
                size += 1
    while size > 0:
        g = pop(heap, heap_s, size)
        size -= 1
        in_heap[g] = False
        looks += 1
        unsettled -= changed[g] == stamp
        if first[g] < 0:
            continue
        start_s = 0.0
        v = first[g]
        while v >= 0:
            for i in range(input_ptr[v], input_ptr[v + 1]):
                h = group[tensor_producer[input_tensor[i]]]
                if h != g:
                    start_s = max(start_s, times_s[h, FINISH])
            v = following[v]
        before_s, finish_s = times_s[g, FINISH], start_s + times_s[g, DURATION]
        if start_s != times_s[g, START] or finish_s != before_s:
            _note(k.group_seen, k.old_group, k.old_times_s, times_s, counts, g)
            times_s[g, START] = start_s
            times_s[g, FINISH] = finish_s
        if finish_s == before_s:
            continue
        behind_s = tail_s[g] if changed[g] != stamp and not is_exact else 0.0
        is_late = unsettled == 0 and finish_s + behind_s > limit_s
        # Groups that wait for each other in a circle get later and later.
        if is_late or finish_s > 4.0 * limit_s or looks > 4 * first.shape[0]:
            for i in range(size):
                in_heap[heap[i]] = False
            return np.inf
        v = first[g]
        while v >= 0:
            for e in range(consumer_ptr[tensor_ptr[v]], consumer_ptr[tensor_ptr[v + 1]]):
                h = group[consumer_op[e]]
                known_s = times_s[h, START]
                if h != g and not in_heap[h] and (finish_s > known_s or before_s >= known_s):
                    in_heap[h] = True
                    unsettled += changed[h] == stamp
                    push(heap, heap_s, size, h, max(known_s, finish_s))
                    size += 1
            v = following[v]
    top, latest_s = counts[TOP], -1.0
    for i in range(counts[GROUPS]):
        g = k.old_group[i]
        if first[g] >= 0 and times_s[g, FINISH] > latest_s:
            top, latest_s = first[g], times_s[g, FINISH]
    # What did not change ends no later than the value of before, and then only if its last group did not change.
    if latest_s < k.values[VALUE]:
        top = counts[TOP]
        if times_s[group[top], FINISH] != k.values[VALUE]:
            for v in k.sinks:
                if times_s[group[v], FINISH] > times_s[group[top], FINISH]:
                    top = v
    counts[NEW_TOP] = top
    return times_s[group[top], FINISH]


@njit(cache=True, nogil=True)
def keep(a: Arrays, k: CallsEngine) -> None:
    """The change is now part of the present placement."""
    if not k.counts[REBUILT]:
        find_tails(a, k)
    k.values[VALUE] = k.values[NEW_VALUE]
    k.counts[TOP] = k.counts[NEW_TOP]


@njit(cache=True, nogil=True)
def undo(a: Arrays, k: CallsEngine, device: Any) -> None:
    """Take the change back; ``device`` is what it was before."""
    if k.counts[REBUILT]:
        rebuild(a, k, device)
        return
    level = k.level.reshape(k.level.size)
    for i in range(k.counts[LEVELS]):
        level[k.old_level[i, 0]] = k.old_level[i, 1]
    for i in range(k.counts[OPS]):
        leave_group(k.first, k.following, k.previous, k.group, k.old_op[i, 0])
    for i in range(k.counts[OPS]):
        k.at[k.old_op[i, 0]] = k.old_op[i, 1]
        join_group(k.first, k.following, k.previous, k.group, k.old_op[i, 0], k.old_op[i, 2])
    for i in range(k.counts[GROUPS]):
        for j in range(3):
            k.times_s[k.old_group[i], j] = k.old_times_s[i, j]
