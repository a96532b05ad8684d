"""Execution model ``pipeline``: seconds per sample of a full pipeline, the largest load of any device.

The load of a device is the time of its ops plus, or at most (``overlapped``), the time of its copies. Through host
memory a device pays once to send a tensor out, however many devices want it, and once to bring one in, however many
of its ops read it. A direct copy is paid per pair of devices, by each end that the link keeps busy. Copies count as
forward or backward by the op that produced the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.problems import Arrays


@njit(cache=True, nogil=True)
def loads(a: Arrays, device: Any, compute_s: Any, copies_s: Any, last: Any) -> None:
    """Fill ``compute_s`` and ``copies_s`` [devices, 2].

    Forward in column 0, backward in 1. ``last`` [devices] is scratch.
    """
    direct, to_host, from_host, busy, copy_s = a.direct, a.to_host, a.from_host, a.link_busy, a.copy_s
    compute_s[:] = 0.0
    copies_s[:] = 0.0
    last[:] = -1
    for v in range(device.shape[0]):
        compute_s[device[v], 1 if a.is_backward[v] else 0] += a.op_time_s[v, a.device_kind[device[v]]]
    for t in range(a.tensor_producer.shape[0]):
        u = a.tensor_producer[t]
        s = device[u]
        column = 1 if a.is_backward[u] else 0
        in_host = False
        last[s] = t
        for e in range(a.consumer_ptr[t], a.consumer_ptr[t + 1]):
            d = device[a.consumer_op[e]]
            if last[d] == t:
                continue
            last[d] = t
            link = direct[s, d]
            if link >= 0:
                if busy[link] & 1:
                    copies_s[s, column] += copy_s[t, link]
                if busy[link] & 2:
                    copies_s[d, column] += copy_s[t, link]
            else:
                if not in_host and to_host[s] >= 0:
                    copies_s[s, column] += copy_s[t, to_host[s]]
                in_host = True
                if from_host[d] >= 0:
                    copies_s[d, column] += copy_s[t, from_host[d]]


@njit(cache=True, nogil=True)
def device_load(compute_s: Any, copies_s: Any, overlapped: bool) -> float:
    """One device's load from its compute and copy seconds."""
    return max(compute_s, copies_s) if overlapped else compute_s + copies_s


@njit(cache=True, nogil=True)
def max_load(compute_s: Any, copies_s: Any, overlapped: bool, split: bool) -> float:
    """The value: max(FW + BW), or with ``split`` max FW + max BW."""
    best, forward, backward = 0.0, 0.0, 0.0
    for d in range(compute_s.shape[0]):
        c, k = compute_s[d, 0] + compute_s[d, 1], copies_s[d, 0] + copies_s[d, 1]
        best = max(best, device_load(c, k, overlapped))
        forward = max(forward, device_load(compute_s[d, 0], copies_s[d, 0], overlapped))
        backward = max(backward, device_load(compute_s[d, 1], copies_s[d, 1], overlapped))
    return forward + backward if split else best


@njit(cache=True, nogil=True)
def stages_form_chain(order_source: Any, order_target: Any, device: Any, n_devices: int) -> bool:
    """True if the devices can be ordered so that no edge runs backwards: the stages are a chain of ideals."""
    follows = np.zeros((n_devices, n_devices), dtype=np.bool_)
    for e in range(order_source.shape[0]):
        s, d = device[order_source[e]], device[order_target[e]]
        if s != d:
            follows[s, d] = True
    done = np.zeros(n_devices, dtype=np.bool_)
    for _ in range(n_devices):
        for d in range(n_devices):
            if done[d]:
                continue
            free = True
            for s in range(n_devices):
                if follows[s, d] and not done[s]:
                    free = False
            done[d] = free
    return bool(done.all())
