"""What a search knows of the calls of its present placement."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.placers.judges.calls import find_pieces, run_groups
from placewright.problems import Arrays

DURATION, START, FINISH = range(3)
LEVELS, OPS, GROUPS, STAMP, TOP, NEW_TOP, REBUILT = range(7)
VALUE, NEW_VALUE = range(2)


class CallsEngine(NamedTuple):
    """The present placement with all its calls, and notes of the change under way.

    A group is an op on a host device (its number is the op's) or a piece of an accelerator.
    """

    at: IntArray  # [ops]: device
    level: IntArray  # [devices, ops]: number of the piece that an op is in or would follow
    group: IntArray  # [ops]
    first: IntArray  # [groups]: an op of the group, -1 if it has none
    following: IntArray  # [ops]: the next op of the same group, -1 at the end
    previous: IntArray  # [ops]
    times_s: FloatArray  # [groups, 3]: seconds of copies and compute together, start, finish
    sinks: IntArray  # ops that nothing reads from
    order: IntArray  # [ops]: by the start of their groups, nearly always
    tail_s: FloatArray  # [groups]: time from a group's finish to the end of what waits for it
    todo: NDArray[np.uint64]  # bit set of ops whose level is to be looked at
    heap: IntArray  # [groups]: groups whose times are to be looked at, by
    heap_s: FloatArray  # when they may start
    in_heap: BoolArray  # [groups]
    op_seen: NDArray[np.int64]  # [ops]: number of the last change that concerned it
    tensor_seen: NDArray[np.int64]  # [tensors]
    group_seen: NDArray[np.int64]  # [groups]
    group_changed: NDArray[np.int64]  # [groups]: number of the last change that gave it other ops or copies
    paid_by: NDArray[np.int64]  # [groups]: number of the last tensor's count in which it has paid
    sent_to: NDArray[np.int64]  # [devices]
    tensors: IntArray  # [tensors]: those that the change concerns
    old_level: NDArray[np.int64]  # [devices * ops, 2]: index and level before the change
    old_op: IntArray  # [ops, 3]: op, device and group before
    old_group: IntArray  # [groups]
    old_times_s: FloatArray  # [groups, 3]
    counts: NDArray[np.int64]  # [8]
    values: FloatArray  # [2]: of the present placement, and of the one with the change


def new_calls_engine(a: Arrays, n_ops: int) -> CallsEngine:
    """Allocate; :func:`rebuild` fills in. One for no ops takes no room."""
    n, n_devices, n_tensors = (n_ops, len(a.device_kind), len(a.tensor_producer)) if n_ops else (0, 0, 0)
    per_device = (_longest_path(a.input_ptr, a.input_tensor, a.tensor_producer) if n_ops else 0) + 2
    n_groups = n + n_devices * per_device
    many = [np.zeros(k, dtype=np.int64) for k in (n, n_tensors, n_groups, n_groups, n_devices, n_groups)]
    reads = a.consumer_ptr[a.tensor_ptr[1:]] - a.consumer_ptr[a.tensor_ptr[:-1]]
    ints = np.int32
    return CallsEngine(
        at=np.zeros(n, ints), level=np.zeros((n_devices, n), ints), group=np.zeros(n, ints),
        first=np.full(n_groups, -1, ints), following=np.zeros(n, ints), previous=np.zeros(n, ints),
        times_s=np.zeros((n_groups, 3)), sinks=np.flatnonzero(reads == 0).astype(ints),
        order=np.arange(n, dtype=ints), tail_s=np.zeros(n_groups),
        todo=np.zeros(n // 64 + 1, np.uint64), heap=np.zeros(n_groups, ints), heap_s=np.zeros(n_groups),
        in_heap=np.zeros(n_groups, np.bool_), op_seen=many[0], tensor_seen=many[1], group_seen=many[2],
        group_changed=many[5], paid_by=many[3], sent_to=many[4], tensors=np.zeros(n_tensors, ints),
        old_level=np.zeros((n_devices * n, 2), np.int64), old_op=np.zeros((n, 3), ints),
        old_group=np.zeros(n_groups, ints), old_times_s=np.zeros((n_groups, 3)), counts=np.zeros(8, np.int64),
        values=np.zeros(2),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _longest_path(input_ptr: Any, input_tensor: Any, tensor_producer: Any) -> int:
    """In ops: no device has more pieces."""
    n = input_ptr.shape[0] - 1
    length = np.ones(n, dtype=np.int32)
    for v in range(n):
        for i in range(input_ptr[v], input_ptr[v + 1]):
            length[v] = max(length[v], length[tensor_producer[input_tensor[i]]] + 1)
    return int(length.max())


@njit(cache=True, nogil=True)
def group_of(n_ops: int, per_device: int, is_host: Any, level: Any, v: int, d: int) -> int:
    """The number of the group that op ``v`` is in on device ``d``."""
    return v if is_host[d] else n_ops + d * per_device + level[d, v]


@njit(cache=True, nogil=True)
def join_group(first: Any, following: Any, previous: Any, group: Any, v: int, g: int) -> None:
    """Make an op that is in no group part of one."""
    group[v] = g
    following[v], previous[v] = first[g], -1
    if first[g] >= 0:
        previous[first[g]] = v
    first[g] = v


@njit(cache=True, nogil=True)
def leave_group(first: Any, following: Any, previous: Any, group: Any, v: int) -> None:
    """Take an op out of its group."""
    if previous[v] >= 0:
        following[previous[v]] = following[v]
    else:
        first[group[v]] = following[v]
    if following[v] >= 0:
        previous[following[v]] = previous[v]


@njit(cache=True, nogil=True)
def level_of(input_ptr: Any, input_tensor: Any, tensor_producer: Any, device: Any, level: Any, v: int, d: int) -> int:
    """Number of the piece of device ``d`` that op ``v`` is in or would follow, by the ``level`` of ops before it."""
    inside = device[v] == d
    best = 1 if inside else 0
    for i in range(input_ptr[v], input_ptr[v + 1]):
        u = tensor_producer[input_tensor[i]]
        best = max(best, level[u] + 1 if inside and device[u] != d else level[u])
    return best


@njit(cache=True, nogil=True)
def rebuild(a: Arrays, k: CallsEngine, device: Any) -> float:
    """Work everything out from the beginning; return the value."""
    n, n_devices = device.shape[0], a.device_kind.shape[0]
    per_device = (k.first.shape[0] - n) // n_devices
    k.at[:] = device
    for d in range(n_devices):
        if a.is_host[d]:
            continue
        for v in range(n):
            k.level[d, v] = level_of(a.input_ptr, a.input_tensor, a.tensor_producer, device, k.level[d], v, d)
    piece = np.empty(n, dtype=np.int32)
    n_pieces = find_pieces(a, device, piece)
    start_s, in_s, compute_s, out_s = np.empty(n_pieces), np.empty(n_pieces), np.empty(n_pieces), np.empty(n_pieces)
    value = run_groups(a, device, piece, n_pieces, start_s, in_s, compute_s, out_s)
    k.first[:] = -1
    for v in range(n):
        g = group_of(n, per_device, a.is_host, k.level, v, device[v])
        join_group(k.first, k.following, k.previous, k.group, v, g)
        p = piece[v]
        k.times_s[g, DURATION] = in_s[p] + compute_s[p] + out_s[p]
        k.times_s[g, START] = start_s[p]
        k.times_s[g, FINISH] = start_s[p] + in_s[p] + compute_s[p] + out_s[p]  # to the last digit what others wait for
    k.counts[TOP] = k.sinks[0]
    for v in k.sinks:
        if k.times_s[k.group[v], FINISH] > k.times_s[k.group[k.counts[TOP]], FINISH]:
            k.counts[TOP] = v
    k.counts[REBUILT] = 1
    k.values[VALUE] = k.values[NEW_VALUE] = value
    k.counts[NEW_TOP] = k.counts[TOP]
    find_tails(a, k)
    return value


@njit(cache=True, nogil=True)
def find_tails(a: Arrays, k: CallsEngine) -> None:
    """How much time what waits for a group takes, in the present placement."""
    tensor_ptr, consumer_ptr, consumer_op = a.tensor_ptr, a.consumer_ptr, a.consumer_op
    order, group, times_s, tail_s = k.order, k.group, k.times_s, k.tail_s
    for i in range(1, order.shape[0]):  # little has changed since they were sorted last
        v, j = order[i], i - 1
        start_s = times_s[group[v], START]
        while j >= 0 and times_s[group[order[j]], START] > start_s:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = v
    for i in range(order.shape[0]):
        tail_s[group[i]] = 0.0
    for i in range(order.shape[0] - 1, -1, -1):
        u = order[i]
        g = group[u]
        behind_s = tail_s[g]
        for e in range(consumer_ptr[tensor_ptr[u]], consumer_ptr[tensor_ptr[u + 1]]):
            h = group[consumer_op[e]]
            if h != g:
                behind_s = max(behind_s, times_s[h, DURATION] + tail_s[h])
        tail_s[g] = behind_s


@njit(cache=True, nogil=True)
def critical_ops(a: Arrays, k: CallsEngine, critical: Any) -> int:
    """Fill ``critical`` with the ops of the groups that wait for one another, from the last one back; how many."""
    count, g = 0, k.group[k.counts[TOP]]
    if k.values[VALUE] == np.inf:
        return 0
    while g >= 0:
        before, before_s = -1, -1.0
        v = k.first[g]
        while v >= 0 and count < critical.shape[0]:
            critical[count] = v
            count += 1
            for i in range(a.input_ptr[v], a.input_ptr[v + 1]):
                h = k.group[a.tensor_producer[a.input_tensor[i]]]
                if h != g and k.times_s[h, FINISH] > before_s:
                    before, before_s = h, k.times_s[h, FINISH]
            v = k.following[v]
        g = before if count < critical.shape[0] else -1
    return count
