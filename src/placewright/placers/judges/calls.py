"""Execution model ``calls``: an accelerator's subgraph is one call that waits, copies in, computes and copies out.

Each accelerator's set of ops is cut into contiguous pieces: an op's piece number is one more than the largest number
of times that a path to it has left the set. A piece starts when all ops outside that it reads from have finished;
then come, one after another, its copies in, its ops, and its copies out; every op of the piece finishes at the end.
Ops on host devices run as one pool of unlimited width, each as soon as its inputs have finished, and copy nothing.
Through host memory a piece pays once per tensor in and once per tensor out, also between two pieces of one
accelerator. A direct copy between two accelerators is paid by the receiving piece, one from an accelerator to a host
device by the sending piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.problems import Arrays


@njit(cache=True, nogil=True)
def find_pieces(a: Arrays, device: Any, group: Any) -> int:
    """Fill ``group`` [ops].

    Host ops are groups of their own, accelerator ops share their piece's; return the number.
    """
    n_ops, n_devices = device.shape[0], a.device_kind.shape[0]
    level = np.empty(n_ops, dtype=np.int32)
    number = np.empty(n_ops + 1, dtype=np.int32)
    n_groups = 0
    for v in range(n_ops):
        if a.is_host[device[v]]:
            group[v] = n_groups
            n_groups += 1
    for d in range(n_devices):
        if a.is_host[d]:
            continue
        number[:] = -1
        for v in range(n_ops):
            inside = device[v] == d
            best = 1 if inside else 0
            for i in range(a.input_ptr[v], a.input_ptr[v + 1]):
                u = a.tensor_producer[a.input_tensor[i]]
                best = max(best, level[u] + 1 if inside and device[u] != d else level[u])
            level[v] = best
            if inside:
                if number[best] < 0:
                    number[best] = n_groups
                    n_groups += 1
                group[v] = number[best]
    return n_groups


@njit(cache=True, nogil=True)
def run_groups(
    a: Arrays, device: Any, group: Any, n_groups: int, start_s: Any, in_s: Any, compute_s: Any, out_s: Any
) -> float:
    """Schedule the groups; return the value, infinite if they wait for each other in a circle.

    Per group: ``start_s``, then seconds of copies in, compute and copies out.
    """
    n_ops = device.shape[0]
    waiting = np.zeros(n_groups, dtype=np.int32)
    ptr = np.zeros(n_groups + 1, dtype=np.int32)
    members = np.empty(n_ops, dtype=np.int32)
    start_s[:] = 0.0
    in_s[:] = 0.0
    compute_s[:] = 0.0
    out_s[:] = 0.0
    for v in range(n_ops):
        ptr[group[v] + 1] += 1
        compute_s[group[v]] += a.op_time_s[v, a.device_kind[device[v]]]
        for i in range(a.input_ptr[v], a.input_ptr[v + 1]):
            if group[a.tensor_producer[a.input_tensor[i]]] != group[v]:
                waiting[group[v]] += 1
    for g in range(n_groups):
        ptr[g + 1] += ptr[g]
    fill = ptr[:-1].copy()
    for v in range(n_ops):
        members[fill[group[v]]] = v
        fill[group[v]] += 1
    _charge_copies(a, device, group, n_groups, in_s, out_s)

    queue = np.empty(n_groups, dtype=np.int32)
    head, tail = 0, 0
    for g in range(n_groups):
        if waiting[g] == 0:
            queue[tail] = g
            tail += 1
    value = 0.0
    while head < tail:
        g = queue[head]
        head += 1
        finish = start_s[g] + in_s[g] + compute_s[g] + out_s[g]
        value = max(value, finish)
        for m in range(ptr[g], ptr[g + 1]):
            u = members[m]
            for t in range(a.tensor_ptr[u], a.tensor_ptr[u + 1]):
                for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
                    h = group[a.consumer_op[e]]
                    if h != g:
                        start_s[h] = max(start_s[h], finish)
                        waiting[h] -= 1
                        if waiting[h] == 0:
                            queue[tail] = h
                            tail += 1
    return value if tail == n_groups else np.inf


@njit(cache=True, nogil=True)
def _charge_copies(a: Arrays, device: Any, group: Any, n_groups: int, in_s: Any, out_s: Any) -> None:
    n_devices = a.device_kind.shape[0]
    paid_by = np.full(n_groups, -1, dtype=np.int64)
    sent_to = np.full(n_devices, -1, dtype=np.int64)
    for t in range(a.tensor_producer.shape[0]):
        u = a.tensor_producer[t]
        s, g = device[u], group[u]
        out_paid = False
        for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
            v = a.consumer_op[e]
            d, h = device[v], group[v]
            if h == g:
                continue
            link = a.direct[s, d] if s != d else -1
            if not a.is_host[s]:
                if link < 0 and not out_paid:
                    out_paid = True
                    if a.to_host[s] >= 0:
                        out_s[g] += a.copy_s[t, a.to_host[s]]
                elif link >= 0 and a.is_host[d] and sent_to[d] != t:
                    sent_to[d] = t
                    out_s[g] += a.copy_s[t, link]
            if not a.is_host[d] and paid_by[h] != t:
                paid_by[h] = t
                if link >= 0:
                    in_s[h] += a.copy_s[t, link]
                elif a.from_host[d] >= 0:
                    in_s[h] += a.copy_s[t, a.from_host[d]]
