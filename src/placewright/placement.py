"""``Placement``.

Which op runs where, what it costs, what is proven about it, and where it came from. Always checked.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from placewright.budget import OPTIMAL_GAP
from placewright.documents import Fields, check_version, finite, value_text
from placewright.errors import InputError, suggestion
from placewright.files import read_json, write_whole
from placewright.graph import FloatArray
from placewright.problems import Problem
from placewright.reading import reading
from placewright.text import shown, shown_list

if TYPE_CHECKING:
    from placewright.evaluate.checking import Fault
    from placewright.evaluate.single import Evaluation

Status = Literal["optimal", "feasible", "infeasible", "timeout"]
VERSION = 1  # of the format
FORMAT = f"placewright-placement/{VERSION}"


@dataclass(frozen=True, eq=False)
class Placement:
    """The answer to a problem; made by :func:`checked_placement` or :func:`no_placement`, never by hand.

    ``status``: ``optimal`` (value meets the proven bound), ``feasible``, ``infeasible`` (broken by ``faults``: this
    assignment's, or, without one, the problem's own), ``timeout`` (nothing valid found in the budget). ``priority``
    orders ready ops under ``overlap``, least first. ``stage`` numbers the pipeline stages, ``replicas`` [devices]
    counts the devices that share a stage's work. ``measured`` holds what execution gave, if it was executed;
    ``curve`` how a learned placer got there.

    >>> from placewright import load, place
    >>> placement = place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single")
    >>> placement.status, placement.device_of("softmax_0"), placement.bound <= placement.value
    ('optimal', 'cpu0', True)
    """

    problem: Problem
    status: Status
    device_of_op: NDArray[np.int32] | None
    value: float
    bound: float
    placer: str
    seed: int
    seconds: float
    evaluations: int = 0
    faults: tuple[Fault, ...] = ()
    evaluation: Evaluation | None = None
    priority: FloatArray | None = None
    stage: NDArray[np.int32] | None = None
    replicas: NDArray[np.int32] | None = None
    note: str = ""
    measured: Mapping[str, Any] | None = None
    curve: Mapping[str, Sequence[float]] | None = None  # of a learned placer: evaluations, best and mean value

    @property
    def gap(self) -> float:
        """How far the value can be from the best possible: ``value / bound - 1``, infinite where nothing is known."""
        if self.value == self.bound:
            return 0.0
        return self.value / self.bound - 1 if self.bound > 0 else math.inf

    @property
    def is_valid(self) -> bool:
        return self.device_of_op is not None and not self.faults

    @property
    def replica_of(self) -> dict[int, int]:
        """Devices that share the stage of another one: their number, and the number of the device that is named."""
        if self.replicas is None or self.evaluation is None:
            return {}
        shared: dict[int, int] = {}
        for group in self.problem.cluster.device_groups():
            free = [d for d in group if self.evaluation.ops[d] == 0]
            for lead in group:
                if self.evaluation.ops[lead] > 0:
                    shared.update((free.pop(0), lead) for _ in range(min(len(free), int(self.replicas[lead]) - 1)))
        return shared

    def device_of(self, op_name: str) -> str:
        """Name of the device that an op runs on."""
        if self.device_of_op is None:
            raise InputError("there is no placement: " + (self.note or self.status))
        index = self.problem.graph.index_of
        if op_name not in index:
            raise InputError(f"no operator '{shown(op_name)}'; {suggestion(op_name, index)}")
        return self.problem.cluster.devices[self.device_of_op[index[op_name]]].name

    def summary(self) -> dict[str, Any]:
        """The keys that ``place --json`` and ``evaluate --json`` print; numbers that are not finite become ``None``."""
        from placewright.placers.base import single_device_values

        devices = []
        for d, device in enumerate(self.problem.cluster.devices):
            e = self.evaluation
            devices.append(
                {
                    "name": device.name,
                    "kind": device.kind,
                    "load": _finite(e.load[d]) if e else None,
                    "memory_bytes": _finite(e.memory_bytes[d]) if e else None,
                    "memory_limit_bytes": _finite(device.memory_bytes),
                    "ops": int(e.ops[d]) if e else 0,
                }
            )
        return {
            "status": self.status,
            "objective": self.problem.objective,
            "execution": self.problem.execution,
            "value": _finite(self.value),
            "bound": _finite(self.bound),
            "gap": _finite(self.gap),
            "placer": self.placer,
            "seconds": self.seconds,
            "seed": self.seed,
            "devices": devices,
            "single_device": {n: _finite(v) for n, v in single_device_values(self.problem).items()},
            "segments": self.evaluation.segments if self.evaluation else None,
            "bytes_moved": self.evaluation.bytes_moved if self.evaluation else None,
            "evaluations": self.evaluations,
            "faults": [_fault_document(f) for f in self.faults],
            "note": self.note,
            **({"measured": dict(self.measured)} if self.measured is not None else {}),
        }

    def document(self) -> dict[str, Any]:
        """Everything that :meth:`save` writes, as plain data."""
        names = self.problem.graph.op_names
        document = {"format": FORMAT, "versions": _versions(), "model": self.problem.graph.name, **self.summary()}
        document["problem"] = self.problem.settings()
        if self.device_of_op is not None:
            devices = self.problem.cluster.device_names
            document["assignment"] = {n: devices[d] for n, d in zip(names, self.device_of_op, strict=True)}
        if self.stage is not None:
            document["stage"] = dict(zip(names, self.stage.tolist(), strict=True))
        if self.replicas is not None:
            devices = self.problem.cluster.device_names
            document["replicas"] = dict(zip(devices, self.replicas.tolist(), strict=True))
        if self.curve is not None:
            document["curve"] = {name: list(column) for name, column in self.curve.items()}
        if self.priority is not None:
            document["priority"] = dict(zip(names, self.priority.tolist(), strict=True))
        return document

    def save(self, path: str | Path) -> None:
        """Write the whole placement as JSON, completely or not at all."""
        write_whole(path, json.dumps(self.document(), indent=1) + "\n")

    def __repr__(self) -> str:
        return f"Placement({self.status}, value={self.value:.6g}, bound={self.bound:.6g}, placer={self.placer!r})"

    def _repr_html_(self) -> str:
        from placewright.reports.notebook import placement_html

        return placement_html(self)


def checked_placement(
    problem: Problem,
    device_of_op: NDArray[np.integer],
    *,
    placer: str,
    seed: int = 0,
    seconds: float = 0.0,
    evaluations: int = 0,
    bound: float | None = None,
    priority: FloatArray | None = None,
    replicas: NDArray[np.int32] | None = None,
    extra_faults: tuple[Fault, ...] = (),
    note: str = "",
    curve: Mapping[str, Sequence[float]] | None = None,
) -> Placement:
    """Evaluate and check an assignment and attach the best bound known (``bound`` if it beats the cheap ones).

    >>> from placewright import load
    >>> problem = load("zoo:chain?ops=3", cluster="p100x2")
    >>> checked_placement(problem, np.array([0, 1, 1]), placer="by hand").is_valid
    True
    """
    from placewright.evaluate import evaluate, lower_bound
    from placewright.evaluate.checking import find_faults, stage_order

    device = np.ascontiguousarray(device_of_op, dtype=np.int32)
    evaluation = evaluate(problem, device, priority, replicas)
    faults = find_faults(problem, device, evaluation, replicas) + extra_faults
    best_bound = max(lower_bound(problem), bound if bound is not None else 0.0)
    order = stage_order(problem, device) if problem.execution == "pipeline" else None
    value = evaluation.value
    if not faults and best_bound > value:
        best_bound = value  # rounding: a proven bound and the value it proves optimal differ in the last digits
    status: Status = "infeasible" if faults else "feasible"
    if not faults and best_bound >= value * (1 - OPTIMAL_GAP):
        status = "optimal"
    return Placement(
        problem=problem,
        status=status,
        device_of_op=device,
        value=value,
        bound=best_bound,
        placer=placer,
        seed=seed,
        seconds=seconds,
        evaluations=evaluations,
        faults=faults,
        evaluation=evaluation,
        priority=priority,
        replicas=replicas,
        stage=None if order is None else np.array([order.index(d) for d in device], dtype=np.int32),
        note=note,
        curve=curve,
    )


def no_placement(
    problem: Problem,
    *,
    placer: str,
    faults: tuple[Fault, ...] = (),
    seed: int = 0,
    seconds: float = 0.0,
    evaluations: int = 0,
    note: str = "",
) -> Placement:
    """The answer where there is none: proven ``infeasible`` if ``faults`` say why, else ``timeout``."""
    from placewright.evaluate import lower_bound

    return Placement(
        problem=problem,
        status="infeasible" if faults else "timeout",
        device_of_op=None,
        value=math.inf,
        bound=math.inf if faults else lower_bound(problem),
        placer=placer,
        seed=seed,
        seconds=seconds,
        evaluations=evaluations,
        faults=faults,
        note=note,
    )


def read_placement(path: str | Path, problem: Problem) -> Placement:
    """Read a placement file or a published split, match it to a problem of one's own by names, and check it again.

    Nothing that the file says about its problem is applied: :func:`placewright.open_placement` does that, and needs no
    problem.

    >>> import tempfile
    >>> from placewright import load, place
    >>> problem = load("zoo:chain?ops=3", cluster="p100x2")
    >>> file = tempfile.mkdtemp() + "/placement.json"
    >>> place(problem, placer="single").save(file)
    >>> read_placement(file, problem).placer
    'single'
    """
    with reading(path, "a placement") as where:
        return match_placement(read_json(path), problem, where)


def match_placement(document: Any, problem: Problem, where: str) -> Placement:
    """Match a decoded placement file or published split to a problem and check it."""
    from placewright.frontends.split import is_split, match_split

    if is_split(document):
        split = match_split(document, problem, where)
        return checked_placement(split.problem, split.device_of_op, placer="expert", extra_faults=split.faults)
    if not isinstance(document, dict) or not str(document.get("format")).startswith("placewright-placement/"):
        raise InputError(
            f'{where}: neither a placement (expected "format": "{FORMAT}") nor a split (expected "fpgas" and "cpus")'
        )
    check_version(document["format"], "placement", VERSION, where)
    assignment = Fields(document.get("assignment"), f"{where}: assignment").data
    names, devices = problem.graph.index_of, {n: d for d, n in enumerate(problem.cluster.device_names)}
    unknown = [n for n in assignment if n not in names]
    missing = [n for n in names if n not in assignment]
    if unknown:
        raise InputError(f"{where}: 'assignment' names operators the model does not have: {shown_list(unknown, 3)}")
    if missing:
        raise InputError(f"{where}: 'assignment' lacks operators of the model: {shown_list(missing, 3)}")
    device = np.zeros(problem.n_ops, dtype=np.int32)
    for name, where_to in assignment.items():
        if not isinstance(where_to, str) or where_to not in devices:
            wanted = value_text(where_to)
            raise InputError(
                f"{where}: 'assignment' puts '{shown(name)}' on '{wanted}', which is not a device of the "
                f"problem; {suggestion(wanted, devices)}"
            )
        device[names[name]] = devices[where_to]
    return checked_placement(
        problem,
        device,
        placer=Fields(document, where).text("placer", "file"),
        priority=_read_priority(document, problem, where),
        replicas=_read_replicas(document, problem, where),
    )


def _read_priority(document: dict[str, Any], problem: Problem, where: str) -> FloatArray | None:
    if "priority" not in document:
        return None
    table = Fields(document["priority"], f"{where}: priority")
    values = [table.data.get(n) for n in problem.graph.op_names]
    numbers = [finite(value) for value in values]
    for name, value, number in zip(problem.graph.op_names, values, numbers, strict=True):
        if number is None:
            raise InputError(f"{where}: 'priority' of '{shown(name)}' is {value_text(value)}, expected a finite number")
    return np.array(numbers, dtype=np.float64)


def _read_replicas(document: dict[str, Any], problem: Problem, where: str) -> NDArray[np.int32] | None:
    if "replicas" not in document:
        return None
    table = Fields(document["replicas"], f"{where}: replicas")
    return np.array([max(1, table.count(n, problem.n_devices)) for n in problem.cluster.device_names], dtype=np.int32)


def _fault_document(fault: Fault) -> dict[str, Any]:
    return {
        "code": fault.code,
        "message": fault.message,
        "ops": list(fault.ops[:100]),
        "device": fault.device,
        "limit": _finite(fault.limit),
        "value": _finite(fault.value),
    }


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("placewright", "numpy", "numba"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    return versions
