"""From a framework's nodes to an :class:`OpGraph`, in one way for all frontends.

What a runtime knows before the first run is *tied*: constants, everything computed from constants only, and what is
computed from shapes (``ShapeOf -> Gather -> … -> Reshape``), for shapes are fixed here. A tied op stays in the graph,
so that node counts are the framework's own, but it is ``free``, moves no bytes, and shares the device of the first op
that uses it. The bytes of a constant are charged to that op as its weights. Other readers have an edge of zero bytes:
runtimes keep a copy of a constant wherever it is read, and tying all readers together would forbid good placements.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from placewright.errors import CycleError, InputError
from placewright.graph import OpGraph, build_graph, topological_order

Role = Literal["compute", "source", "input", "constant", "shape", "result"]


class TensorInfo(NamedTuple):
    """One output of a node."""

    name: str
    shape: tuple[int, ...]
    size_bytes: float
    is_integer: bool = False
    is_result: bool = False


@dataclass
class OpRecord:
    """One node of a framework's graph.

    ``inputs`` are (node, output) numbers. ``role``: ``constant`` and ``shape`` (the shape of its input) begin what is
    tied; ``source`` has no inputs but is computed at run time (random numbers, state); ``input`` and ``result`` are the
    model's ends. ``weight_bytes`` are the constants that the node holds or reads directly, ``trained_bytes`` those of
    them that training changes. Ops with a common entry in ``together`` share a device: the ends of one state, a forward
    op and its backward ops.
    """

    name: str
    type: str
    op_class: str
    flops: float = 0.0
    inputs: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[TensorInfo] = field(default_factory=list)
    module_path: str = ""
    weight_bytes: float = 0.0
    trained_bytes: float = 0.0
    role: Role = "compute"
    together: tuple[str, ...] = ()
    unknown_inside: Counter[str] = field(default_factory=Counter)  # unknown types within a body kept whole
    is_backward: bool = False


def assemble(
    name: str, records: Sequence[OpRecord], frontend: str, where: str, metadata: dict[str, Any] | None = None
) -> OpGraph:
    """Tie what is to be tied and build the graph. ``where`` begins the message if the nodes cannot make a graph."""
    if not records:
        raise InputError(f"{where}: the model has no operators")
    records = _in_order(records, where)
    tied = _tied(records)
    anchor = _anchors(records, tied)
    weights = [0.0] * len(records)
    trained = [0.0] * len(records)
    for v, record in enumerate(records):
        weights[anchor[v]] += record.weight_bytes
        trained[anchor[v]] += record.trained_bytes
    tensors, infos = _tensors(records, tied)
    unknown = Counter(r.type for v, r in enumerate(records) if r.op_class == "" and not tied[v])
    unknown += sum((r.unknown_inside for r in records), Counter())
    details: dict[str, Any] = {"frontend": frontend, **(metadata or {})}
    details["unknown_op_types"] = dict(sorted(unknown.items()))
    details["trained_bytes"] = tuple(trained)
    # Tensors stand in the order of their producers, so these numbers are the graph's. Zero bytes carry no gradient.
    details["integer_tensors"] = tuple(
        t for t, (made, info) in enumerate(zip(tensors, infos, strict=True)) if info.is_integer or made[1] == 0
    )
    graph, _ = build_graph(
        name,
        [r.name for r in records],
        tensors,
        op_types=[r.type for r in records],
        op_classes=["free" if t else r.op_class for r, t in zip(records, tied, strict=True)],
        module_paths=[r.module_path for r in records],
        weight_bytes=weights,
        flops=[0.0 if t else r.flops for r, t in zip(records, tied, strict=True)],
        is_backward=[r.is_backward for r in records],
        colocation=_colocation(records, anchor),
        tensor_names=[i.name for i in infos],
        tensor_shapes=[i.shape for i in infos],
        metadata=details,
    )
    graph.metadata["fingerprint"] = fingerprint(graph)
    return graph


def fingerprint(graph: OpGraph) -> str:
    """A hash of op names, types, tensor shapes and bytes, and edges; weights' values play no part."""
    digest = hashlib.sha256()
    for part in (graph.op_names, graph.op_types, graph.tensor_shapes):
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    for array in (graph.tensor_producer, graph.consumer_ptr, graph.consumer_op):
        digest.update(np.ascontiguousarray(array, dtype="<i4").tobytes())
    digest.update(np.ascontiguousarray(graph.tensor_bytes, dtype="<f8").tobytes())
    return digest.hexdigest()


class BodyWork(NamedTuple):
    """What the body of a control-flow op holds: flops of one run, bytes of its constants, types it does not know."""

    flops: float
    weight_bytes: float
    unknown: Counter[str]


def body_work(records: Sequence[OpRecord], where: str) -> BodyWork:
    """Sum up a body whose nodes do not become ops of their own."""
    ordered = _in_order(records, where)
    tied = _tied(ordered)
    active = [r for r, t in zip(ordered, tied, strict=True) if not t]
    return BodyWork(
        sum(r.flops for r in active),
        sum(r.weight_bytes for r in ordered),
        Counter(r.type for r in active if r.op_class == "") + sum((r.unknown_inside for r in active), Counter()),
    )


def unique_names(wanted: Sequence[str], fallback: Sequence[str]) -> list[str]:
    """Names that differ: the wanted one where it is given and new, else the fallback, else with a number.

    >>> unique_names(["a", "", "a"], ["x", "y", "z"])
    ['a', 'y', 'z']
    """
    taken = {name for name in wanted if name}
    seen: set[str] = set()
    names: list[str] = []
    for name, other in zip(wanted, fallback, strict=True):
        chosen = name
        if not chosen or chosen in seen:
            chosen = other if other and other not in taken else f"{name or other or 'op'}_{len(names)}"
            while chosen in taken:
                chosen += "_"
        taken.add(chosen)
        seen.add(chosen)
        names.append(chosen)
    return names


def _in_order(records: Sequence[OpRecord], where: str) -> list[OpRecord]:
    source = np.array([u for r in records for u, _ in r.inputs], dtype=np.int64)
    target = np.array([v for v, r in enumerate(records) for _ in r.inputs], dtype=np.int64)
    try:
        order = topological_order(len(records), source, target, [r.name for r in records]).tolist()
    except CycleError as error:
        raise InputError(f"{where}: {error}") from error
    position = {old: new for new, old in enumerate(order)}
    ordered = [records[old] for old in order]
    for record in ordered:
        record.inputs = [(position[u], o) for u, o in record.inputs]
    return ordered


def _tied(records: list[OpRecord]) -> list[bool]:
    tied: list[bool] = []
    for record in records:
        if record.role == "compute":
            tied.append(bool(record.inputs) and all(tied[u] for u, _ in record.inputs))
        else:
            tied.append(record.role in ("constant", "shape"))
    return tied


def _anchors(records: list[OpRecord], tied: list[bool]) -> list[int]:
    """For tied ops the first op that uses them, itself where nothing does; for results their producer."""
    first: list[int | None] = [None] * len(records)
    for v in range(len(records) - 1, -1, -1):
        user = first[v] if tied[v] else v
        for u, _ in records[v].inputs:
            known = first[u]
            if user is not None and (known is None or user < known):
                first[u] = user
    anchors = []
    for v, record in enumerate(records):
        user = first[v]
        if tied[v] and user is not None:
            anchors.append(user)
        elif record.role == "result" and record.inputs and not tied[record.inputs[0][0]]:
            anchors.append(record.inputs[0][0])
        else:
            anchors.append(v)
    return anchors


def _tensors(records: list[OpRecord], tied: list[bool]) -> tuple[list[tuple[int, float, list[int]]], list[TensorInfo]]:
    readers: dict[tuple[int, int], list[int]] = {}
    for v, record in enumerate(records):
        for source in record.inputs:
            readers.setdefault(source, []).append(v)
    tensors: list[tuple[int, float, list[int]]] = []
    infos: list[TensorInfo] = []
    for u, record in enumerate(records):
        for o, info in enumerate(record.outputs):
            users = readers.get((u, o), [])
            # A shape is known wherever it is asked for: its reader needs the order, not the bytes.
            needing = [v for v in users if not tied[u] and not tied[v]]
            ordering = [v for v in users if tied[u] or tied[v]]
            if needing or (info.is_result and not ordering):
                tensors.append((u, info.size_bytes, needing))
                infos.append(info)
            if ordering:
                tensors.append((u, 0.0, ordering))
                infos.append(info)
    return tensors, infos


def _colocation(records: list[OpRecord], anchor: list[int]) -> list[int]:
    parent = list(range(len(records)))

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    first_of: dict[str, int] = {}
    for v, record in enumerate(records):
        parent[root(v)] = root(anchor[v])
        for key in record.together:
            parent[root(v)] = root(first_of.setdefault(key, v))
    roots = [root(v) for v in range(len(records))]
    sizes = Counter(roots)
    number: dict[int, int] = {}
    return [number.setdefault(r, len(number)) if sizes[r] > 1 else -1 for r in roots]
