"""How busy each device and each channel is, kept up to date while ops move.

No schedule is shorter than its busiest device or channel. A smooth maximum of these loads in the score lets a search
see progress where the value alone is flat.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import FloatArray, IntArray
from placewright.problems import Arrays

_MOST_CELLS = 20_000_000  # tensors x devices; beyond, loads are not kept


class Loads(NamedTuple):
    """Seconds of work of a placement; what is read of the problem is here too, so that kernels have one bundle."""

    busy_s: FloatArray  # [windows, devices + channels]
    window_of_op: IntArray  # [ops]: which part of the run an op belongs to; its copies belong there too
    readers: IntArray  # [tensors, devices]: ops on a device that read a tensor; empty where loads are not kept
    tensor_ptr: IntArray
    tensor_producer: IntArray
    input_ptr: IntArray
    input_tensor: IntArray
    copy_s: FloatArray
    direct: IntArray
    to_host: IntArray
    from_host: IntArray
    link_busy: Any
    send_channel: IntArray
    receive_channel: IntArray


def new_loads(a: Arrays, window_of_op: IntArray, are_kept: bool) -> Loads:
    """Allocate; :func:`count_loads` fills in."""
    n_devices, n_tensors = len(a.device_kind), len(a.tensor_producer)
    kept = are_kept and n_tensors * n_devices <= _MOST_CELLS
    return Loads(
        np.zeros((int(window_of_op.max()) + 1, 3 * n_devices)), window_of_op,
        np.zeros((n_tensors if kept else 0, n_devices), dtype=np.int32), a.tensor_ptr, a.tensor_producer,
        a.input_ptr, a.input_tensor, a.copy_s, a.direct, a.to_host, a.from_host, a.link_busy,
        a.send_channel, a.receive_channel,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def count_loads(loads: Loads, time_s: Any, device: Any) -> None:
    """Count from the beginning; ``time_s`` is [ops, devices]."""
    busy_s, readers, n_devices = loads.busy_s, loads.readers, time_s.shape[1]
    busy_s[:] = 0.0
    readers[:] = 0
    for v in range(device.shape[0]):
        busy_s[loads.window_of_op[v], device[v]] += time_s[v, device[v]]
    if readers.shape[0] == 0:
        return
    for v in range(device.shape[0]):
        for i in range(loads.input_ptr[v], loads.input_ptr[v + 1]):
            readers[loads.input_tensor[i], device[v]] += 1
    for t in range(readers.shape[0]):
        u = loads.tensor_producer[t]
        _add_copies(
            busy_s[loads.window_of_op[u]], readers, loads.copy_s, loads.direct, loads.to_host, loads.from_host,
            loads.link_busy, loads.send_channel, loads.receive_channel, n_devices, t, device[u], 1.0,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _add_copies(
    busy_s: Any, readers: Any, copy_s: Any, direct: Any, to_host: Any, from_host: Any, link_busy: Any,
    send_channel: Any, receive_channel: Any, n_devices: int, t: int, s: int, sign: float,
) -> None:  # fmt: skip
    """Add the copies of tensor ``t`` from device ``s`` to all its readers, or with ``sign`` -1 take them away."""
    in_host = False
    for d in range(n_devices):
        if d == s or readers[t, d] == 0:
            continue
        link = direct[s, d]
        if link >= 0:
            took = sign * copy_s[t, link]
            if link_busy[link] & 1:
                busy_s[n_devices + send_channel[s]] += took
            if link_busy[link] & 2:
                busy_s[n_devices + receive_channel[d]] += took
            continue
        if not in_host:
            in_host = True
            link = to_host[s]
            if link >= 0 and link_busy[link] & 1:
                busy_s[n_devices + send_channel[s]] += sign * copy_s[t, link]
        link = from_host[d]
        if link >= 0 and link_busy[link] & 2:
            busy_s[n_devices + receive_channel[d]] += sign * copy_s[t, link]


@njit(cache=True, nogil=True)
def move_op(loads: Loads, time_s: Any, device: Any, v: int, to: int) -> None:
    """Put an op on another device and keep the loads right."""
    at = device[v]
    device[v] = to
    window_of_op, readers, n_devices = loads.window_of_op, loads.readers, time_s.shape[1]
    here_s = loads.busy_s[window_of_op[v]]
    here_s[at] -= time_s[v, at]
    here_s[to] += time_s[v, to]
    if readers.shape[0] == 0:
        return
    copy_s, direct, to_host, from_host = loads.copy_s, loads.direct, loads.to_host, loads.from_host
    link_busy, send, receive = loads.link_busy, loads.send_channel, loads.receive_channel
    for i in range(loads.input_ptr[v], loads.input_ptr[v + 1]):
        t = loads.input_tensor[i]
        u = loads.tensor_producer[t]
        s, there_s = device[u], loads.busy_s[window_of_op[u]]
        _add_copies(
            there_s, readers, copy_s, direct, to_host, from_host, link_busy, send, receive, n_devices, t, s, -1.0
        )
        readers[t, at] -= 1
        readers[t, to] += 1
        _add_copies(
            there_s, readers, copy_s, direct, to_host, from_host, link_busy, send, receive, n_devices, t, s, 1.0
        )
    for t in range(loads.tensor_ptr[v], loads.tensor_ptr[v + 1]):
        _add_copies(
            here_s, readers, copy_s, direct, to_host, from_host, link_busy, send, receive, n_devices, t, at, -1.0
        )
        _add_copies(
            here_s, readers, copy_s, direct, to_host, from_host, link_busy, send, receive, n_devices, t, to, 1.0
        )


@njit(cache=True, nogil=True)
def smooth_maxima(busy_s: Any) -> float:
    """Sum over windows of the eighth root of the sum of eighth powers: near the largest, but all large ones count."""
    sum_s = 0.0
    for w in range(busy_s.shape[0]):
        most = 0.0
        for r in range(busy_s.shape[1]):
            most = max(most, busy_s[w, r])
        if most <= 0.0 or most == np.inf:
            sum_s += most
            continue
        total = 0.0
        for r in range(busy_s.shape[1]):
            share = max(0.0, busy_s[w, r] / most)
            square = share * share
            fourth = square * square
            total += fourth * fourth
        sum_s += most * np.sqrt(np.sqrt(np.sqrt(total)))
    return sum_s


@njit(cache=True, nogil=True)
def priced_work(busy_s: Any, price: Any) -> float:
    """The work of all devices, each second at its device's price."""
    sum_s = 0.0
    for w in range(busy_s.shape[0]):
        for d in range(price.shape[0]):
            sum_s += price[d] * busy_s[w, d]
    return sum_s


def windows(a: Arrays, least_time_s: FloatArray, n_windows: int) -> IntArray:
    """Divide the ops into parts of equal work by when they can run: between their earliest and their latest time."""
    n = len(least_time_s)
    head, tail = np.zeros(n), np.zeros(n)
    _fill_paths(a.tensor_ptr, a.consumer_ptr, a.consumer_op, least_time_s, head, tail)
    order = np.argsort(head - tail, kind="stable")
    done = np.cumsum(least_time_s[order])
    window = np.zeros(n, dtype=np.int32)
    window[order] = np.minimum(n_windows - 1, done / max(float(done[-1]), 1e-300) * n_windows)
    return window


@njit(cache=True, nogil=True)
def _fill_paths(tensor_ptr: Any, consumer_ptr: Any, consumer_op: Any, least_time_s: Any, head: Any, tail: Any) -> None:
    n = len(head)
    for u in range(n):
        for e in range(consumer_ptr[tensor_ptr[u]], consumer_ptr[tensor_ptr[u + 1]]):
            v = consumer_op[e]
            head[v] = max(head[v], head[u] + least_time_s[u])
    for u in range(n - 1, -1, -1):
        for e in range(consumer_ptr[tensor_ptr[u]], consumer_ptr[tensor_ptr[u + 1]]):
            v = consumer_op[e]
            tail[u] = max(tail[u], least_time_s[v] + tail[v])
