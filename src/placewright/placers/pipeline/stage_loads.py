"""Loads of pipeline stages: the arrays that searches read, and the result they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from placewright import _core
from placewright.placers.pipeline.units import Bools, Floats, Ints, Units, compressed_rows

Communication = Literal["added", "overlapped"]
Status = Literal[
    "optimal",
    "feasible",
    "infeasible",
    "not_found",
    "timeout",
    "too_many_ideals",
    "too_many_states",
]


class Stage(NamedTuple):
    """A pipeline stage: `units` run on `replicas` devices of one kind."""

    kind: int
    replicas: int
    units: Ints


class Pipeline(NamedTuple):
    """Outcome of a search; `stages` is empty and `value` infinite if nothing was found.

    "optimal" and "infeasible" are proven for the search space of the called function, with loads
    compared to a relative 1e-9. Any other status comes with the best pipeline found so far.
    """

    status: Status
    value: float
    stages: Sequence[Stage]
    ideals: int
    pairs_visited: int


class LoadModel(NamedTuple):
    """What determines stage loads, laid out per unit; `core/pipeline/load_model.h` has the rules."""

    time: Floats  # [U, K] forward plus backward; inf where the unit cannot run at all
    memory: Floats  # [U]
    sync: Floats  # [U, K] cost of synchronising a unit's weights between replicas
    touch_ptr: Ints  # [U + 1] tensors touched by each unit
    touch_tensor: npt.NDArray[np.int32]
    touch_produces: Bools
    tensor_size: npt.NDArray[np.int32]  # [T] units touched
    tensor_in: Floats  # [T, K]
    tensor_out: Floats  # [T, K]
    kind_count: Ints  # [K]
    kind_memory: Floats  # [K]
    option_kind: Ints  # [O] ways of staffing a stage: `option_replicas` devices of a kind
    option_replicas: Ints  # [O]
    overlapped: bool

    def in_core(self) -> _core.pipeline.LoadModel:
        """As the compiled core sees it: views of these arrays."""
        return _core.pipeline.LoadModel(self._asdict())


def build_model(
    units: Units,
    communication: Communication = "added",
    max_replicas: int = 1,
    sync_cost: Floats | None = None,
) -> LoadModel:
    """Lay the units out for the core; a unit too big for a kind's memory cannot run there."""
    unit_count, kind_count = units.forward_time.shape
    time = units.forward_time + units.backward_time
    too_big = units.memory_bytes[:, None] > units.kind_memory[None, :]
    usable = np.minimum(units.kind_count, unit_count * max_replicas)
    options = [
        (kind, replicas)
        for kind in range(kind_count)
        for replicas in range(1, min(max_replicas, int(usable[kind])) + 1)
    ]
    option_kind, option_replicas = np.array(options, np.int64).reshape(-1, 2).T.copy()
    return LoadModel(
        time=np.where(too_big, np.inf, time),
        memory=units.memory_bytes.astype(np.float64),
        sync=np.zeros_like(time) if sync_cost is None else sync_cost.astype(np.float64),
        tensor_in=units.tensor_in.astype(np.float64),
        tensor_out=units.tensor_out.astype(np.float64),
        kind_count=usable.astype(np.int64),
        kind_memory=units.kind_memory.astype(np.float64),
        option_kind=option_kind,
        option_replicas=option_replicas,
        overlapped=communication == "overlapped",
        **list_touches(units.tensor_ptr, units.tensor_unit, unit_count),
    )


def list_touches(tensor_ptr: Ints, tensor_unit: Ints, unit_count: int) -> dict[str, Any]:
    """The fields of `LoadModel` that say which unit touches which tensor."""
    size = np.diff(tensor_ptr)
    tensor = np.repeat(np.arange(size.size), size)
    produces = np.zeros(tensor.size, np.bool_)
    produces[tensor_ptr[:-1]] = True
    touch_ptr, touch = compressed_rows(tensor_unit, np.arange(tensor.size), unit_count)
    return {
        "touch_ptr": touch_ptr,
        "touch_tensor": tensor[touch].astype(np.int32),
        "touch_produces": produces[touch],
        "tensor_size": size.astype(np.int32),
    }


def permute_model(model: LoadModel, order: Ints) -> LoadModel:
    """The same model with units renumbered: new unit `i` is old unit `order[i]`."""
    sizes = np.diff(model.touch_ptr)[order]
    touch_ptr = np.concatenate([[0], np.cumsum(sizes)])
    touch = np.arange(touch_ptr[-1]) + np.repeat(model.touch_ptr[order] - touch_ptr[:-1], sizes)
    return model._replace(
        time=model.time[order], memory=model.memory[order], sync=model.sync[order],
        touch_ptr=touch_ptr, touch_tensor=model.touch_tensor[touch],
        touch_produces=model.touch_produces[touch],
    )  # fmt: skip


def pipeline_value(model: LoadModel, stages: Sequence[Stage]) -> float:
    """Largest load of any stage; inf if a stage exceeds its device's memory."""
    in_core = model.in_core()
    return max((_core.pipeline.stage_load(in_core, *stage) for stage in stages), default=0.0)
