"""Numba kernels of the local search: an assignment with incrementally kept loads, and annealing on it.

Loads are kept in `rows` x devices: one row when forward and backward work are added (the caller folds
them), two when their maxima are added. Value = sum over rows of the largest device load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placewright.placers.pipeline.not_contiguous.units import FloatArray, IntArray, Units

POWER_DOUBLINGS = 4  # the annealed energy is the (2 ** POWER_DOUBLINGS)-norm of the loads, which has no plateaus
OVERFLOW_WEIGHT = 20.0  # energy per relative memory overflow, in units of the reference load
REFRESH_INTERVAL = 1 << 16  # iterations between rebuilds of the running sums, against rounding drift


class Problem(NamedTuple):
    """What the kernels read."""

    time: FloatArray  # [rows, U, K]
    memory: FloatArray  # [U]
    unit_ptr: IntArray  # [U + 1] into unit_tensor
    unit_tensor: IntArray
    tensor_ptr: IntArray
    tensor_unit: IntArray  # producer first
    tensor_in: FloatArray
    tensor_out: FloatArray
    tensor_row: IntArray  # [T]
    kind_of_device: IntArray  # [D]
    device_memory: FloatArray  # [D]
    overlapped: bool


class State(NamedTuple):
    """What the kernels write."""

    device: IntArray  # [U]
    present: IntArray  # [T, D] units of the tensor on the device
    compute: FloatArray  # [rows, D]
    moved: FloatArray  # [rows, D]
    power: FloatArray  # [rows, D] (load / reference) ** p
    memory: FloatArray  # [D]
    best: IntArray  # [U]
    scalars: FloatArray  # [best value, reference load]
    rng: NDArray[np.uint64]  # [1]
    trail: IntArray  # [2, U] units of a compound move, and where they came from
    seen: IntArray  # [U] stamp of the compound move that touched the unit


def problem_of(units: Units, gpipe: bool, overlapped: bool) -> Problem:
    """`units` must be folded unless `gpipe`."""
    time = np.stack([units.forward_time, units.backward_time] if gpipe else [units.forward_time])
    counts = np.diff(units.tensor_ptr)
    tensor_of_entry = np.repeat(np.arange(units.tensor_count, dtype=np.int32), counts)
    order = np.argsort(units.tensor_unit, kind="stable")
    kind = units.kind_of_device
    return Problem(
        np.ascontiguousarray(time),
        units.memory_bytes.astype(np.float64),
        np.searchsorted(units.tensor_unit[order], np.arange(units.unit_count + 1)).astype(np.int32),
        tensor_of_entry[order],
        units.tensor_ptr.astype(np.int32),
        units.tensor_unit.astype(np.int32),
        units.tensor_in.astype(np.float64),
        units.tensor_out.astype(np.float64),
        units.tensor_is_backward.astype(np.int32),
        kind,
        units.kind_memory[kind].astype(np.float64),
        overlapped,
    )


def new_state(problem: Problem, device: IntArray, seed: int) -> State:
    """A search state at the given assignment."""
    units, devices = len(problem.memory), len(problem.kind_of_device)
    rows, tensors = problem.time.shape[0], len(problem.tensor_row)
    state = State(
        np.array(device, dtype=np.int32),
        np.zeros((tensors, devices), dtype=np.int32),
        np.zeros((rows, devices)),
        np.zeros((rows, devices)),
        np.zeros((rows, devices)),
        np.zeros(devices),
        np.array(device, dtype=np.int32),
        np.array([np.inf, 1.0]),
        np.array([(seed * 0x9E3779B97F4A7C15 + 1) % 2**64], dtype=np.uint64),
        np.zeros((2, units), dtype=np.int32),
        np.full(units, -1, dtype=np.int32),
    )
    rebuild(problem, state)
    value, overflow = measure(problem, state)
    state.scalars[0] = value if overflow == 0.0 else np.inf
    state.scalars[1] = max(value, 1e-300)
    rebuild(problem, state)
    return state


@njit(cache=True, nogil=True, inline="always")
def _random(rng: NDArray[np.uint64]) -> np.uint64:
    """splitmix64: a private generator per search, so that threads do not share one."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True, inline="always")
def _below(rng: NDArray[np.uint64], limit: int) -> int:
    return int(np.int64((_random(rng) >> np.uint64(33)) % np.uint64(limit)))


@njit(cache=True, nogil=True, inline="always")
def _uniform(rng: NDArray[np.uint64]) -> float:
    return float(_random(rng) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True, inline="always")
def _load(problem: Problem, state: State, row: int, device: int) -> float:
    if problem.overlapped:
        return max(state.compute[row, device], state.moved[row, device])
    return state.compute[row, device] + state.moved[row, device]


@njit(cache=True, nogil=True, inline="always")
def _refresh_power(problem: Problem, state: State, device: int) -> None:
    for row in range(state.power.shape[0]):
        value = _load(problem, state, row, device) / state.scalars[1]
        for _ in range(POWER_DOUBLINGS):
            value *= value
        state.power[row, device] = value


@njit(cache=True, nogil=True)
def rebuild(problem: Problem, state: State) -> None:
    """Recompute everything kept from `state.device`."""
    state.present[:] = 0
    state.compute[:] = 0.0
    state.moved[:] = 0.0
    state.memory[:] = 0.0
    for unit in range(len(state.device)):
        device = state.device[unit]
        state.memory[device] += problem.memory[unit]
        for row in range(state.compute.shape[0]):
            state.compute[row, device] += problem.time[row, unit, problem.kind_of_device[device]]
    for tensor in range(len(problem.tensor_row)):
        first, last = problem.tensor_ptr[tensor], problem.tensor_ptr[tensor + 1]
        for entry in range(first, last):
            state.present[tensor, state.device[problem.tensor_unit[entry]]] += 1
        home, row = state.device[problem.tensor_unit[first]], problem.tensor_row[tensor]
        for device in range(state.present.shape[1]):
            kind = problem.kind_of_device[device]
            held = state.present[tensor, device]
            if device == home and held < last - first:
                state.moved[row, device] += problem.tensor_out[tensor, kind]
            elif device != home and held > 0:
                state.moved[row, device] += problem.tensor_in[tensor, kind]
    for device in range(state.compute.shape[1]):
        _refresh_power(problem, state, device)


@njit(cache=True, nogil=True)
def shift(problem: Problem, state: State, unit: int, target: int) -> None:
    """Move one unit, updating loads in time proportional to its tensors. Only its two devices change."""
    source = state.device[unit]
    source_kind, target_kind = problem.kind_of_device[source], problem.kind_of_device[target]
    for row in range(state.compute.shape[0]):
        state.compute[row, source] -= problem.time[row, unit, source_kind]
        state.compute[row, target] += problem.time[row, unit, target_kind]
    state.memory[source] -= problem.memory[unit]
    state.memory[target] += problem.memory[unit]
    state.device[unit] = target
    for entry in range(problem.unit_ptr[unit], problem.unit_ptr[unit + 1]):
        tensor = problem.unit_tensor[entry]
        first, size = problem.tensor_ptr[tensor], problem.tensor_ptr[tensor + 1] - problem.tensor_ptr[tensor]
        row = problem.tensor_row[tensor]
        at_source, at_target = state.present[tensor, source], state.present[tensor, target]
        state.present[tensor, source] = at_source - 1
        state.present[tensor, target] = at_target + 1
        into_source, out_source = problem.tensor_in[tensor, source_kind], problem.tensor_out[tensor, source_kind]
        into_target, out_target = problem.tensor_in[tensor, target_kind], problem.tensor_out[tensor, target_kind]
        producer = problem.tensor_unit[first]
        if producer == unit:
            if at_source < size:
                state.moved[row, source] -= out_source
            if at_source > 1:
                state.moved[row, source] += into_source
            if at_target > 0:
                state.moved[row, target] -= into_target
            if at_target + 1 < size:
                state.moved[row, target] += out_target
            continue
        home = state.device[producer]
        if home == source:
            if at_source == size:
                state.moved[row, source] += out_source
        elif at_source == 1:
            state.moved[row, source] -= into_source
        if home == target:
            if at_target + 1 == size:
                state.moved[row, target] -= out_target
        elif at_target == 0:
            state.moved[row, target] += into_target
    _refresh_power(problem, state, source)
    _refresh_power(problem, state, target)


@njit(cache=True, nogil=True)
def measure(problem: Problem, state: State) -> tuple[float, float]:
    """(value, relative memory overflow) of the running assignment."""
    value, overflow = 0.0, 0.0
    for row in range(state.compute.shape[0]):
        worst = 0.0
        for device in range(state.compute.shape[1]):
            worst = max(worst, _load(problem, state, row, device))
        value += worst
    for device in range(len(state.memory)):
        limit = problem.device_memory[device]
        if state.memory[device] > limit * (1.0 + 1e-12):
            overflow += (state.memory[device] - limit) / max(limit, 1.0)
    return value, overflow


@njit(cache=True, nogil=True)
def _energy(problem: Problem, state: State) -> float:
    energy = 0.0
    for row in range(state.power.shape[0]):
        total = 0.0
        for device in range(state.power.shape[1]):
            total += state.power[row, device]
        for _ in range(POWER_DOUBLINGS):
            total = np.sqrt(total)
        energy += total
    for device in range(len(state.memory)):
        limit = problem.device_memory[device]
        if state.memory[device] > limit * (1.0 + 1e-12):
            energy += OVERFLOW_WEIGHT * (state.memory[device] - limit) / max(limit, 1.0)
    return energy


@njit(cache=True, nogil=True)
def _allowed(problem: Problem, unit: int, device: int) -> bool:
    return np.isfinite(problem.time[:, unit, problem.kind_of_device[device]].sum())


@njit(cache=True, nogil=True)
def _neighbour(problem: Problem, rng: NDArray[np.uint64], unit: int) -> int:
    """A random other end of a random tensor of the unit, or the unit itself."""
    degree = problem.unit_ptr[unit + 1] - problem.unit_ptr[unit]
    if degree == 0:
        return unit
    tensor = problem.unit_tensor[problem.unit_ptr[unit] + _below(rng, degree)]
    first = problem.tensor_ptr[tensor]
    return problem.tensor_unit[first + _below(rng, problem.tensor_ptr[tensor + 1] - first)]


@njit(cache=True, nogil=True)
def _target_device(problem: Problem, state: State, unit: int) -> int:
    """Where to try a unit: mostly the device of a neighbour, else any."""
    if _below(state.rng, 4):
        return state.device[_neighbour(problem, state.rng, unit)]
    return _below(state.rng, len(problem.kind_of_device))


@njit(cache=True, nogil=True)
def _grow(problem: Problem, state: State, seed_unit: int, target: int, limit: int, stamp: int) -> int:
    """Collect up to `limit` units of one device by a walk along tensors; they are the compound move."""
    source = state.device[seed_unit]
    state.trail[0, 0] = seed_unit
    state.seen[seed_unit] = stamp
    size, head = 1, 0
    while head < size and size < limit:
        unit = state.trail[0, head]
        head += 1
        for entry in range(problem.unit_ptr[unit], problem.unit_ptr[unit + 1]):
            tensor = problem.unit_tensor[entry]
            for other_entry in range(problem.tensor_ptr[tensor], problem.tensor_ptr[tensor + 1]):
                other = problem.tensor_unit[other_entry]
                fresh = state.seen[other] != stamp and state.device[other] == source
                if fresh and size < limit and _allowed(problem, other, target):
                    state.seen[other] = stamp
                    state.trail[0, size] = other
                    size += 1
    return size


@njit(cache=True, nogil=True)
def _propose(problem: Problem, state: State, stamp: int, largest: int) -> int:
    """Apply a random move; the moved units and their origins are left in `trail`, their number returned."""
    rng = state.rng
    unit = _below(rng, len(state.device))
    target = _target_device(problem, state, unit)
    source = state.device[unit]
    if target == source or not _allowed(problem, unit, target):
        return 0
    choice = _below(rng, 8)
    state.trail[0, 0] = unit
    size = 1
    if choice == 7:  # few and mostly small, or they would take nearly all the time
        size = _grow(problem, state, unit, target, 2 + int(largest ** _uniform(rng)), stamp)
    elif choice >= 3:
        partner = _below(rng, len(state.device))
        if choice == 3:
            partner = _neighbour(problem, rng, partner)
        if state.device[partner] == target and _allowed(problem, partner, source):
            state.trail[0, 1] = partner
            size = 2
    for i in range(size):
        moved = state.trail[0, i]
        state.trail[1, i] = state.device[moved]
        shift(problem, state, moved, target if state.device[moved] == source else source)
    return size


@njit(cache=True, nogil=True)
def anneal(problem: Problem, state: State, iterations: int, hot: float, cold: float, largest: int) -> None:
    """Metropolis walk with a geometric temperature from `hot` to `cold`, both relative to the reference load.

    The best feasible assignment met so far is kept in `state.best`, its value in `state.scalars[0]`.
    """
    if len(state.device) == 0:
        return
    rebuild(problem, state)
    state.seen[:] = -1
    energy = _energy(problem, state)
    cooling = (cold / hot) ** (1.0 / max(iterations, 1))
    temperature = hot
    for step in range(iterations):
        temperature *= cooling
        if step % REFRESH_INTERVAL == REFRESH_INTERVAL - 1:
            rebuild(problem, state)
            energy = _energy(problem, state)
        size = _propose(problem, state, step, largest)
        if size == 0:
            continue
        proposed = _energy(problem, state)
        if proposed <= energy or _uniform(state.rng) < np.exp((energy - proposed) / temperature):
            energy = proposed
            value, overflow = measure(problem, state)
            if overflow == 0.0 and value < state.scalars[0] * (1.0 - 1e-12):
                state.scalars[0] = value
                state.best[:] = state.device
            continue
        for i in range(size - 1, -1, -1):
            shift(problem, state, state.trail[0, i], state.trail[1, i])


@njit(cache=True, nogil=True)
def steepest_descent(problem: Problem, state: State, devices: IntArray, least_gain: float) -> None:
    """Move the unit that lowers the value most, until no move gains `least_gain`. Memory is ignored."""
    value, _ = measure(problem, state)
    while True:
        best_value, best_unit, best_device = value - least_gain, -1, -1
        for unit in range(len(state.device)):
            source = state.device[unit]
            for device in devices:
                if device == source or not _allowed(problem, unit, device):
                    continue
                shift(problem, state, unit, device)
                trial, _ = measure(problem, state)
                shift(problem, state, unit, source)
                if trial <= best_value:
                    best_value, best_unit, best_device = trial, unit, device
        if best_unit < 0:
            return
        shift(problem, state, best_unit, best_device)
        rebuild(problem, state)
        value, _ = measure(problem, state)
