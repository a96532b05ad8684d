"""A placement made on one graph of a model, carried over to another: zoo to export, torch to OpenVINO to ONNX."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.graph import OpGraph
from placewright.placement import Placement
from placewright.text import shown

HOW = ("name", "path", "prefix", "neighbour", "default")


class Transferred(NamedTuple):
    """Devices for the ops of the other graph, and by what each op was matched (one of ``HOW``).

    ``conflicts`` counts ops that had to follow the rest of their colocation class.
    """

    device_of_op: NDArray[np.int32]
    matched_by: tuple[str, ...]
    conflicts: int

    @property
    def counts(self) -> dict[str, int]:
        """How many ops were matched how."""
        return {how: self.matched_by.count(how) for how in HOW}


def transfer_placement(
    placement: Placement | NDArray[np.integer], from_graph: OpGraph, to_graph: OpGraph
) -> Transferred:
    """Carry devices from the ops of one graph to those of another.

    An op takes the device of the op with its name; else of the ops with its module path; else of those that share the
    longest beginning of its path; else of the nearest matched op along the graph's edges. Where several ops qualify,
    those of the same class and direction count first, and the device with most work among them wins. At the end
    every colocation class goes where most of its work is.
    """
    devices = placement.device_of_op if isinstance(placement, Placement) else placement
    if devices is None:
        raise InputError("there is no placement to transfer")
    devices = np.asarray(devices, dtype=np.int32)
    if devices.shape != (from_graph.n_ops,):
        raise InputError(f"the placement is for {len(devices)} operators, graph '{shown(from_graph.name)}' has others")
    target = np.full(to_graph.n_ops, -1, dtype=np.int32)
    matched_by = [""] * to_graph.n_ops
    votes = _Votes(from_graph, devices)
    for v in range(to_graph.n_ops):
        found = votes.by_name(to_graph, v)
        if found is not None:
            target[v], matched_by[v] = found
    _follow_neighbours(to_graph, target, matched_by, _default_device(from_graph, devices))
    settled = _settle_classes(to_graph, target)
    return Transferred(settled, tuple(matched_by), int((settled != target).sum()))


class _Votes:
    """Work per device, by every key that an op of the other graph may ask with."""

    def __init__(self, graph: OpGraph, devices: NDArray[np.int32]) -> None:
        self.index, self.devices = graph.index_of, devices
        self.table: dict[Hashable, dict[int, float]] = {}
        work = _work(graph)
        for v, path in enumerate(graph.module_paths):
            backward = bool(graph.is_backward[v])
            for prefix in _prefixes(path or _path_like(graph.op_names[v])):
                for key in ((prefix, backward, graph.op_classes[v]), (prefix, backward), prefix):
                    of_device = self.table.setdefault(key, {})
                    of_device[int(devices[v])] = of_device.get(int(devices[v]), 0.0) + work[v]

    def by_name(self, graph: OpGraph, v: int) -> tuple[int, str] | None:
        name, path = graph.op_names[v], graph.module_paths[v]
        if name in self.index:
            return int(self.devices[self.index[name]]), "name"
        backward, op_class = bool(graph.is_backward[v]), graph.op_classes[v]
        for prefix in _prefixes(path or _path_like(name)):
            for key in ((prefix, backward, op_class), (prefix, backward), prefix):
                if key in self.table:
                    return _most(self.table[key]), "path" if prefix == path else "prefix"
        return None


def _path_like(name: str) -> str:
    """A name that may itself be a path: zoo graphs call their ops after modules."""
    return "" if "/" in name or "::" in name else name


def _prefixes(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _most(of_device: dict[int, float]) -> int:
    return min(of_device, key=lambda d: (-of_device[d], d))


def _work(graph: OpGraph) -> list[float]:
    """Weight of an op in a vote: its flops and the bytes it holds, and a little for being there."""
    return (graph.flops + graph.weight_bytes + 1e-3).tolist()


def _default_device(graph: OpGraph, devices: NDArray[np.int32]) -> int:
    of_device: dict[int, float] = {}
    for d, work in zip(devices.tolist(), _work(graph), strict=True):
        of_device[d] = of_device.get(d, 0.0) + work
    return _most(of_device)


def _follow_neighbours(graph: OpGraph, target: NDArray[np.int32], matched_by: list[str], default: int) -> None:
    """Breadth first from the matched ops; among equally near ones producers come before consumers."""
    before: list[list[int]] = [[] for _ in range(graph.n_ops)]
    after: list[list[int]] = [[] for _ in range(graph.n_ops)]
    for u, v in zip(graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True):
        before[v].append(u)
        after[u].append(v)
    open_ops = [v for v in range(graph.n_ops) if target[v] < 0]
    while open_ops:
        reached = []
        for v in open_ops:
            near = next((int(target[u]) for u in [*before[v], *after[v]] if target[u] >= 0), None)
            if near is not None:
                reached.append((v, near))
        if not reached:
            break
        for v, device in reached:
            target[v], matched_by[v] = device, "neighbour"
        open_ops = [v for v in open_ops if target[v] < 0]
    for v in open_ops:
        target[v], matched_by[v] = default, "default"


def _settle_classes(graph: OpGraph, target: NDArray[np.int32]) -> NDArray[np.int32]:
    votes: dict[int, dict[int, float]] = {}
    work = _work(graph)
    for v, c in enumerate(graph.colocation.tolist()):
        if c >= 0:
            of_device = votes.setdefault(c, {})
            of_device[int(target[v])] = of_device.get(int(target[v]), 0.0) + work[v]
    winner = {c: _most(of_device) for c, of_device in votes.items()}
    return np.array(
        [winner.get(c, d) for c, d in zip(graph.colocation.tolist(), target.tolist(), strict=True)], np.int32
    )
