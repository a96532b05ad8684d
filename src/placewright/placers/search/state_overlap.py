"""A simulator for ``overlap`` that judges small changes of one placement quickly.

It follows the rules of :mod:`placewright.placers.judges.overlap` to the letter (a test compares the two), with three
means that a search can use and an evaluator cannot:

* ranks: every op has a priority of its own, a whole number, so ready ops are kept in bit sets;
* checkpoints: the run of the present placement leaves checkpoints, and a changed placement starts from the last one
  before the change can have any effect;
* a limit: the run ends as soon as its value is known to exceed what the search would accept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.graph import FloatArray, IntArray
from placewright.problems import Arrays

_CHECKPOINT_CELLS = 4_000_000  # ops x checkpoints, at most
_MOST_CHECKPOINTS = 32
_SLACK = 1 + 1e-9  # sums in another order differ in the last digits; what is accepted must not be cut off

_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_OF_PRODUCT = np.zeros(64, dtype=np.int32)
for _bit in range(64):
    _BIT_OF_PRODUCT[((1 << _bit) * int(_DE_BRUIJN) % 2**64) >> 58] = _bit
_ONE, _LOW6, _SHIFT58, _ZERO = np.uint64(1), np.int64(63), np.uint64(58), np.uint64(0)


class Engine(NamedTuple):
    """State of a run, and checkpoints of the present placement's run."""

    ready_s: FloatArray  # [ops]: when the last input known so far arrives
    pending: IntArray  # [ops]: inputs whose producer has not ended
    words: NDArray[np.uint64]  # [devices, words]: ready ops by rank
    summary: NDArray[np.uint64]  # [devices, words / 64]: which words are not zero
    n_ready: IntArray  # [devices]
    coming: IntArray  # [devices, ops]: ops whose last input is on its way, as far as they arrive in order
    head: IntArray  # [devices]: position of the first of them
    tail: IntArray  # [devices]: position after the last
    first_s: FloatArray  # [devices]: ready time of the first, infinite if there is none
    future: IntArray  # [ops]: heap by ready time of those that are out of order
    future_s: FloatArray  # [ops]: their ready times
    running: IntArray  # [devices]: op number or -1
    next_s: FloatArray  # [devices]: end of the running op, else when the next one is ready (infinite = none known)
    free_s: FloatArray  # [2 * devices]: channels
    work_left_s: FloatArray  # [devices]: time of the ops not yet started
    arrival_s: FloatArray  # [devices]
    arrival_of: IntArray  # [devices]
    last_op: IntArray  # [devices]: the op that ran last, -1 if none

    at_done: IntArray  # [checkpoints]: ops that had ended
    at_ready_s: FloatArray  # and so on: the state above, [checkpoints, ...]
    at_pending: IntArray
    at_words: NDArray[np.uint64]
    at_summary: NDArray[np.uint64]
    at_n_ready: IntArray
    at_coming: IntArray  # [checkpoints, ops]: devices one after another
    at_n_coming: IntArray  # [checkpoints, devices]
    at_future: IntArray
    at_future_s: FloatArray
    at_n_future: IntArray
    at_running: IntArray
    at_next_s: FloatArray
    at_first_s: FloatArray
    at_free_s: FloatArray
    at_work_left_s: FloatArray
    at_last_op: IntArray
    at_now: FloatArray

    tail_s: FloatArray  # [ops]: least time from an op's end to the end of everything, whatever the placement


class Log(NamedTuple):
    """What happened in the present placement's run."""

    start_s: FloatArray  # [ops]
    known_ready_s: FloatArray  # [ops]: when its inputs had arrived
    before: IntArray  # [ops]: the op that ran before it on its device, -1 if none
    done_index: IntArray  # [ops]: how many ops ended before it
    order: IntArray  # [ops]: ops in the order they ended


def new_log(n_ops: int) -> Log:
    """Allocate a log."""
    before, done_index, order = (np.zeros(n_ops, dtype=np.int32) for _ in range(3))
    return Log(np.zeros(n_ops), np.zeros(n_ops), before, done_index, order)


def new_engine(a: Arrays, tail_s: FloatArray) -> Engine:
    """Allocate an engine; its first run must be one without a checkpoint."""
    n, n_devices = len(tail_s), len(a.device_kind)
    k = int(np.clip(_CHECKPOINT_CELLS // n, 2, _MOST_CHECKPOINTS))
    n_words = n // 64 + 1
    n_summary = n_words // 64 + 1
    ints, floats = np.int32, np.float64
    shapes: dict[str, tuple[tuple[int, ...], type]] = {
        "ready_s": ((n,), floats), "pending": ((n,), ints), "words": ((n_devices, n_words), np.uint64),
        "summary": ((n_devices, n_summary), np.uint64), "n_ready": ((n_devices,), ints), "future": ((n,), ints),
        "future_s": ((n,), floats), "first_s": ((n_devices,), floats), "running": ((n_devices,), ints),
        "next_s": ((n_devices,), floats), "free_s": ((2 * n_devices,), floats),
        "work_left_s": ((n_devices,), floats), "last_op": ((n_devices,), ints),
    }  # fmt: skip
    state: dict[str, Any] = {name: np.zeros(shape, kind) for name, (shape, kind) in shapes.items()}
    kept: dict[str, Any] = {f"at_{name}": np.zeros((k, *shape), kind) for name, (shape, kind) in shapes.items()}
    return Engine(
        **state, **kept, arrival_s=np.zeros(n_devices), arrival_of=np.zeros(n_devices, ints),
        coming=np.zeros((n_devices, n), ints), head=np.zeros(n_devices, ints), tail=np.zeros(n_devices, ints),
        at_coming=np.zeros((k, n), ints), at_n_coming=np.zeros((k, n_devices), ints),
        at_done=np.full(k, -1, ints), at_n_future=np.zeros(k, ints), at_now=np.zeros(k), tail_s=tail_s,
    )  # fmt: skip


def least_tails_s(a: Arrays, least_time_s: FloatArray) -> FloatArray:
    """Longest path behind each op with every op at its least time and copies free."""
    tail = np.zeros(len(least_time_s))
    _fill_tails(a.tensor_ptr, a.consumer_ptr, a.consumer_op, least_time_s, tail)
    return tail


@njit(cache=True, nogil=True)
def _fill_tails(tensor_ptr: Any, consumer_ptr: Any, consumer_op: Any, least_time_s: Any, tail: Any) -> None:
    for u in range(len(tail) - 1, -1, -1):
        for e in range(consumer_ptr[tensor_ptr[u]], consumer_ptr[tensor_ptr[u + 1]]):
            v = consumer_op[e]
            tail[u] = max(tail[u], least_time_s[v] + tail[v])


@njit(cache=True, nogil=True, inline="always")
def lowest_bit(word: Any) -> int:
    """The number of the lowest bit that is set; one must be."""
    return _BIT_OF_PRODUCT[((word & (~word + _ONE)) * _DE_BRUIJN) >> _SHIFT58]


@njit(cache=True, nogil=True, inline="always")
def _add_ready(words: Any, summary: Any, n_ready: Any, d: int, rank: int) -> None:
    word = rank >> 6
    words[d, word] |= _ONE << np.uint64(rank & _LOW6)
    summary[d, word >> 6] |= _ONE << np.uint64(word & _LOW6)
    n_ready[d] += 1


@njit(cache=True, nogil=True, inline="always")
def _take_first(words: Any, summary: Any, n_ready: Any, d: int) -> int:
    """Remove and return the least rank of device ``d``'s ready ops; there must be one."""
    i = 0
    while summary[d, i] == _ZERO:
        i += 1
    word = (i << 6) + lowest_bit(summary[d, i])
    bit = lowest_bit(words[d, word])
    words[d, word] &= words[d, word] - _ONE
    if words[d, word] == _ZERO:
        summary[d, i] &= summary[d, i] - _ONE
    n_ready[d] -= 1
    return (word << 6) + bit


@njit(cache=True, nogil=True)
def push(heap: Any, heap_s: Any, size: int, op: int, mine_s: float) -> None:
    """Add to a heap of ``size`` numbers, least time first."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap_s[parent] <= mine_s:
            break
        heap[i], heap_s[i] = heap[parent], heap_s[parent]
        i = parent
    heap[i], heap_s[i] = op, mine_s


@njit(cache=True, nogil=True)
def pop(heap: Any, heap_s: Any, size: int) -> int:
    """Remove and return the one with the least time; ``size`` counts it."""
    top = heap[0]
    op, mine_s = heap[size - 1], heap_s[size - 1]
    i, child, n = 0, 1, size - 1
    while child < n:
        if child + 1 < n and heap_s[child + 1] < heap_s[child]:
            child += 1
        if mine_s <= heap_s[child]:
            break
        heap[i], heap_s[i] = heap[child], heap_s[child]
        i, child = child, 2 * child + 1
    heap[i], heap_s[i] = op, mine_s
    return top


@njit(cache=True, nogil=True)
def last_checkpoint(at_done: Any, first_change: int) -> int:
    """The last checkpoint at which at most ``first_change`` ops had ended, -1 if there is none."""
    k = -1
    while k + 1 < at_done.shape[0] and 0 <= at_done[k + 1] <= first_change:
        k += 1
    return k


@njit(cache=True, nogil=True)
def run(
    a: Arrays, e: Engine, log: Log, device: Any, rank: Any, op_of_rank: Any, checkpoint: int, work_change_s: Any,
    limit_s: float, keep: bool,
) -> float:  # fmt: skip
    """Run a placement; return its value, infinite as soon as that is known to exceed ``limit_s``.

    ``checkpoint`` -1 runs from the beginning. Otherwise the placement may differ from the one that left the
    checkpoints only in ops that had received no input by then (in ranks: that were not ready by then), and
    ``work_change_s`` [devices] is what the difference adds to each device's work. ``keep`` renews log and checkpoints.
    """
    tensor_ptr, consumer_ptr, consumer_op, input_ptr = a.tensor_ptr, a.consumer_ptr, a.consumer_op, a.input_ptr
    op_time_s, copy_s, device_kind = a.op_time_s, a.copy_s, a.device_kind
    direct, to_host, from_host, link_busy = a.direct, a.to_host, a.from_host, a.link_busy
    send_channel, receive_channel = a.send_channel, a.receive_channel
    ready_s, pending, words, summary, n_ready = e.ready_s, e.pending, e.words, e.summary, e.n_ready
    coming, head, tail, first_s, next_s = e.coming, e.head, e.tail, e.first_s, e.next_s
    future, future_s, running, free_s, work_left_s = e.future, e.future_s, e.running, e.free_s, e.work_left_s
    arrival_s, arrival_of, last_op, tail_s = e.arrival_s, e.arrival_of, e.last_op, e.tail_s
    start_s, before, done_index, order, at_done = log.start_s, log.before, log.done_index, log.order, e.at_done
    n_ops, n_devices, n_checkpoints = device.shape[0], device_kind.shape[0], at_done.shape[0]
    limit_s = limit_s * _SLACK
    n_future, done, now = 0, 0, 0.0
    arrival_of[:] = -1

    if checkpoint < 0:
        words[:] = _ZERO
        summary[:] = _ZERO
        n_ready[:] = 0
        running[:] = -1
        last_op[:] = -1
        next_s[:] = np.inf
        first_s[:] = np.inf
        head[:] = 0
        tail[:] = 0
        free_s[:] = 0.0
        work_left_s[:] = 0.0
        for v in range(n_ops):
            d = device[v]
            work_left_s[d] += op_time_s[v, device_kind[d]]
            pending[v] = input_ptr[v + 1] - input_ptr[v]
            ready_s[v] = 0.0
            if pending[v] == 0:
                _add_ready(words, summary, n_ready, d, rank[v])
    else:
        k = checkpoint
        done, n_future, now = at_done[k], e.at_n_future[k], e.at_now[k]
        ready_s[:] = e.at_ready_s[k]
        pending[:] = e.at_pending[k]
        words[:] = e.at_words[k]
        summary[:] = e.at_summary[k]
        n_ready[:] = e.at_n_ready[k]
        running[:] = e.at_running[k]
        next_s[:] = e.at_next_s[k]
        first_s[:] = e.at_first_s[k]
        free_s[:] = e.at_free_s[k]
        last_op[:] = e.at_last_op[k]
        future[:n_future] = e.at_future[k, :n_future]
        future_s[:n_future] = e.at_future_s[k, :n_future]
        offset = 0
        for d in range(n_devices):
            head[d], tail[d] = 0, e.at_n_coming[k, d]
            coming[d, : tail[d]] = e.at_coming[k, offset : offset + tail[d]]
            offset += tail[d]
            work_left_s[d] = e.at_work_left_s[k, d] + work_change_s[d]
    if keep:
        at_done[checkpoint + 1 :] = -1
        for k in range(checkpoint + 1):  # they stay, but for work that is still to come
            e.at_work_left_s[k] += work_change_s
    next_checkpoint = checkpoint + 1
    for d in range(n_devices):
        if now + work_left_s[d] > limit_s:
            return np.inf

    while True:
        for d in range(n_devices):
            if running[d] >= 0:
                continue
            while first_s[d] <= now:
                _add_ready(words, summary, n_ready, d, rank[coming[d, head[d]]])
                head[d] += 1
                first_s[d] = ready_s[coming[d, head[d]]] if head[d] < tail[d] else np.inf
            next_s[d] = first_s[d]
            if n_ready[d] > 0:
                v = op_of_rank[_take_first(words, summary, n_ready, d)]
                took = op_time_s[v, device_kind[d]]
                if now + max(work_left_s[d], took + tail_s[v]) > limit_s:
                    return np.inf
                work_left_s[d] -= took
                running[d] = v
                next_s[d] = now + took
                if keep:
                    start_s[v] = now
                    before[v] = last_op[d]
                    last_op[d] = v
        if done == n_ops:
            if keep:
                log.known_ready_s[:] = ready_s
            return now
        if keep and next_checkpoint < n_checkpoints and done >= next_checkpoint * n_ops // n_checkpoints:
            k = next_checkpoint
            next_checkpoint += 1
            at_done[k], e.at_n_future[k], e.at_now[k] = done, n_future, now
            e.at_ready_s[k] = ready_s
            e.at_pending[k] = pending
            e.at_words[k] = words
            e.at_summary[k] = summary
            e.at_n_ready[k] = n_ready
            e.at_running[k] = running
            e.at_next_s[k] = next_s
            e.at_first_s[k] = first_s
            e.at_free_s[k] = free_s
            e.at_last_op[k] = last_op
            e.at_work_left_s[k] = work_left_s
            e.at_future[k, :n_future] = future[:n_future]
            e.at_future_s[k, :n_future] = future_s[:n_future]
            offset = 0
            for d in range(n_devices):
                count = tail[d] - head[d]
                e.at_n_coming[k, d] = count
                e.at_coming[k, offset : offset + count] = coming[d, head[d] : tail[d]]
                offset += count

        now = np.inf
        for d in range(n_devices):
            now = min(now, next_s[d])
        if n_future > 0:
            now = min(now, future_s[0])
        if not now < np.inf:  # nothing will ever happen: what is left cannot run
            return np.inf

        while True:
            s = -1
            for d in range(n_devices):
                if next_s[d] == now and running[d] >= 0 and (s < 0 or running[d] < running[s]):
                    s = d
            if s < 0:
                break
            u = running[s]
            running[s] = -1
            next_s[s] = first_s[s]
            if keep:
                done_index[u] = done
                order[done] = u
            done += 1
            for t in range(tensor_ptr[u], tensor_ptr[u + 1]):
                in_host_s = -1.0
                arrival_of[s], arrival_s[s] = t, now
                for c in range(consumer_ptr[t], consumer_ptr[t + 1]):
                    v = consumer_op[c]
                    d = device[v]
                    if arrival_of[d] != t:
                        link = direct[s, d]
                        begin = now
                        if link >= 0:
                            took = copy_s[t, link]
                            if took > 0.0:
                                if link_busy[link] & 1:
                                    begin = max(begin, free_s[send_channel[s]])
                                if link_busy[link] & 2:
                                    begin = max(begin, free_s[receive_channel[d]])
                                    free_s[receive_channel[d]] = begin + took
                                if link_busy[link] & 1:
                                    free_s[send_channel[s]] = begin + took
                        else:
                            if in_host_s < 0.0:
                                link = to_host[s]
                                took = copy_s[t, link] if link >= 0 else 0.0
                                if took > 0.0 and link_busy[link] & 1:
                                    begin = max(begin, free_s[send_channel[s]])
                                    free_s[send_channel[s]] = begin + took
                                in_host_s = begin + took
                            link = from_host[d]
                            begin = in_host_s
                            took = copy_s[t, link] if link >= 0 else 0.0
                            if took > 0.0 and link_busy[link] & 2:
                                begin = max(begin, free_s[receive_channel[d]])
                                free_s[receive_channel[d]] = begin + took
                        arrival_of[d] = t
                        arrival_s[d] = begin + took
                    ready_s[v] = max(ready_s[v], arrival_s[d])
                    pending[v] -= 1
                    if pending[v] == 0:
                        mine_s = ready_s[v]
                        if mine_s <= now:
                            _add_ready(words, summary, n_ready, d, rank[v])
                        elif head[d] == tail[d]:
                            coming[d, tail[d]] = v
                            tail[d] += 1
                            first_s[d] = mine_s
                            if running[d] < 0:
                                next_s[d] = mine_s
                        elif ready_s[coming[d, tail[d] - 1]] <= mine_s:
                            coming[d, tail[d]] = v
                            tail[d] += 1
                        else:
                            push(future, future_s, n_future, v, mine_s)
                            n_future += 1
        while n_future > 0 and future_s[0] <= now:
            v = pop(future, future_s, n_future)
            n_future -= 1
            _add_ready(words, summary, n_ready, device[v], rank[v])
