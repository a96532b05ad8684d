"""The exact programme as one mixed-integer programme, run in a process of its own.

The solver finds the symmetry of equal devices by itself; on the published graphs tried, breaking it by hand made its
bounds and assignments worse. So did a known assignment to start from (the hint is not used); a known lower bound would
only flatten the objective.
"""

from __future__ import annotations

from collections.abc import Callable

import highspy
import numpy as np

from placewright.placers.child_solver import received_problem, send
from placewright.placers.pipeline.not_contiguous.exact_process import Settings, unpacked
from placewright.placers.pipeline.not_contiguous.programme_rows import INF, Rows, new_highs
from placewright.placers.pipeline.not_contiguous.units import BoolArray, FloatArray, IntArray, Units, fold_directions

# The solver's tolerances are absolute, so loads are brought into a range and memory limits to a size.
LEAST_LOAD, LARGEST_LOAD, MEMORY_LIMIT = 10.0, 1000.0, 1000.0
PROOF_MARGIN = 5e-7  # and its bounds are believed to this accuracy
LEAST_NEWS = 1e-5  # relative rise of the bound worth a message


class Programme:
    """Columns: unit on device; largest load (one, or one per direction); tensor into and out of device."""

    def __init__(self, units: Units, settings: Settings) -> None:
        self.gpipe, self.overlapped = settings.objective == "gpipe", settings.communication == "overlapped"
        self.units = units if self.gpipe else fold_directions(units)
        self.kind = self.units.kind_of_device
        load = settings.upper if 0 < settings.upper < np.inf else _typical_load(self.units)
        self.scale = 1.0 if LEAST_LOAD <= load <= LARGEST_LOAD else 100.0 / load
        self.directions = 2 if self.gpipe else 1
        self.rows = Rows()
        self.place = np.arange(self.units.unit_count * len(self.kind)).reshape(-1, len(self.kind))
        self.top = [self.place.size + direction for direction in range(self.directions)]
        self.column_count = self.place.size + self.directions
        usable = self._usable()
        for row in self.place.tolist():
            self.rows.add([(column, 1.0) for column in row], 1.0, 1.0)
        self._loads(usable, self._moves())
        self._memory()
        cost, upper = np.zeros(self.column_count), np.ones(self.column_count)
        cost[self.top], upper[self.top] = 1.0, INF
        upper[: self.place.size] = usable.ravel()
        self.model = self.rows.model(cost, upper, np.arange(self.column_count) < self.place.size)

    def _usable(self) -> BoolArray:
        units = self.units
        fits = units.memory_bytes[:, None] <= units.kind_memory[None, :] * (1 + 1e-12)
        return (np.isfinite(units.forward_time + units.backward_time) & fits)[:, self.kind]

    def _memory(self) -> None:
        for device, kind in enumerate(self.kind.tolist()):
            limit = float(self.units.kind_memory[kind])
            if self.units.memory_bytes.sum() > limit > 0:
                share = self.units.memory_bytes * (MEMORY_LIMIT / limit)
                self.rows.add(
                    list(zip(self.place[:, device].tolist(), share.tolist(), strict=True)), -INF, MEMORY_LIMIT
                )

    def _loads(self, usable: BoolArray, moved: list[list[list[tuple[int, float]]]]) -> None:
        times = (self.units.forward_time, self.units.backward_time)[: self.directions]
        for device, kind in enumerate(self.kind.tolist()):
            able = np.flatnonzero(usable[:, device])
            for direction, top in enumerate(self.top):
                cost = times[direction][able, kind] * self.scale
                compute = list(zip(self.place[able, device].tolist(), cost.tolist(), strict=True))
                copies = moved[direction][device]
                for part in [compute, copies] if self.overlapped else [compute + copies]:
                    self.rows.add([*part, (top, -1.0)], -INF, 0.0)

    def _moves(self) -> list[list[list[tuple[int, float]]]]:
        """Per direction and device, the columns of the device's copies and their costs."""
        units = self.units
        moved: list[list[list[tuple[int, float]]]] = [[[] for _ in self.kind] for _ in range(self.directions)]
        for tensor in range(units.tensor_count):
            members = units.tensor_unit[units.tensor_ptr[tensor] : units.tensor_ptr[tensor + 1]]
            direction = int(self.gpipe and units.tensor_is_backward[tensor])
            for device, kind in enumerate(self.kind.tolist()):
                home, *others = self.place[members, device].tolist()
                costs = (float(units.tensor_in[tensor, kind]), float(units.tensor_out[tensor, kind]))
                for cost, sign in zip(costs, (1.0, -1.0), strict=True):
                    if cost <= 0:
                        continue
                    for other in others:
                        self.rows.add([(self.column_count, 1.0), (other, -sign), (home, sign)], 0.0, INF)
                    moved[direction][device].append((self.column_count, cost * self.scale))
                    self.column_count += 1
        return moved

    def assignment(self, columns: FloatArray) -> IntArray:
        """The device of every unit."""
        return columns[: self.place.size].reshape(self.place.shape).argmax(axis=1).astype(np.int32)


def _typical_load(units: Units) -> float:
    work = units.forward_time + units.backward_time
    least = np.where(np.isfinite(work), work, np.inf).min(axis=1)
    return float(max(least[np.isfinite(least)].sum() / max(units.device_count, 1), 1e-300))


def run(
    programme: Programme,
    settings: Settings,
    on_solution: Callable[[IntArray], None],
    on_bound: Callable[[float], None],
) -> str:
    """Solve, telling assignments and bounds on the way; returns how it ended."""
    highs = new_highs(
        threads=settings.workers, random_seed=settings.seed, time_limit=settings.seconds, mip_rel_gap=1e-7
    )
    highs.passModel(programme.model)
    told = 0.0

    def tell_bound(bound: float) -> None:
        nonlocal told
        if told < bound < INF:
            told = bound * (1 + LEAST_NEWS)
            on_bound(bound / programme.scale * (1 - PROOF_MARGIN))

    highs.cbMipInterrupt.subscribe(lambda event: tell_bound(event.data_out.mip_dual_bound))
    highs.cbMipImprovingSolution.subscribe(
        lambda event: on_solution(programme.assignment(np.array(event.data_out.mip_solution)))
    )
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        on_solution(programme.assignment(np.array(highs.getSolution().col_value)))
        told = 0.0
        tell_bound(highs.getInfo().mip_dual_bound)
    closed = {highspy.HighsModelStatus.kOptimal: "optimal", highspy.HighsModelStatus.kInfeasible: "infeasible"}
    return closed.get(status, "unknown")


def _main() -> None:
    """The child: one problem on standard input, news on standard output."""
    units, settings = unpacked(received_problem())
    status = run(
        Programme(units, settings),
        settings,
        lambda device_of_unit: send("solution", solution=device_of_unit.tolist()),
        lambda bound: send("bound", bound=bound),
    )
    send("done", status=status)


if __name__ == "__main__":
    _main()
