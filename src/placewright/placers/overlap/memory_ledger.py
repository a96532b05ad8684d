"""Memory while scheduling.

Resident bytes of whole groups count from the decision for their first member on, and for the whole run. A tensor counts
on every device that holds it from the decision for its producer (or its copy) until the decisions for all its
consumers; results stay. Decisions follow time only roughly, so the evaluator has the last word: see ``attempts.py``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.problems import Arrays

NOWHERE = -1.0  # arrival of a tensor on a device that it is not copied to


class Room(NamedTuple):
    """What is where, and how much of it."""

    tensor_ptr: IntArray
    tensor_producer: IntArray
    input_ptr: IntArray
    input_tensor: IntArray
    live_bytes: FloatArray  # [tensors]
    unread: IntArray  # [tensors]: consumers not placed yet
    group_of: IntArray  # [ops]
    group_time_s: FloatArray  # [ops, devices], infinite where the group may not be
    group_bytes: FloatArray  # [ops]
    device_of_group: IntArray  # [ops], -1 = open
    limit: FloatArray  # [devices]
    resident: FloatArray  # [devices]
    live: FloatArray  # [devices]: tensors now
    peak: FloatArray  # [devices]: tensors at most, so far
    freed: BoolArray  # [devices]: a tensor went since the flag was cleared


@njit(cache=True, nogil=True)
def new_room(a: Arrays, group_time_s: Any, group_bytes: Any, device_of_group: Any, limit_bytes: Any) -> Room:
    """Nothing placed but the groups that are decided already."""
    n_devices = limit_bytes.shape[0]
    resident = np.zeros(n_devices)
    for v in range(device_of_group.shape[0]):
        if a.colocation_first[v] == v and device_of_group[v] >= 0:
            resident[device_of_group[v]] += group_bytes[v]
    return Room(
        a.tensor_ptr, a.tensor_producer, a.input_ptr, a.input_tensor, a.live_bytes,
        a.consumer_ptr[1:] - a.consumer_ptr[:-1], a.colocation_first, group_time_s, group_bytes, device_of_group,
        limit_bytes, resident, np.zeros(n_devices), np.zeros(n_devices), np.zeros(n_devices, dtype=np.bool_),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def may_be_on(room: Room, u: int, d: int) -> bool:
    """True if neither times, rules nor an earlier member of the group speak against it."""
    g = room.group_of[u]
    return room.group_time_s[g, d] < np.inf and (room.device_of_group[g] < 0 or room.device_of_group[g] == d)


@njit(cache=True, nogil=True)
def bytes_missing(room: Room, u: int, d: int, device: Any, arrival_s: Any) -> tuple[float, float]:
    """(forever, now): by how much the limit would be passed whatever is freed later, and if ``u`` ran on ``d`` next."""
    g = room.group_of[u]
    resident = room.resident[d] + (room.group_bytes[g] if room.device_of_group[g] < 0 else 0.0)
    new = _new_bytes(room, u, d, device, arrival_s)
    forever = resident + max(room.peak[d], new) - room.limit[d]
    return forever, resident + max(room.peak[d], room.live[d] + new) - room.limit[d]


@njit(cache=True, nogil=True)
def take_room(room: Room, u: int, d: int, device: Any, arrival_s: Any) -> None:
    """Count ``u`` on ``d``; to be called before its copies are noted in ``arrival_s``."""
    g = room.group_of[u]
    if room.device_of_group[g] < 0:
        room.device_of_group[g] = d
        room.resident[d] += room.group_bytes[g]
    room.live[d] += _new_bytes(room, u, d, device, arrival_s)
    room.peak[d] = max(room.peak[d], room.live[d])


@njit(cache=True, nogil=True)
def free_inputs(room: Room, u: int, device: Any, arrival_s: Any) -> None:
    """Free the tensors that ``u`` was the last to read; to be called after its copies are noted."""
    for i in range(room.input_ptr[u], room.input_ptr[u + 1]):
        t = room.input_tensor[i]
        room.unread[t] -= 1
        if room.unread[t] == 0 and room.live_bytes[t] > 0.0:
            for d in range(room.limit.shape[0]):
                if d == device[room.tensor_producer[t]] or arrival_s[t, d] != NOWHERE:
                    room.live[d] -= room.live_bytes[t]
                    room.freed[d] = True


@njit(cache=True, nogil=True)
def _new_bytes(room: Room, u: int, d: int, device: Any, arrival_s: Any) -> float:
    """Outputs of ``u`` and inputs that ``d`` does not hold yet."""
    total = 0.0
    for t in range(room.tensor_ptr[u], room.tensor_ptr[u + 1]):
        total += room.live_bytes[t]
    for i in range(room.input_ptr[u], room.input_ptr[u + 1]):
        t = room.input_tensor[i]
        if device[room.tensor_producer[t]] != d and arrival_s[t, d] == NOWHERE:
            total += room.live_bytes[t]
    return total
