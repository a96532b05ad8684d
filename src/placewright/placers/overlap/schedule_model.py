"""Placement and schedule as a constraint model, solved in a process of its own.

Every op is an optional interval on every device it may use; every copy is one on the channels it keeps busy; nothing on
a device or on a channel overlaps. Times are rounded down to whole numbers. A run of the evaluator, its starts rounded
down too, satisfies all of that, whatever its placement and priorities: rounding keeps ``start >= start + duration``,
keeps apart what was apart, and does not raise the value. So the model's bound is a bound on every value of the
evaluator. The reverse does not hold: the model may leave a device idle though an op is ready, and book copies later
than at once or out of turn; what a solution is worth only the evaluator says.

Live activations are intervals with a demand on each device's memory, as the evaluator counts them, again rounded down.
"""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.placers.child_solver import received_problem, send
from placewright.placers.units import movable_units
from placewright.problems import Problem

_RESOLUTION = 10**9  # whole numbers per upper bound on the value, where times are not whole themselves
_MEMORY_STEPS = 10**9


class Settings(NamedTuple):
    """What is asked for: a value better than ``upper``, within ``seconds``."""

    upper: float
    seconds: float
    workers: int
    seed: int
    deterministic_s: float = 0.0  # if positive: solver time that does not depend on the machine


class Instance(NamedTuple):
    """Plain arrays of a problem; names as in ``Arrays``."""

    tensor_ptr: IntArray
    tensor_producer: IntArray
    consumer_ptr: IntArray
    consumer_op: IntArray
    time_s: FloatArray  # [ops, devices], infinite where not allowed
    memory_bytes: FloatArray
    live_bytes: FloatArray
    copy_s: FloatArray
    memory_limit_bytes: FloatArray
    direct: IntArray
    to_host: IntArray
    from_host: IntArray
    link_busy: IntArray
    send_channel: IntArray
    receive_channel: IntArray
    unit_of_op: IntArray
    hint_device: IntArray  # [ops]
    hint_start_s: FloatArray  # [ops]
    is_free: BoolArray  # [ops]: others stay on their device and in their order


def instance_of(problem: Problem, device: IntArray, start_s: FloatArray, is_free: BoolArray) -> Instance:
    """Collect the arrays, with an incumbent."""
    a = problem.arrays
    given = {name: getattr(a, name) for name in Instance._fields if hasattr(a, name)}
    return Instance(
        **given, time_s=problem.op_device_time_s, unit_of_op=movable_units(problem).unit_of_op, hint_device=device,
        hint_start_s=start_s, is_free=is_free,
    )  # fmt: skip


def packed(instance: Instance, settings: Settings) -> bytes:
    """The bytes that the child reads."""
    buffer = io.BytesIO()
    np.savez(buffer, settings=np.array(json.dumps(settings)), **instance._asdict())
    return buffer.getvalue()


def _unpacked(data: bytes) -> tuple[Instance, Settings]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return Instance(*(arrays[name] for name in Instance._fields)), Settings(*json.loads(str(arrays["settings"])))


def _main() -> None:
    """The child: one instance on standard input, a line of JSON for every solution and bound on standard output."""
    from ortools.sat.python import cp_model

    instance, settings = _unpacked(received_problem())
    model = ScheduleModel(cp_model, instance, settings.upper)

    class Reporter(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            device = [next(d for d, literal in row.items() if self.value(literal)) for row in model.x]
            send("solution", device=device, start=[self.value(s) for s in model.start])

    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers, parameters.random_seed = settings.workers, settings.seed
    parameters.max_time_in_seconds = settings.seconds
    if settings.deterministic_s > 0:
        parameters.max_deterministic_time = settings.deterministic_s
    solver.best_bound_callback = lambda bound: send("bound", bound=max(0.0, bound) / model.scale)
    status = solver.solve(model.model, Reporter())
    names = {cp_model.OPTIMAL: "optimal", cp_model.INFEASIBLE: "infeasible"}
    if status == cp_model.OPTIMAL:
        send("bound", bound=max(0.0, solver.best_objective_bound) / model.scale)
    send("done", status=names.get(status, "unknown"))


class ScheduleModel:
    """Builds the model; ``x[op][device]``, ``start[op]`` and ``scale`` (whole numbers per second) are read back."""

    def __init__(self, cp_model: Any, instance: Instance, upper: float) -> None:
        self.i, self.model = instance, cp_model.CpModel()
        n, n_devices = instance.time_s.shape
        self.scale = _scale(instance, upper)
        self.horizon = int(np.floor(upper * self.scale))
        self.time = np.where(np.isfinite(instance.time_s), np.floor(instance.time_s * self.scale), -1).astype(np.int64)
        self.copy = np.floor(instance.copy_s * self.scale).astype(np.int64)
        self.on_device: list[list[Any]] = [[] for _ in range(n_devices)]
        self.on_channel: dict[int, list[Any]] = {}
        self.x = self._devices()
        self.value = self.model.new_int_var(0, self.horizon, "value")
        self.start, self.end = self._ops()
        self.needs: dict[tuple[int, int], Any] = {}  # (tensor, device): it holds a consumer
        self.copy_start: dict[tuple[int, int], Any] = {}
        self.copies: list[tuple[int, int, int, Any, Any]] = []  # tensor, from, to, literal, end
        self.up_legs: list[tuple[int, int, Any, Any]] = []  # tensor, from, literal, end
        for t in range(len(instance.tensor_producer)):
            self._tensor(t)
        for intervals in [*self.on_device, *self.on_channel.values()]:
            self.model.add_no_overlap(intervals)
        for d in range(n_devices):
            load = [int(self.time[v, d]) * self.x[v][d] for v in range(n) if d in self.x[v] and self.time[v, d] > 0]
            self.model.add(sum(load) <= self.value)
        self._memory()
        self._keep_order()
        self.model.minimize(self.value)
        self._hint()

    def _devices(self) -> list[dict[int, Any]]:
        """One literal per unit and allowed device; ops of a unit share them."""
        i = self.i
        usable = np.ones((int(i.unit_of_op.max()) + 1, i.time_s.shape[1]), dtype=np.bool_)
        np.logical_and.at(usable, i.unit_of_op, np.isfinite(i.time_s))
        fixed = np.zeros(len(usable), dtype=np.bool_)
        fixed[i.unit_of_op[~i.is_free]] = True
        at = np.zeros(len(usable), dtype=np.int64)
        at[i.unit_of_op] = i.hint_device
        rows: list[dict[int, Any]] = []
        for unit, row in enumerate(usable):
            devices = [int(at[unit])] if fixed[unit] else np.flatnonzero(row).tolist()
            literals = {d: self.model.new_bool_var(f"x{unit}_{d}") for d in devices}
            self.model.add_exactly_one(literals.values())
            rows.append(literals)
        return [rows[unit] for unit in i.unit_of_op.tolist()]

    def _ops(self) -> tuple[list[Any], list[Any]]:
        starts, ends = [], []
        for v, row in enumerate(self.x):
            start = self.model.new_int_var(0, self.horizon, f"start{v}")
            end = start + sum(int(self.time[v, d]) * literal for d, literal in row.items())
            self.model.add(end <= self.value)
            for d, literal in row.items():
                took = int(self.time[v, d])
                interval = self.model.new_optional_fixed_size_interval_var(start, took, literal, f"op{v}_{d}")
                self.on_device[d].append(interval)
            starts.append(start)
            ends.append(end)
        return starts, ends

    def _tensor(self, t: int) -> None:
        i, model = self.i, self.model
        u = int(i.tensor_producer[t])
        consumers = i.consumer_op[i.consumer_ptr[t] : i.consumer_ptr[t + 1]].tolist()
        for v in consumers:
            model.add(self.start[v] >= self.end[u])
        for d in sorted({d for v in consumers for d in self.x[v]}):
            self.needs[t, d] = model.new_bool_var(f"need{t}_{d}")
            for v in consumers:
                if d in self.x[v]:
                    model.add_implication(self.x[v][d], self.needs[t, d])
        up_start = model.new_int_var(0, self.horizon, f"up_start{t}")
        for s, here in self.x[u].items():
            up = None
            for d in sorted({d for v in consumers for d in self.x[v]} - {s}):
                moved = model.new_bool_var(f"copy{t}_{s}_{d}")
                model.add_bool_or([~here, ~self.needs[t, d], moved])
                if (t, d) not in self.copy_start:
                    self.copy_start[t, d] = model.new_int_var(0, self.horizon, f"begin{t}_{d}")
                begin = self.copy_start[t, d]
                model.add(begin >= self.end[u]).only_enforce_if(moved)
                link = int(i.direct[s, d])
                if link < 0:
                    if up is None:
                        up = model.new_bool_var(f"up{t}_{s}")
                        up_end = up_start + self._leg(up_start, t, int(i.to_host[s]), up, s, None)
                        model.add(up_start >= self.end[u]).only_enforce_if(up)
                        self.up_legs.append((t, s, up, up_end))
                    model.add_implication(moved, up)
                    model.add(begin >= up_end).only_enforce_if(moved)
                    end = begin + self._leg(begin, t, int(i.from_host[d]), moved, None, d)
                else:
                    end = begin + self._leg(begin, t, link, moved, s, d)
                self.copies.append((t, s, d, moved, end))
                for v in consumers:
                    if d in self.x[v]:
                        model.add(self.start[v] >= end).only_enforce_if([moved, self.x[v][d]])

    def _leg(self, begin: Any, t: int, link: int, literal: Any, sender: int | None, receiver: int | None) -> int:
        """Book a copy on the channels that its link keeps busy; return what it takes."""
        took = int(self.copy[t, link]) if link >= 0 else 0
        channels = []
        if took and sender is not None and self.i.link_busy[link] & 1:
            channels.append(int(self.i.send_channel[sender]))
        if took and receiver is not None and self.i.link_busy[link] & 2:
            channels.append(int(self.i.receive_channel[receiver]))
        if channels:
            interval = self.model.new_optional_fixed_size_interval_var(begin, took, literal, f"leg{t}")
            for channel in channels:
                self.on_channel.setdefault(channel, []).append(interval)
        return took

    def _memory(self) -> None:
        i = self.i
        everything = float(i.memory_bytes.sum() + i.live_bytes.sum())
        for d, limit in enumerate(i.memory_limit_bytes.tolist()):
            if everything <= limit:
                continue
            step = max(limit, 1.0) / _MEMORY_STEPS
            sizes = np.floor(i.memory_bytes / step).astype(np.int64).tolist()
            held = [(size, row[d]) for size, row in zip(sizes, self.x, strict=True) if d in row and size]
            self.model.add(sum(size * literal for size, literal in held) <= int(limit / step))
            if i.live_bytes.any():
                self._live(d, held, step, int(limit / step))

    def _live(self, d: int, held: list[tuple[int, Any]], step: float, room: int) -> None:
        """Resident bytes all the time, tensors while they live."""
        i, model = self.i, self.model
        intervals, demands = [], []
        for size, literal in held:
            intervals.append(model.new_optional_fixed_size_interval_var(0, self.horizon + 1, literal, "resident"))
            demands.append(size)
        for t, size_bytes in enumerate(i.live_bytes.tolist()):
            size, u = int(size_bytes / step), int(i.tensor_producer[t])
            consumers = i.consumer_op[i.consumer_ptr[t] : i.consumer_ptr[t + 1]].tolist()
            arrivals = [c for c in self.copies if c[0] == t and c[2] == d]
            if not size or (d not in self.x[u] and not arrivals):
                continue
            until = model.new_int_var(0, self.horizon, f"until{t}_{d}")
            for v in consumers:
                if d in self.x[v]:
                    model.add(until >= self.end[v]).only_enforce_if(self.x[v][d])
            if d in self.x[u]:
                here = self.x[u][d]
                model.add(until >= (self.end[u] if consumers else self.value)).only_enforce_if(here)
                for tensor, s, to, moved, end in self.copies:
                    if tensor == t and s == d and i.direct[s, to] >= 0:
                        model.add(until >= end).only_enforce_if(moved)
                for tensor, s, up, end in self.up_legs:
                    if tensor == t and s == d:
                        model.add(until >= end).only_enforce_if(up)
                intervals.append(self._until(self.start[u], until, here, f"home{t}_{d}"))
                demands.append(size)
            for _, _, _, moved, _ in arrivals:
                intervals.append(self._until(self.copy_start[t, d], until, moved, f"away{t}_{d}"))
                demands.append(size)
        model.add_cumulative(intervals, demands, room)

    def _until(self, start: Any, until: Any, literal: Any, name: str) -> Any:
        size = self.model.new_int_var(0, self.horizon, f"{name}_size")
        return self.model.new_optional_interval_var(start, size, until, literal, name)

    def _keep_order(self) -> None:
        """Ops that are not free follow one another on their devices as in the incumbent."""
        i = self.i
        for d in range(i.time_s.shape[1]):
            ops = np.flatnonzero(~i.is_free & (i.hint_device == d))
            ordered = ops[np.lexsort((ops, i.hint_start_s[ops]))].tolist()
            for u, v in pairwise(ordered):
                self.model.add(self.start[v] >= self.end[u])

    def _hint(self) -> None:
        seen: set[int] = set()
        for v, row in enumerate(self.x):
            begin = min(float(self.i.hint_start_s[v]) * self.scale, float(self.horizon))
            self.model.add_hint(self.start[v], int(begin))
            if int(self.i.unit_of_op[v]) not in seen:
                seen.add(int(self.i.unit_of_op[v]))
                for d, literal in row.items():
                    self.model.add_hint(literal, d == int(self.i.hint_device[v]))


def _scale(instance: Instance, upper: float) -> float:
    """Whole times are kept as they are, so that bounds on them are exact."""
    times = np.concatenate([instance.time_s[np.isfinite(instance.time_s)], instance.copy_s.ravel()])
    if (times == np.floor(times)).all() and upper < _RESOLUTION:
        return 1.0
    return _RESOLUTION / max(upper, 1e-300)


if __name__ == "__main__":
    _main()
