"""A ``sequential`` problem without segments as a labelling: units get devices, tensors cost what their copies take."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.placers.units import movable_units
from placewright.problems import Problem, once_per_problem


@dataclass(frozen=True, eq=False)
class Energy:
    """Unit times and copies. The value of a labelling is what the evaluator says, segment overheads left out.

    A tensor is listed if it has readers outside of its home unit; ``reader`` holds those, each once.
    """

    time_s: FloatArray  # [units, devices], infinite where the unit may not be
    memory_bytes: FloatArray  # [units]
    home: IntArray  # [tensors]
    reader_ptr: IntArray  # [tensors + 1]
    reader: IntArray
    copy_s: FloatArray  # [tensors, link classes + 1]; the last column is zero: no link, no time
    direct: IntArray  # [devices, devices], -1 = through host memory
    to_host: IntArray  # [devices]
    from_host: IntArray  # [devices]
    touch_ptr: IntArray  # [units + 1]: the tensors that a unit makes or reads
    touch: IntArray

    @property
    def n_units(self) -> int:
        return len(self.time_s)

    @property
    def n_devices(self) -> int:
        return self.time_s.shape[1]

    @cached_property
    def core(self) -> _core.sequential.Energy:
        """The energy as the compiled core sees it: views of these arrays."""
        return _core.sequential.Energy(**{field.name: getattr(self, field.name) for field in fields(self)})


@once_per_problem
def energy_of(problem: Problem) -> Energy:
    """Compile the problem; ``movable_units(problem).unit_of_op`` leads from ops to units."""
    units, g, links = movable_units(problem), problem.graph, problem.links
    n_units = len(units.memory_bytes)
    home = units.unit_of_op[g.tensor_producer].astype(np.int64)
    pairs = np.unique(g.edge_tensor.astype(np.int64) * n_units + units.unit_of_op[g.consumer_op])
    tensor, reader = pairs // n_units, pairs % n_units
    outside = reader != home[tensor]
    tensor, reader = tensor[outside], reader[outside]
    kept, tensor = np.unique(tensor, return_inverse=True)
    copy_s = np.concatenate([problem.tensor_copy_s[kept], np.zeros((len(kept), 1))], axis=1)
    none = copy_s.shape[1] - 1
    return compiled(
        units.time_s,
        units.memory_bytes,
        home[kept],
        tensor,
        reader,
        copy_s,
        links.direct,
        np.where(links.to_host < 0, none, links.to_host).astype(np.int32),
        np.where(links.from_host < 0, none, links.from_host).astype(np.int32),
    )


def sub_energy(energy: Energy, keep: BoolArray) -> Energy:
    """The part of some units alone: tensors that they make, as far as they read them."""
    e = energy
    tensor = np.repeat(np.arange(len(e.home)), np.diff(e.reader_ptr))
    inside = keep[e.home[tensor]] & keep[e.reader]
    kept, tensor = np.unique(tensor[inside], return_inverse=True)
    number = np.cumsum(keep) - 1
    return compiled(
        e.time_s[keep],
        e.memory_bytes[keep],
        number[e.home[kept]],
        tensor,
        number[e.reader[inside]],
        e.copy_s[kept],
        e.direct,
        e.to_host,
        e.from_host,
    )


def compiled(
    time_s: FloatArray,
    memory_bytes: FloatArray,
    home: NDArray[Any],
    tensor: NDArray[Any],
    reader: NDArray[Any],
    copy_s: FloatArray,
    direct: IntArray,
    to_host: IntArray,
    from_host: IntArray,
) -> Energy:
    """Join (tensor, reader) pairs, sorted by tensor, with the rest."""
    touch_ptr, touch = _grouped(
        np.concatenate([home, reader]), np.concatenate([np.arange(len(home)), tensor]), len(time_s)
    )
    return Energy(
        time_s=np.ascontiguousarray(time_s),
        memory_bytes=memory_bytes,
        home=home.astype(np.int32),
        reader_ptr=_pointers(tensor, len(home)),
        reader=reader.astype(np.int32),
        copy_s=np.ascontiguousarray(copy_s),
        direct=direct,
        to_host=to_host,
        from_host=from_host,
        touch_ptr=touch_ptr,
        touch=touch,
    )


def _pointers(index: NDArray[Any], n: int) -> IntArray:
    return np.concatenate([[0], np.cumsum(np.bincount(index, minlength=n))]).astype(np.int32)


def _grouped(index: NDArray[Any], values: NDArray[Any], n: int) -> tuple[IntArray, IntArray]:
    return _pointers(index, n), values[np.argsort(index, kind="stable")].astype(np.int32)


def labelling_value(energy: Energy, label: IntArray, unary_s: FloatArray | None = None) -> float:
    """Seconds of all ops and copies; ``unary_s`` [units, devices] may stand in for the units' times."""
    return _core.sequential.labelling_value(energy.core, energy.time_s if unary_s is None else unary_s, label)
