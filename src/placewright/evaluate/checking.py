"""``check``: all faults of a placement, each naming op, device, limit and value; and proofs that none can exist."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placewright.graph import BoolArray, FloatArray, sums_by_index
from placewright.problems import Problem, Rule, once_per_problem
from placewright.text import bytes_text, shown, shown_list

if TYPE_CHECKING:
    from placewright.evaluate.single import Evaluation


@dataclass(frozen=True)
class Fault:
    """One reason why a placement is not allowed, or why no placement is.

    ``code`` is one of ``unsupported, ruled-out, colocation, memory, contiguity, circular-calls, segments,
    device-count,
    replicas`` and, for whole problems, ``no-device, too-big, total-memory, crowded``. ``limit`` and ``value`` are set
    where numbers are compared.

    >>> str(Fault("segments", "the placement has 3 segments, at most 2 are allowed"))
    'the placement has 3 segments, at most 2 are allowed'
    """

    code: str
    message: str
    ops: tuple[str, ...] = ()
    device: str | None = None
    limit: float | None = None
    value: float | None = None

    def __str__(self) -> str:
        return self.message


def check(
    problem: Problem,
    device_of_op: NDArray[np.int32],
    priority: FloatArray | None = None,
    replicas: NDArray[np.int32] | None = None,
) -> tuple[Fault, ...]:
    """Return every fault of the placement, an empty tuple if it is valid."""
    from placewright.evaluate.single import evaluate

    return find_faults(problem, device_of_op, evaluate(problem, device_of_op, priority), replicas)


def find_faults(
    problem: Problem,
    device_of_op: NDArray[np.int32],
    evaluation: Evaluation,
    replicas: NDArray[np.int32] | None = None,
) -> tuple[Fault, ...]:
    """:func:`check` for a placement that has been evaluated already."""
    device = np.asarray(device_of_op, dtype=np.int32)
    faults = _support_faults(problem, device) + _colocation_faults(problem, device)
    faults += _memory_faults(problem, evaluation.memory_bytes)
    if problem.needs_contiguous_stages:
        faults += _contiguity_faults(problem, device)
    if problem.execution == "calls" and np.isinf(evaluation.value) and not any(f.code == "unsupported" for f in faults):
        faults.append(Fault("circular-calls", "the accelerators' calls wait for each other in a circle"))
    if replicas is not None:
        faults += _replica_faults(problem, device, replicas)
    if problem.max_segments is not None and evaluation.segments > problem.max_segments:
        faults.append(
            Fault(
                "segments",
                f"the placement has {evaluation.segments} segments, at most {problem.max_segments} are allowed",
                limit=problem.max_segments,
                value=evaluation.segments,
            )
        )
    return tuple(faults)


@once_per_problem
def prove_infeasible(problem: Problem) -> tuple[Fault, ...]:
    """Return reasons why no valid placement can exist; empty if none of these simple proofs applies.

    The proofs: a group that no device supports as a whole, a group bigger than every memory it may use, more bytes
    in all than all memories hold, more bytes bound to some devices than these hold, and ops bound to more devices than
    there may be segments.
    """
    allowed, group_bytes, members = _groups(problem)
    limits = np.array([d.memory_bytes for d in problem.cluster.devices])
    faults: list[Fault] = []
    for first in np.unique(problem.group_of_op).tolist():
        names = [problem.graph.op_names[v] for v in members[first]]
        if not allowed[first].any():
            faults.append(_no_device(problem, members[first], names))
        elif group_bytes[first] > limits[allowed[first]].max():
            largest = float(limits[allowed[first]].max())
            faults.append(
                Fault(
                    "too-big",
                    f"{_group_text(names)} needs {bytes_text(group_bytes[first])} ({group_bytes[first]:.0f} bytes); "
                    f"the largest memory it may use is {bytes_text(largest)} ({largest:.0f} bytes)"
                    + _because(problem, members[first]),
                    ops=tuple(names),
                    limit=largest,
                    value=float(group_bytes[first]),
                )
            )
    faults.sort(key=lambda fault: -(fault.value or 0.0))  # the largest first: a message may have room for few
    total, room = float(problem.memory_bytes.sum()), float(limits.sum())
    if total > room:
        faults.append(
            Fault(
                "total-memory",
                f"all operators together need {bytes_text(total)} ({total:.0f} bytes); "
                f"all devices together hold {bytes_text(room)} ({room:.0f} bytes)",
                limit=room,
                value=total,
            )
        )
    return tuple(faults) or _bound_faults(problem, allowed, group_bytes, members, limits)


def _bound_faults(
    problem: Problem, allowed: BoolArray, group_bytes: FloatArray, members: dict[int, list[int]], limits: FloatArray
) -> tuple[Fault, ...]:
    """What rules and support bind to some devices is too much for them, or binds to too many devices."""
    firsts = np.array(list(members))
    faults = []
    sets = np.unique(allowed[firsts], axis=0)
    for devices in sets[~sets.all(axis=1)]:
        inside = firsts[~(allowed[firsts] & ~devices).any(axis=1)]
        total, room = float(group_bytes[inside].sum()), float(limits[devices].sum())
        if total > room:
            ops = [v for first in inside.tolist() for v in members[first]]
            names = [problem.graph.op_names[v] for v in ops]
            where = ", ".join(f"'{shown(problem.cluster.devices[d].name)}'" for d in np.flatnonzero(devices))
            text = (
                f"{len(ops)} operators may only be on {where} and need {bytes_text(total)} ({total:.0f} bytes) there; "
                f"it holds {bytes_text(room)} ({room:.0f} bytes)"
            )
            faults.append(Fault("crowded", text + _because(problem, ops), tuple(names), limit=room, value=total))
    alone = firsts[allowed[firsts].sum(axis=1) == 1]
    bound_to = np.unique(allowed[alone].argmax(axis=1)) if len(alone) else np.zeros(0, dtype=np.int64)
    if problem.max_segments is not None and len(bound_to) > problem.max_segments:
        ops = [v for first in alone.tolist() for v in members[first]]
        text = f"operators are bound to {len(bound_to)} devices, at most {problem.max_segments} segments are allowed"
        faults.append(Fault("segments", text + _because(problem, ops), limit=problem.max_segments, value=len(bound_to)))
    return tuple(faults)


def _because(problem: Problem, ops: list[int]) -> str:
    """The rules that bind some of these ops, as they were written."""
    names = [problem.graph.op_names[v] for v in ops]
    least = {"pin": 1, "forbid": 1, "together": 2}
    rules = [r for r in problem.rules if sum(1 for n in names if re.search(r.pattern, n)) >= least[r.action]]
    return f" (rules: {'; '.join(str(r) for r in rules)})" if rules else ""


def _groups(problem: Problem) -> tuple[BoolArray, FloatArray, dict[int, list[int]]]:
    """Per group (indexed by its first op): devices that take all members, bytes, and the members."""
    allowed = problem.allowed.copy()
    np.logical_and.at(allowed, problem.group_of_op, problem.allowed)
    group_bytes = sums_by_index(problem.group_of_op, problem.memory_bytes, problem.n_ops)
    members: dict[int, list[int]] = {}
    for v, first in enumerate(problem.group_of_op.tolist()):
        members.setdefault(first, []).append(v)
    return allowed, group_bytes, members


def _no_device(problem: Problem, ops: list[int], names: list[str]) -> Fault:
    for v, name in zip(ops, names, strict=True):
        if not np.isfinite(problem.op_time_s[v]).any():
            return Fault("no-device", f"no device supports operator '{shown(name)}'", ops=(name,))
    supported = np.isfinite(problem.op_device_time_s[ops])
    reasons = []
    for d, device in enumerate(problem.cluster.devices):
        blocker = next(n for n, ok in zip(names, supported[:, d], strict=True) if not ok)
        reasons.append(f"'{shown(device.name)}' does not take '{shown(blocker)}'")
    return Fault(
        "no-device",
        f"no device takes {_group_text(names)}: {', '.join(reasons[:4])}" + _because(problem, ops),
        ops=tuple(names),
    )


def _group_text(names: list[str]) -> str:
    if len(names) == 1:
        return f"operator '{shown(names[0])}'"
    return f"the class of {len(names)} operators that must stay together ({shown_list(names, 3)})"


def _support_faults(problem: Problem, device: NDArray[np.int32]) -> list[Fault]:
    faults = []
    times = problem.op_time_s[np.arange(problem.n_ops), problem.cluster.device_kind[device]]
    for v in np.flatnonzero(~problem.allowed[np.arange(problem.n_ops), device]).tolist():
        op, where = problem.graph.op_names[v], problem.cluster.devices[device[v]].name
        if np.isinf(times[v]):
            text = f"operator '{shown(op)}' is not supported on device '{shown(where)}'"
            faults.append(Fault("unsupported", text, ops=(op,), device=where))
        else:
            text = (
                f"operator '{shown(op)}' may not be on device '{shown(where)}': {_broken_rule(problem, v, device[v])}"
            )
            faults.append(Fault("ruled-out", text, ops=(op,), device=where))
    return faults


def _broken_rule(problem: Problem, op: int, device: int) -> str:
    def breaks(rule: Rule) -> bool:
        return not problem.with_options(rules=(rule,)).allowed[op, device]

    return next((str(rule) for rule in problem.rules if breaks(rule)), "not permitted there")


def _colocation_faults(problem: Problem, device: NDArray[np.int32]) -> list[Fault]:
    faults = []
    split = np.unique(problem.group_of_op[device != device[problem.group_of_op]])
    for first in split.tolist():
        members = np.flatnonzero(problem.group_of_op == first)
        names = [problem.graph.op_names[v] for v in members]
        where = sorted({shown(problem.cluster.devices[d].name) for d in device[members]})
        text = f"{_group_text(names)} is split over {', '.join(where)}"
        faults.append(Fault("colocation", text, ops=tuple(names)))
    return faults


def _memory_faults(problem: Problem, used: FloatArray) -> list[Fault]:
    return [
        Fault(
            "memory",
            f"device '{shown(d.name)}' needs {bytes_text(used[i])} ({used[i]:.0f} bytes) "
            f"but holds {bytes_text(d.memory_bytes)} ({d.memory_bytes:.0f} bytes)",
            device=d.name,
            limit=d.memory_bytes,
            value=float(used[i]),
        )
        for i, d in enumerate(problem.cluster.devices)
        if used[i] > d.memory_bytes
    ]


def _contiguity_faults(problem: Problem, device: NDArray[np.int32]) -> list[Fault]:
    stages = stage_order(problem, device)
    if stages is not None:
        return []
    source, target = problem.arrays.order_source, problem.arrays.order_target
    witness: dict[tuple[int, int], int] = {}
    for e in np.flatnonzero(device[source] != device[target]).tolist():
        witness.setdefault((int(device[source[e]]), int(device[target[e]])), e)
    cycle = _device_cycle(list(witness))
    steps, ops = [], []
    for s, d in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        u, v = (problem.graph.op_names[i[witness[s, d]]] for i in (source, target))
        ops += [u, v]
        steps.append(f"'{shown(problem.cluster.devices[s].name)}' needs to come before "
                     f"'{shown(problem.cluster.devices[d].name)}' ('{shown(u)}' -> '{shown(v)}')")  # fmt: skip
    return [Fault("contiguity", f"the stages do not form a chain: {' and '.join(steps)}", ops=tuple(ops))]


def _replica_faults(problem: Problem, device: NDArray[np.int32], replicas: NDArray[np.int32]) -> list[Fault]:
    faults = []
    used = np.bincount(device, minlength=problem.n_devices) > 0
    for d in np.flatnonzero(used & ((replicas < 1) | (replicas > problem.max_replicas))).tolist():
        name, count = problem.cluster.devices[d].name, int(replicas[d])
        text = f"the stage of '{shown(name)}' has {count} replicas, 1 to {problem.max_replicas} are allowed"
        faults.append(Fault("replicas", text, device=name, limit=problem.max_replicas, value=count))
    for group in problem.cluster.device_groups():
        wanted = int(replicas[group][used[group]].sum())
        if wanted > len(group):
            name = problem.cluster.devices[group[0]].name
            text = f"replicated stages need {wanted} devices like '{shown(name)}', there are {len(group)}"
            faults.append(Fault("replicas", text, device=name, limit=len(group), value=wanted))
    return faults


def stage_order(problem: Problem, device: NDArray[np.int32]) -> list[int] | None:
    """Return the used devices in pipeline order, or ``None`` if their stages depend on each other in a circle."""
    source, target = problem.arrays.order_source, problem.arrays.order_target
    pairs = {(int(s), int(d)) for s, d in zip(device[source], device[target], strict=True) if s != d}
    # First op first, so that unrelated stages come in the model's own order.
    _, first = np.unique(device, return_index=True)
    left = [int(device[v]) for v in sorted(first)]
    order: list[int] = []
    while left:
        free = next((d for d in left if not any((s, d) in pairs for s in left)), None)
        if free is None:
            return None
        order.append(free)
        left.remove(free)
    return order


def _device_cycle(pairs: list[tuple[int, int]]) -> list[int]:
    left = {d for pair in pairs for d in pair}
    while True:  # drop devices that nothing leads to; what is left has a predecessor each
        blocked = {d for d in left if any(t == d and s in left for s, t in pairs)}
        if blocked == left:
            break
        left = blocked
    path = [min(left)]
    while path.count(path[-1]) < 2:
        path.append(next(s for s, t in pairs if t == path[-1] and s in left))
    return path[path.index(path[-1]) + 1 :][::-1]
