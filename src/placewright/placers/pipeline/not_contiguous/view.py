"""A problem as the searches for free assignments see it, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.placers.pipeline.not_contiguous.units import Units, units_from_ops
from placewright.placers.pipeline.view import pipeline_view
from placewright.problems import Problem, once_per_problem


class AssignmentView(NamedTuple):
    """Colocation classes against devices numbered sort by sort.

    ``is_exact``: all copies go through host memory. With direct links the cheapest copies are charged: values are
    then lower bounds, and what looks best need not be.
    """

    units: Units
    unit_of_op: NDArray[np.int32]
    device_of_slot: NDArray[np.int32]  # the problem's number of each device
    is_exact: bool

    def to_ops(self, slot_of_unit: NDArray[np.int32]) -> NDArray[np.int32]:
        """Device of each op."""
        return self.device_of_slot[slot_of_unit][self.unit_of_op]

    def to_units(self, device_of_op: NDArray[np.int32]) -> NDArray[np.int32]:
        """Slot of each unit: where its first op is."""
        slot_of_device = np.argsort(self.device_of_slot).astype(np.int32)
        first_op = np.unique(self.unit_of_op, return_index=True)[1]
        return slot_of_device[device_of_op[first_op]]


@once_per_problem
def assignment_view(problem: Problem) -> AssignmentView:
    """Translate a problem."""
    view = pipeline_view(problem)
    units, unit_of_op = units_from_ops(view.ops)
    devices = np.array([d for sort in view.devices for d in sort], dtype=np.int32)
    return AssignmentView(units, unit_of_op, devices, view.is_exact)
