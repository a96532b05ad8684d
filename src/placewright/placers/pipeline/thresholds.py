"""Is there a pipeline whose stages all stay within a threshold? Forward search over a lattice.

`reached[I]` collects the device-count vectors with which the units of ideal `I` can be hosted by
stages within the threshold. Ideals are taken by rising cardinality; from each reached one a
depth-first walk grows the next stage unit by unit, in rising unit number, so that every larger
ideal is met once. The walk turns back where the stage's compute time and its transfers from and
to the ideal already passed exceed the threshold on all kinds: neither can shrink again, because the
units of the passed ideal never join the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from placewright.placers.pipeline.bounds import Prices, suffix_masks
from placewright.placers.pipeline.lattice import Lattice
from placewright.placers.pipeline.recovery import trace
from placewright.placers.pipeline.stage_loads import LoadModel, Stage, combine
from placewright.placers.pipeline.units import Floats, Ints
from placewright.placers.pipeline.vectors import Vectors, Words, has_bit, shift_up

_VISITS_PER_CALL = 150_000
_PARALLEL_VISITS = 20_000
_GATHERING_EFFORT = 10
_MEMORY_SLACK = 1 + 1e-12
_GUIDED_STATES = 512
_GUIDE_BYTES = 128 * 2**20


class Reach(NamedTuple):
    """Outcome of one threshold search."""

    stages: list[Stage] | None  # None: no pipeline within the threshold, or stopped
    visits: int
    stopped: bool


Guide = npt.NDArray[np.float32]
Setting = tuple[LoadModel, Lattice, Vectors, Words]


class Walk(NamedTuple):
    """Working arrays of one thread."""

    reached: Words  # [N, W] what this thread contributed
    value: Guide  # [N, V] least value seen of each reached state, or empty: see `_new_walk`
    marked: Ints  # [1] the passed ideal: the one the next stage starts from
    passed: npt.NDArray[np.int32]  # [T] units of the tensor in the passed ideal
    home: npt.NDArray[np.uint8]  # [T] where the producer is: ahead, passed or in the stage
    inside: npt.NDArray[np.int32]  # [T] units of the tensor in the stage
    node: Ints  # [U + 1] ideals on the path of the walk
    cursor: Ints  # [U + 1] next edge to try
    added: Ints  # [U + 1] unit added to get to the node
    memory: Floats  # [U + 1] sum over the stage at each depth of the path
    sums: Floats  # [U + 1, K, 4] see the column names below
    shifted: Words  # [O, W] vectors reached by using the option on the stage
    usable: Ints  # [O] options the passed ideal can still afford
    usable_count: Ints  # [1]
    depth: Ints  # [1] where the walk stands; -1 if it has not begun
    origin: Guide  # [V] values of the passed ideal
    arrivals: Ints  # [O, V] the members of `shifted`
    arrival_count: Ints  # [O]


_AHEAD, _PASSED, _STAGE = 0, 1, 2
# Columns of `sums`: "settled" transfers are paid by every larger stage too, "pending" ones are not.
_COMPUTE, _SETTLED, _PENDING, _SYNC = 0, 1, 2, 3


def search(
    model: LoadModel,
    lattice: Lattice,
    vectors: Vectors,
    prices: Prices,
    threshold: float,
    should_stop: Callable[[], bool],
    pool: ThreadPoolExecutor | None = None,
    threads: int = 1,
) -> Reach:
    """Find a pipeline with all loads at most `threshold`, or prove that there is none."""
    hopeful = suffix_masks(lattice, prices, vectors.remaining, threshold, should_stop)
    if hopeful is None:
        return Reach(None, 0, True)
    setting = model, lattice, vectors, hopeful
    walks = [_new_walk(model, lattice, vectors) for _ in range(threads)]
    walks[0].reached[0, 0] = hopeful[0, 0] & np.uint64(1)
    walks[0].value[:1, :1] = 0.0
    if pool is None or threads == 1:
        visits, stopped = _run_serial(setting, walks[0], threshold, should_stop)
    else:
        visits, stopped = _run_parallel(setting, walks, threshold, should_stop, pool)
    reached, value = walks[0].reached, walks[0].value
    for walk in walks[1:]:
        reached |= walk.reached
        np.minimum(value, walk.value, out=value)
    if not reached[-1].any():
        return Reach(None, visits, stopped)
    return Reach(trace(model, lattice, vectors, reached, value, threshold), visits, False)


def _new_walk(model: LoadModel, lattice: Lattice, vectors: Vectors) -> Walk:
    """Values only help to trace back a good pipeline; they are left out where they cost much."""
    units, kinds = model.time.shape
    ideals, states = lattice.parent.size, vectors.used.shape[0]
    words = vectors.option_allowed.shape[1]
    tensors, options = model.tensor_size.size, model.option_kind.size
    guided = states <= _GUIDED_STATES and ideals * states * 4 <= _GUIDE_BYTES
    return Walk(
        np.zeros((ideals, words), np.uint64),
        np.full((ideals if guided else 0, states), np.inf, np.float32), np.zeros(1, np.int64),
        np.zeros(tensors, np.int32), np.zeros(tensors, np.uint8), np.zeros(tensors, np.int32),
        np.zeros(units + 1, np.int64), np.zeros(units + 1, np.int64), np.zeros(units + 1, np.int64),
        np.zeros(units + 1), np.zeros((units + 1, kinds, 4)),
        np.zeros((options, words), np.uint64), np.zeros(options, np.int64),
        np.zeros(1, np.int64), np.full(1, -1, np.int64),
        np.zeros(states, np.float32), np.zeros((options, states), np.int64),
        np.zeros(options, np.int64),
    )  # fmt: skip


def _run_serial(setting: Setting, walk: Walk, threshold: float, should_stop: Callable[[], bool]) -> tuple[int, bool]:
    """Expand all ideals in turn; return the number of visits and whether it was stopped."""
    ideals = walk.reached.shape[0]
    position, total = 0, 0
    while position < ideals:
        if should_stop():
            return total, True
        position, visits = _expand(*setting, (walk,), walk, position, ideals, 1, threshold, _VISITS_PER_CALL)
        total += visits
    return total, False


def _run_parallel(
    setting: Setting,
    walks: list[Walk],
    threshold: float,
    should_stop: Callable[[], bool],
    pool: ThreadPoolExecutor,
) -> tuple[int, bool]:
    """The same with threads: ideals of one cardinality do not feed each other."""
    everyone = tuple(walks)
    total, level_visits = 0, 0
    for first, end in pairwise(setting[1].level_ptr.tolist()):
        # Handing out work costs more than a level with few visits.
        active = everyone if level_visits > _PARALLEL_VISITS and end - first > 1 else everyone[:1]
        positions = [first + offset for offset in range(len(active))]
        level_visits = 0
        while min(positions) < end:
            if should_stop():
                return total, True
            jobs = [
                (*setting, everyone, walk, position, end, len(active), threshold, _VISITS_PER_CALL)
                for walk, position in zip(active, positions, strict=True)
            ]
            results = [_expand(*jobs[0])] if len(jobs) == 1 else list(pool.map(_expand_job, jobs))
            positions = [position for position, _ in results]
            level_visits += sum(visits for _, visits in results)
        total += level_visits
    return total, False


def _expand_job(arguments: tuple[Any, ...]) -> tuple[int, int]:
    return _expand(*arguments)


@njit(cache=True, nogil=True, error_model="numpy")
def _expand(  # type: ignore[no-untyped-def]
    model, lattice, vectors, hopeful, everyone, walk, position, end, step, threshold, visit_limit
):
    """Expand reached ideals `position, position + step, ..` below `end` up to the visit limit.

    Returns the position to go on from and the visits; the walk itself may stop half-way there.
    """
    source = np.empty(hopeful.shape[1], np.uint64)
    visits, effort = 0, 0
    while position < end and effort < visit_limit:
        if walk.depth[0] < 0 and _gather(everyone, position, source):
            effort += _GATHERING_EFFORT
            _pass_over(model, lattice, walk, position)
            _drop_dominated(model, lattice, everyone, walk, position, source)
            walk.usable_count[0] = _usable_options(model, vectors, walk, source)
            if walk.usable_count[0] > 0:
                _list_arrivals(everyone, walk, position)
                walk.depth[0] = 0
                walk.node[0], walk.cursor[0] = position, lattice.edge_ptr[position]
        if walk.depth[0] >= 0:
            grown = _grow_stages(model, lattice, vectors, hopeful, walk, threshold, visit_limit - effort)
            visits, effort = visits + grown, effort + grown
        if walk.depth[0] < 0:
            position += step
    return position, visits


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(everyone, ideal, source):  # type: ignore[no-untyped-def]
    """Collect the vectors that reach the ideal from all threads; tell whether there are any."""
    occupied = False
    for word in range(source.size):
        bits = np.uint64(0)
        for walk in everyone:
            bits |= walk.reached[ideal, word]
        source[word] = bits
        occupied = occupied or bits != 0
    return occupied


@njit(cache=True, nogil=True, error_model="numpy")
def _drop_dominated(model, lattice, everyone, walk, ideal, source):  # type: ignore[no-untyped-def]
    """Drop vectors with which the ideal plus a unit is reached too, if that is never worse.

    Given a way to finish from the ideal, taking the unit out of its later stage finishes from the
    larger ideal; no other stage changes.
    """
    for edge in range(lattice.edge_ptr[ideal], lattice.edge_ptr[ideal + 1]):
        if _lightens(model, walk, lattice.edge_unit[edge]):
            target = lattice.edge_target[edge]
            for word in range(source.size):
                for other in everyone:
                    source[word] &= ~other.reached[target, word]


@njit(cache=True, nogil=True, error_model="numpy")
def _lightens(model, walk, unit):  # type: ignore[no-untyped-def]
    """Whether any stage after the passed ideal gets no heavier when it loses the unit.

    Adds up the least each tensor's transfer cost can fall; a negative fall is a rise.
    """
    for kind in range(model.kind_count.size):
        if model.kind_count[kind] == 0 or not np.isfinite(model.time[unit, kind]):
            continue
        fall = 0.0
        for touch in range(model.touch_ptr[unit], model.touch_ptr[unit + 1]):
            tensor = model.touch_tensor[touch]
            passed = walk.passed[tensor]
            is_last = passed + 1 == model.tensor_size[tensor]
            if model.touch_produces[touch]:
                # The rest of the stage may have to receive what it had at hand.
                if passed > 0:
                    fall += model.tensor_out[tensor, kind]
                if not is_last:
                    fall -= model.tensor_in[tensor, kind]
            elif walk.home[tensor] == _PASSED:
                if is_last:
                    fall += model.tensor_in[tensor, kind]
            elif passed == 0:
                # The producer may be in the stage and now has to send.
                fall -= model.tensor_out[tensor, kind]
        if not model.overlapped:
            fall += model.time[unit, kind]
        if fall < 0:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _usable_options(model, vectors, walk, source):  # type: ignore[no-untyped-def]
    usable = 0
    for option in range(model.option_kind.size):
        if shift_up(
            source, vectors.option_allowed[option], vectors.option_shift[option],
            walk.shifted[option],
        ):  # fmt: skip
            walk.usable[usable] = option
            usable += 1
    return usable


@njit(cache=True, nogil=True, error_model="numpy")
def _list_arrivals(everyone, walk, ideal):  # type: ignore[no-untyped-def]
    """Prepare for noting values: those of the ideal, and the vectors each option leads to."""
    if walk.value.shape[0] == 0:
        return
    walk.origin[:] = np.inf
    for other in everyone:
        for vector in range(walk.origin.size):
            walk.origin[vector] = min(walk.origin[vector], other.value[ideal, vector])
    for index in range(walk.usable_count[0]):
        option = walk.usable[index]
        count = 0
        for vector in range(walk.origin.size):
            if has_bit(walk.shifted[option], vector):
                walk.arrivals[option, count] = vector
                count += 1
        walk.arrival_count[option] = count


@njit(cache=True, nogil=True, error_model="numpy")
def _grow_stages(  # type: ignore[no-untyped-def]
    model, lattice, vectors, hopeful, walk, threshold, visit_limit
):
    """Walk over the stages that start after the passed ideal; return how many were looked at."""
    # Reaching into tuples inside the loop would count references to arrays at every step.
    return _walk(
        walk.depth, walk.usable_count[0], threshold, visit_limit,
        lattice.edge_ptr, lattice.edge_unit, lattice.edge_target,
        model.time, model.memory, model.sync, model.touch_ptr, model.touch_tensor,
        model.touch_produces, model.tensor_size, model.tensor_in, model.tensor_out,
        model.option_kind, model.option_replicas, model.kind_memory, model.overlapped,
        walk.passed, walk.home, walk.inside, walk.node, walk.cursor, walk.added, walk.memory,
        walk.sums, walk.usable, walk.reached, walk.shifted, hopeful, vectors.option_shift,
        walk.value, walk.origin, walk.arrivals, walk.arrival_count,
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(  # type: ignore[no-untyped-def]
    saved_depth, usable, threshold, visit_limit, edge_ptr, edge_unit, edge_target,
    time, unit_memory, unit_sync,
    touch_ptr, touch_tensor, touch_produces, tensor_size, tensor_in, tensor_out,
    option_kind, option_replicas, kind_memory, overlapped,
    passed, home, inside, node, cursor, added, memory, sums, options, reached, shifted, hopeful,
    option_shift, value, origin, arrivals, arrival_count,
):  # fmt: skip
    # One long function on purpose: split into helpers it runs several times slower, because an
    # array argument is passed as seven values and the compiler does not inline such calls.
    kinds = sums.shape[1]
    guided = value.shape[0] > 0
    visits, depth = 0, saved_depth[0]
    while visits < visit_limit:
        edge = cursor[depth]
        grown = False
        if edge < edge_ptr[node[depth] + 1]:
            cursor[depth] = edge + 1
            unit = edge_unit[edge]
            row = depth + 1
            visits += 1

            # Sums with the unit's time and memory added, its transfers not yet.
            memory[row] = memory[depth] + unit_memory[unit]
            for kind in range(kinds):
                sums[row, kind, _COMPUTE] = sums[depth, kind, _COMPUTE] + time[unit, kind]
                sums[row, kind, _SETTLED] = sums[depth, kind, _SETTLED]
                sums[row, kind, _PENDING] = sums[depth, kind, _PENDING]
                sums[row, kind, _SYNC] = sums[depth, kind, _SYNC] + unit_sync[unit, kind]
            for index in range(usable):
                option = options[index]
                kind = option_kind[option]
                lower = combine(
                    sums[row, kind, _COMPUTE], sums[row, kind, _SETTLED], sums[row, kind, _SYNC],
                    option_replicas[option], overlapped,
                )  # fmt: skip
                if lower <= threshold and memory[row] <= kind_memory[kind] * _MEMORY_SLACK:
                    grown = True
                    break
            if not grown:
                continue

            for touch in range(touch_ptr[unit], touch_ptr[unit + 1]):
                tensor = touch_tensor[touch]
                before = inside[tensor]
                inside[tensor] = before + 1
                complete = before + 1 == tensor_size[tensor]
                if touch_produces[touch]:
                    home[tensor] = _STAGE
                    for kind in range(kinds):
                        if before > 0:
                            sums[row, kind, _PENDING] -= tensor_in[tensor, kind]
                        if passed[tensor] > 0:
                            sums[row, kind, _SETTLED] += tensor_out[tensor, kind]
                        elif not complete:
                            sums[row, kind, _PENDING] += tensor_out[tensor, kind]
                elif home[tensor] == _STAGE:
                    if complete:
                        for kind in range(kinds):
                            sums[row, kind, _PENDING] -= tensor_out[tensor, kind]
                elif before == 0:
                    column = _SETTLED if home[tensor] == _PASSED else _PENDING
                    for kind in range(kinds):
                        sums[row, kind, column] += tensor_in[tensor, kind]

            target = edge_target[edge]
            grown = False
            for index in range(usable):
                option = options[index]
                kind, replicas = option_kind[option], option_replicas[option]
                if memory[row] > kind_memory[kind] * _MEMORY_SLACK:
                    continue
                compute, settled = sums[row, kind, _COMPUTE], sums[row, kind, _SETTLED]
                sync = sums[row, kind, _SYNC]
                if combine(compute, settled, sync, replicas, overlapped) > threshold:
                    continue
                grown = True
                transfer = settled + sums[row, kind, _PENDING]
                load = combine(compute, transfer, sync, replicas, overlapped)
                if load > threshold:
                    continue
                for word in range(hopeful.shape[1]):
                    reached[target, word] |= shifted[option, word] & hopeful[target, word]
                if guided:
                    for slot in range(arrival_count[option]):
                        vector = arrivals[option, slot]
                        reach_value = max(origin[vector - option_shift[option]], load)
                        if reach_value < value[target, vector]:
                            value[target, vector] = reach_value

            depth = row
            added[depth] = unit
            if grown:
                node[depth] = target
                following = edge_ptr[target]
                while following < edge_ptr[target + 1] and edge_unit[following] < unit:
                    following += 1
                cursor[depth] = following
                continue
        elif depth == 0:
            depth = -1
            break

        unit = added[depth]
        depth -= 1
        for touch in range(touch_ptr[unit], touch_ptr[unit + 1]):
            tensor = touch_tensor[touch]
            inside[tensor] -= 1
            if touch_produces[touch]:
                home[tensor] = _AHEAD
    saved_depth[0] = depth
    return visits


@njit(cache=True, nogil=True, error_model="numpy")
def _pass_over(model, lattice, walk, ideal):  # type: ignore[no-untyped-def]
    """Make `ideal` the passed one, touching only units in which it differs from the last one."""
    old, new = walk.marked[0], ideal
    walk.marked[0] = ideal
    while old != new:
        # Chains of parents list their units in falling order.
        old_unit, new_unit = lattice.last_unit[old], lattice.last_unit[new]
        if old_unit >= new_unit:
            old = lattice.parent[old]
        if new_unit >= old_unit:
            new = lattice.parent[new]
        if old_unit > new_unit:
            _mark_unit(model, walk, old_unit, -1, _AHEAD)
        elif new_unit > old_unit:
            _mark_unit(model, walk, new_unit, 1, _PASSED)


@njit(cache=True, nogil=True, error_model="numpy")
def _mark_unit(model, walk, unit, change, home):  # type: ignore[no-untyped-def]
    for touch in range(model.touch_ptr[unit], model.touch_ptr[unit + 1]):
        walk.passed[model.touch_tensor[touch]] += change
        if model.touch_produces[touch]:
            walk.home[model.touch_tensor[touch]] = home
