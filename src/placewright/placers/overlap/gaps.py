"""Busy times of devices and channels with the gaps between them, in one pool of linked stretches.

A line is one device or channel. Its stretches are sorted, do not touch (those that do are joined) and have a length.
Node ``line`` is the line's sentinel: it ends at time zero. Looking for a gap walks back from the last stretch, at most
``MOST_GAPS`` of them, so that a decision costs little on long lines too; older gaps count as full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

MOST_GAPS = 512


@njit(cache=True, nogil=True)
def new_lines(n_lines: int, n_bookings: int) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Return (start, end, previous, next, last node of each line, [used nodes])."""
    size = n_lines + n_bookings
    begin_s, end_s = np.zeros(size), np.zeros(size)
    before, after = np.full(size, -1, dtype=np.int32), np.full(size, -1, dtype=np.int32)
    last = np.arange(n_lines, dtype=np.int32)
    return begin_s, end_s, before, after, last, np.array([n_lines], dtype=np.int64)


@njit(cache=True, nogil=True)
def stretch_before(begin_s: Any, before: Any, last: Any, line: int, moment_s: float) -> int:
    """The last stretch of a line that begins at or before a moment, or the oldest that is still looked at."""
    node = last[line]
    for _ in range(MOST_GAPS):
        if begin_s[node] <= moment_s:
            break
        node = before[node]
    return node


@njit(cache=True, nogil=True)
def first_gap(
    begin_s: Any, end_s: Any, before: Any, after: Any, last: Any, line: int, ready_s: float, length_s: float
) -> float:
    """Earliest moment from ``ready_s`` on at which the line is free for ``length_s``."""
    node = stretch_before(begin_s, before, last, line, ready_s)
    moment = max(ready_s, end_s[node])
    node = after[node]
    while node >= 0 and moment + length_s > begin_s[node]:
        moment = max(moment, end_s[node])
        node = after[node]
    return moment


@njit(cache=True, nogil=True)
def first_common_gap(
    begin_s: Any, end_s: Any, before: Any, after: Any, last: Any, one: int, other: int, ready_s: float, length_s: float
) -> float:
    """Earliest moment from ``ready_s`` on at which both lines are free for ``length_s``."""
    i = stretch_before(begin_s, before, last, one, ready_s)
    j = stretch_before(begin_s, before, last, other, ready_s)
    moment = max(ready_s, end_s[i], end_s[j])
    i, j = after[i], after[j]
    while True:
        if i >= 0 and moment + length_s > begin_s[i]:
            moment = max(moment, end_s[i])
            i = after[i]
        elif j >= 0 and moment + length_s > begin_s[j]:
            moment = max(moment, end_s[j])
            j = after[j]
        else:
            return moment


@njit(cache=True, nogil=True)
def occupy(
    begin_s: Any, end_s: Any, before: Any, after: Any, last: Any, used: Any, line: int, start_s: float, finish_s: float
) -> None:
    """Mark a free stretch of a line as busy, joined with neighbours that it touches."""
    if finish_s <= start_s:
        return
    left = last[line]
    while begin_s[left] > start_s:
        left = before[left]
    right = after[left]
    joins_left = end_s[left] == start_s and left != line
    joins_right = right >= 0 and begin_s[right] == finish_s
    if joins_left and joins_right:
        end_s[left] = end_s[right]
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        else:
            last[line] = left
    elif joins_left:
        end_s[left] = finish_s
    elif joins_right:
        begin_s[right] = start_s
    else:
        node = used[0]
        used[0] += 1
        begin_s[node], end_s[node] = start_s, finish_s
        before[node], after[node] = left, right
        after[left] = node
        if right >= 0:
            before[right] = node
        else:
            last[line] = node
