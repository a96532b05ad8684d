"""What every problem must be before anything works on it: shapes fit, numbers add up, options are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placewright.errors import InputError
from placewright.graph import FloatArray
from placewright.text import shown

if TYPE_CHECKING:
    from placewright.problems import Problem

# Of all costs, and of all bytes: no sum of them overflows, its eighth power and single precision included.
LARGEST_TOTAL = 1e30


def check_problem(p: Problem) -> None:
    """Raise :class:`InputError` for what would make a judge of placements fail or lie."""
    from placewright.problems import COMMUNICATIONS, SCHEDULES

    n, n_tensors = p.graph.n_ops, p.graph.n_tensors
    expected = {
        "op_time_s": (n, len(p.cluster.kinds)),
        "memory_bytes": (n,),
        "tensor_copy_s": (n_tensors, len(p.cluster.link_table().links)),
    }
    for name, shape in expected.items():
        array = getattr(p, name)
        if array.shape != shape:
            raise InputError(f"{name} has shape {array.shape}, expected {shape}")
        if not (array >= 0).all():
            raise InputError(f"{name} must be numbers >= 0, found {array[~(array >= 0)][0]}")
    _check_totals(p)
    if (p.execution == "pipeline") != (p.objective == "throughput"):
        raise InputError(
            f"objective '{p.objective}' does not go with execution model '{p.execution}': "
            "throughput is judged by 'pipeline', latency by 'overlap', 'sequential' or 'calls'"
        )
    if p.sync_s is not None and p.sync_s.shape != p.op_time_s.shape:
        raise InputError(f"sync_s has shape {p.sync_s.shape}, expected {p.op_time_s.shape}")
    for name, value, known in (("schedule", p.schedule, SCHEDULES), ("communication", p.communication, COMMUNICATIONS)):
        if value not in known:
            raise InputError(f"{name} is '{shown(str(value))}', expected {' or '.join(known)}")
    if p.max_replicas < 1:
        raise InputError(f"at most {p.max_replicas} replicas is impossible; expected 1 or more")
    if p.max_segments is not None and p.max_segments < 1:
        raise InputError(f"at most {p.max_segments} segments is impossible; expected 1 or more")


def _check_totals(p: Problem) -> None:
    """No sum that any placement can lead to may be infinite: everything that judges placements relies on it."""
    g, n_devices = p.graph, p.n_devices
    overheads = np.array([k.segment_overhead_s for k in p.cluster.kinds])
    syncs = np.zeros((g.n_ops, 1)) if p.sync_s is None else p.sync_s

    def op(i: int) -> str:
        return g.op_names[i]

    def producer(i: int) -> str:
        return g.op_names[g.tensor_producer[i]]

    def kind(i: int) -> str:
        return p.cluster.kinds[i].name

    costs = [
        _Part("operator", _finite_maxima(p.op_time_s), op, 1),
        _Part("copy of an output of operator", p.tensor_copy_s.max(axis=1, initial=0.0), producer, 2 * n_devices),
        _Part("exchange of the weights of operator", _finite_maxima(syncs), op, 2 * n_devices),
        _Part("overhead of a segment on kind", overheads, kind, g.n_ops),
    ]
    sizes = [
        _Part("weights of operator", p.memory_bytes, op, 1),
        _Part("output of operator", g.tensor_bytes, producer, n_devices),
    ]
    _refuse_sum("costs", p.time_unit and f" {p.time_unit}", costs)
    _refuse_sum("sizes", " bytes", sizes)


class _Part(NamedTuple):
    what: str
    numbers: FloatArray
    name_of: Callable[[int], str]
    most_times: int  # that each number may count


def _finite_maxima(times: FloatArray) -> FloatArray:
    """Per row the largest time; infinite ones say that an operator cannot run there."""
    return np.where(np.isfinite(times), times, 0.0).max(axis=1, initial=0.0)


def _refuse_sum(what: str, unit: str, parts: list[_Part]) -> None:
    with np.errstate(over="ignore"):
        total = sum(float(part.numbers.sum()) * part.most_times for part in parts)
    if total > LARGEST_TOTAL:
        part = max(parts, key=lambda p: p.numbers.max(initial=0.0))
        largest = int(part.numbers.argmax())
        raise InputError(
            f"the {what} add up to more than {LARGEST_TOTAL:.0e}{unit}; the largest is the {part.what} "
            f"'{shown(part.name_of(largest))}': {part.numbers[largest]:.3g}{unit}"
        )
