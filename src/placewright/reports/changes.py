"""What differs between two placements of one model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.placement import Placement
from placewright.reports.packing import shared_start
from placewright.text import shown, shown_list


class MovedGroup(NamedTuple):
    """Ops of one module that moved from one device to another. Times are seconds of compute there."""

    path: str
    ops: list[str]
    from_device: str
    to_device: str
    from_s: float
    to_s: float


class Changes(NamedTuple):
    """``moved`` [ops] marks ops whose device differs by name; ``groups`` sorts them by weight, heaviest first."""

    moved: NDArray[np.bool_]
    groups: list[MovedGroup]


def find_changes(a: Placement, b: Placement) -> Changes:
    """Compare two placements of the same ops, whatever their clusters and costs are."""
    first, second = _devices(a), _devices(b)
    names = a.problem.graph.op_names
    if names != b.problem.graph.op_names:
        other = set(b.problem.graph.op_names)
        missing = [n for n in names if n not in other]
        detail = f"only one has {shown_list(missing, 3)}" if missing else "their operators are in another order"
        raise InputError(f"two placements of different models cannot be compared: {detail}")
    moved = np.array([first[v] != second[v] for v in range(len(names))], dtype=np.bool_)
    return Changes(moved, _groups(a, b, moved, first, second))


def _devices(p: Placement) -> list[str]:
    if p.device_of_op is None:
        raise InputError("there is no placement to compare: " + (p.note or p.status))
    return [p.problem.cluster.devices[d].name for d in p.device_of_op.tolist()]


def _groups(
    a: Placement, b: Placement, moved: NDArray[np.bool_], first: list[str], second: list[str]
) -> list[MovedGroup]:
    graph = a.problem.graph
    members: dict[tuple[str, str, str], list[int]] = {}
    for v in np.flatnonzero(moved).tolist():
        path = graph.module_paths[v].replace("/", ".")
        members.setdefault((_head(path) or "", first[v], second[v]), []).append(v)
    groups = []
    for (_, here, there), ops in members.items():
        paths = [graph.module_paths[v].replace("/", ".").split(".") for v in ops]
        names = [graph.op_names[v] for v in ops]
        name = ".".join(paths[0][: shared_start(paths)]) or names[0][: shared_start(names)] or names[0]
        groups.append(
            MovedGroup(
                shown(name),
                names,
                here,
                there,
                _time_s(a, ops, here),
                _time_s(b, ops, there),
            )
        )
    return sorted(groups, key=lambda g: (-max(g.from_s, g.to_s), g.path))


def _head(path: str, depth: int = 2) -> str:
    return ".".join(path.split(".")[:depth])


def _time_s(p: Placement, ops: list[int], device: str) -> float:
    kind = p.problem.cluster.device_kind[p.problem.cluster.device_names.index(device)]
    return float(p.problem.op_time_s[ops, kind].sum())


def changes_document(a: Placement, b: Placement, changes: Changes) -> dict[str, Any]:
    """What ``placewright diff --json`` prints."""
    sides = [p.summary() for p in (a, b)]
    keys = ("status", "objective", "execution", "value", "bound", "gap", "placer", "segments", "bytes_moved", "devices")
    return {
        "a": {k: sides[0][k] for k in keys},
        "b": {k: sides[1][k] for k in keys},
        "ops": len(changes.moved),
        "ops_moved": int(changes.moved.sum()),
        "moved": [g._asdict() for g in changes.groups],
    }
