"""The exact programme for a constraint solver, run in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from placewright.placers.child_solver import received_problem, send
from placewright.placers.pipeline.not_contiguous.exact_process import Settings, unpacked
from placewright.placers.pipeline.not_contiguous.units import IntArray, Units

COARSE, FINE = 10**7, 10**11  # integer steps per largest useful load; fine ones are slow on large problems
LARGEST_FINE_UNITS = 40


def _main() -> None:
    """The child: one problem on standard input, a line of JSON for every message on standard output."""
    from ortools.sat.python import cp_model

    units, settings = unpacked(received_problem())
    model = _Model(cp_model, units, settings)

    class Reporter(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            send("solution", solution=model.assignment(self.value).tolist())

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = settings.workers
    solver.parameters.max_time_in_seconds = settings.seconds
    solver.parameters.random_seed = settings.seed
    solver.best_bound_callback = lambda bound: send("bound", bound=model.true_bound(bound))
    status = solver.solve(model.model, Reporter())
    closed = {cp_model.OPTIMAL: "optimal", cp_model.INFEASIBLE: "infeasible"}
    if status == cp_model.OPTIMAL:
        send("bound", bound=model.true_bound(solver.best_objective_bound))
    send("done", status=closed.get(status, "unknown"))


class _Model:
    """Costs are rounded down to integers, so a bound of the model is a bound of the problem."""

    def __init__(self, cp_model: Any, units: Units, settings: Settings) -> None:
        self.units, self.settings = units, settings
        self.resolution = FINE if units.unit_count <= LARGEST_FINE_UNITS else COARSE
        upper = settings.upper if np.isfinite(settings.upper) else _everything(units)
        self.scale = self.resolution / max(upper, 1e-300)
        self.model = cp_model.CpModel()
        kind = units.kind_of_device
        new = self.model.new_bool_var
        self.x = [[new(f"x{u}_{d}") for d in range(len(kind))] for u in range(units.unit_count)]
        for row in self.x:
            self.model.add_exactly_one(row)
        self._forbid(kind)
        self._memory(kind)
        self.value = self._loads(kind)
        self._break_symmetry(kind)
        if settings.contiguity == "convex":
            self._convex(len(kind))
        elif settings.contiguity == "chain":
            self._chain(len(kind))
        self.model.minimize(self.value)
        if settings.hint is not None:
            for unit, device in enumerate(canonical_devices(units, settings.hint).tolist()):
                for d, var in enumerate(self.x[unit]):
                    self.model.add_hint(var, d == device)

    def true_bound(self, bound: float) -> float:
        return max(0.0, bound) / self.scale

    def assignment(self, value: Callable[[Any], int]) -> IntArray:
        return np.array([[value(var) for var in row] for row in self.x]).argmax(axis=1).astype(np.int32)

    def _floor(self, cost: float) -> int:
        # Above the upper bound all costs are alike: the assignment is of no use.
        return int(min(np.floor(cost * self.scale), 2 * self.resolution))

    def _forbid(self, kind: IntArray) -> None:
        usable = np.isfinite(self.units.forward_time + self.units.backward_time)
        for unit, row in enumerate(self.x):
            for device, var in enumerate(row):
                if not usable[unit, kind[device]]:
                    self.model.add(var == 0)

    def _memory(self, kind: IntArray) -> None:
        total = float(self.units.memory_bytes.sum())
        for device, k in enumerate(kind.tolist()):
            limit = float(self.units.kind_memory[k])
            if total > limit:
                step = max(limit, 1.0) / 1e9
                sizes = np.floor(self.units.memory_bytes / step).astype(np.int64).tolist()
                terms = [size * row[device] for size, row in zip(sizes, self.x, strict=True) if size]
                self.model.add(sum(terms) <= int(limit / step))

    def _loads(self, kind: IntArray) -> Any:
        """The objective variable, tied to every device's load."""
        units, gpipe = self.units, self.settings.objective == "gpipe"
        rows = 2 if gpipe else 1
        tops = [self.model.new_int_var(0, 2 * self.resolution, f"top{r}") for r in range(rows)]
        compute: list[list[list[Any]]] = [[[] for _ in kind] for _ in range(rows)]
        moved: list[list[list[Any]]] = [[[] for _ in kind] for _ in range(rows)]
        for device, k in enumerate(kind.tolist()):
            for unit in range(units.unit_count):
                forward, backward = units.forward_time[unit, k], units.backward_time[unit, k]
                if not np.isfinite(forward + backward):
                    continue
                parts = (forward, backward) if gpipe else (forward + backward,)
                for r, part in enumerate(parts):
                    if self._floor(part):
                        compute[r][device].append(self._floor(part) * self.x[unit][device])
        for tensor in range(units.tensor_count):
            self._tensor(tensor, kind, moved[int(gpipe and units.tensor_is_backward[tensor])])
        for r in range(rows):
            for device in range(len(kind)):
                if self.settings.communication == "added":
                    self.model.add(sum(compute[r][device]) + sum(moved[r][device]) <= tops[r])
                else:
                    self.model.add(sum(compute[r][device]) <= tops[r])
                    self.model.add(sum(moved[r][device]) <= tops[r])
        value = self.model.new_int_var(0, self.resolution + 1, "value")
        self.model.add(value == sum(tops))
        return value

    def _tensor(self, tensor: int, kind: IntArray, moved: list[list[Any]]) -> None:
        units, model, x = self.units, self.model, self.x
        home, *others = units.tensor_unit[units.tensor_ptr[tensor] : units.tensor_ptr[tensor + 1]].tolist()
        for device, k in enumerate(kind.tolist()):
            into, out = self._floor(units.tensor_in[tensor, k]), self._floor(units.tensor_out[tensor, k])
            if into:
                var = model.new_bool_var(f"in{tensor}_{device}")
                for other in others:
                    model.add_bool_or([~x[other][device], x[home][device], var])
                model.add_implication(var, ~x[home][device])
                moved[device].append(into * var)
            if out:
                var = model.new_bool_var(f"out{tensor}_{device}")
                for other in others:
                    model.add_bool_or([~x[home][device], x[other][device], var])
                model.add_implication(var, x[home][device])
                moved[device].append(out * var)

    def _break_symmetry(self, kind: IntArray) -> None:
        """Among equal devices, one may hold a unit only if the one before it holds an earlier (heavier) unit."""
        order = heaviest_first(self.units)
        for device in range(1, len(kind)):
            if kind[device] != kind[device - 1]:
                continue
            earlier = None
            for unit in order.tolist():
                here, before = self.x[unit][device], self.x[unit][device - 1]
                if earlier is None:
                    self.model.add(here == 0)
                    earlier = before
                    continue
                self.model.add_implication(here, earlier)
                seen = self.model.new_bool_var("")
                self.model.add_bool_or([earlier, before, ~seen])
                self.model.add_implication(earlier, seen)
                self.model.add_implication(before, seen)
                earlier = seen

    def _convex(self, devices: int) -> None:
        """No path leaves a device and returns: `z` marks units from which the device is still to be reached."""
        for device in range(devices):
            z = [self.model.new_bool_var(f"z{u}_{device}") for u in range(self.units.unit_count)]
            for unit in range(self.units.unit_count):
                self.model.add_implication(self.x[unit][device], z[unit])
                for entry in range(self.units.successor_ptr[unit], self.units.successor_ptr[unit + 1]):
                    head = int(self.units.successor[entry])
                    self.model.add_implication(z[head], z[unit])
                    self.model.add_bool_or([~z[head], self.x[head][device], ~self.x[unit][device]])

    def _chain(self, devices: int) -> None:
        """Devices have places in a line, and precedence never runs backwards; convexity follows."""
        model = self.model
        place = [model.new_int_var(0, devices - 1, f"place{d}") for d in range(devices)]
        for a in range(devices):
            for b in range(devices):
                if a == b:
                    continue
                before = model.new_bool_var(f"before{a}_{b}")
                model.add(place[a] + 1 <= place[b]).only_enforce_if(before)
                for unit in range(self.units.unit_count):
                    for entry in range(self.units.successor_ptr[unit], self.units.successor_ptr[unit + 1]):
                        head = int(self.units.successor[entry])
                        model.add_bool_or([~self.x[unit][a], ~self.x[head][b], before])


def _everything(units: Units) -> float:
    """A value no sensible assignment exceeds: all work at its slowest, all tensors moved everywhere."""
    work = units.forward_time + units.backward_time
    moved = (units.tensor_in + units.tensor_out).max(axis=1, initial=0.0).sum()
    return float(np.where(np.isfinite(work), work, 0.0).max(axis=1, initial=0.0).sum() + moved)


def heaviest_first(units: Units) -> IntArray:
    """Units by falling least time."""
    work = units.forward_time + units.backward_time
    typical = np.where(np.isfinite(work), work, np.inf).min(axis=1)
    return np.argsort(-typical, kind="stable").astype(np.int32)


def canonical_devices(units: Units, device_of_unit: IntArray) -> IntArray:
    """The same assignment with equal devices renamed in the order of their heaviest units."""
    kind = units.kind_of_device
    rename: dict[int, int] = {}
    used = [0] * len(units.kind_count)
    first = np.concatenate([[0], np.cumsum(units.kind_count)[:-1]])
    for unit in heaviest_first(units).tolist():
        device = int(device_of_unit[unit])
        if device not in rename:
            rename[device] = int(first[kind[device]]) + used[kind[device]]
            used[kind[device]] += 1
    return np.array([rename[int(device)] for device in device_of_unit], dtype=np.int32)


if __name__ == "__main__":
    _main()
