"""A traced forward as an :class:`OpGraph`: one op per call of a unit and per stretch of own code."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from placewright.graph import OpGraph, build_graph
from placewright.live.trace import Trace
from placewright.live.units import Units

INPUT, OUTPUT = "(caller's inputs)", "(caller's outputs)"


@dataclass
class Node:
    """An op to be: ``path`` is a unit, or the container whose home the code runs at."""

    name: str
    path: str
    is_unit: bool
    n_operators: int = 0
    flops: float = 0.0
    index_numel: int = 0
    peak_bytes: int = 0
    inputs: dict[int, None] = field(default_factory=dict)  # tensors read that others made


class Slots(NamedTuple):
    """Tensors that need not be moved, by module: arguments its own code never reads, results its caller never reads."""

    idle_arguments: dict[str, frozenset[str]]
    idle_results: dict[str, frozenset[str]]


@dataclass(frozen=True)
class LiveModel:
    """What dispatching and costs need besides the graph."""

    units: Units
    slots: Slots
    weight_bytes: dict[str, float]  # by unit or home
    cache_bytes: dict[str, float]  # by unit
    workspace_bytes: float
    ties: tuple[tuple[str, ...], ...]
    changes_in_place: bool
    phases: tuple[str, ...]
    nodes: dict[str, Node]
    layer_of_unit: dict[str, int]  # units with a cache of their own: which layer of it
    stacked: dict[str, int]  # units with stacked weights that an index chooses from: how many
    table_rows: dict[str, int]  # units that look rows up: how many there are


def with_shared_homes(units: Units, traces: list[Trace]) -> Units:
    """Containers without own code share the home of their caller."""
    codes = {units.owner[_path(trace, r.call)] for trace in traces for r in trace.records}
    home_of = dict(units.home_of)
    for path in units.containers:
        if path and path not in codes and home_of[path] == path:
            home_of[path] = home_of[units.parent[path]]
    for path in units.containers:
        while home_of[home_of[path]] != home_of[path]:
            home_of[path] = home_of[home_of[path]]
    return Units(units.paths, units.containers, units.owner, home_of, units.parent)


def nodes_of(trace: Trace, units: Units) -> tuple[list[Node], dict[int, int]]:
    """Ops in running order, and which of them made each tensor. The first stands for the caller's inputs."""
    nodes = [Node(INPUT, "", True)]
    made_by: dict[int, int] = {trace.origin(t): 0 for t in trace.calls[0].arguments.values()}
    unit_paths = set(units.paths)
    models = _device_models(trace, units)
    node_of_call: dict[int, int] = {}
    counts: dict[str, int] = defaultdict(int)
    for index, record in enumerate(trace.records):
        owner = units.owner[_path(trace, record.call)]
        if owner in unit_paths:
            number = _call_of(trace, record.call, owner)
            if number not in node_of_call:
                node_of_call[number] = len(nodes)
                call = trace.calls[number]
                again = f"#{counts[owner]}" if counts[owner] else ""
                counts[owner] += 1
                nodes.append(Node(owner + again, owner, True, index_numel=call.index_numel, peak_bytes=call.peak_bytes))
            at = node_of_call[number]
        else:
            home = units.home_of[owner]
            if nodes[-1].is_unit or nodes[-1].path != home:
                name = f"{home}/code.{counts[home]}" if home else f"code.{counts[home]}"
                counts[home] += 1
                nodes.append(Node(name, home, False))
            at = len(nodes) - 1
        node = nodes[at]
        node.n_operators += 1
        node.flops += record.flops
        for tensor in [*record.inputs, *models.get(index, ())]:
            origin = trace.origin(tensor)
            if origin in made_by and made_by[origin] != at:
                node.inputs[origin] = None
        for tensor in record.outputs:
            made_by[tensor] = at
    last = Node(OUTPUT, "", True)
    for tensor in trace.calls[0].results.values():
        if trace.origin(tensor) in made_by:
            last.inputs[trace.origin(tensor)] = None
    return [*nodes, last], made_by


def module_graph(
    name: str, trace: Trace, units: Units, weight_bytes: dict[str, float], ties: tuple[tuple[str, ...], ...]
) -> tuple[OpGraph, list[Node]]:
    """The graph of one traced forward; weights weigh on the first op of their unit or home."""
    nodes, made_by = nodes_of(trace, units)
    consumers: dict[int, list[int]] = defaultdict(list)
    for number, node in enumerate(nodes):
        for tensor in node.inputs:
            consumers[tensor].append(number)
    tensors = [(made_by[t], float(trace.tensors[t].size_bytes), to) for t, to in consumers.items()]
    tensors.sort(key=lambda t: (t[0], t[2]))
    group = _groups(nodes, ties)
    seen: set[str] = set()
    weights = []
    for node in nodes:
        first = node.path not in seen and node.name not in (INPUT, OUTPUT)
        weights.append(weight_bytes.get(node.path, 0.0) if first else 0.0)
        if first:
            seen.add(node.path)
    for path in weight_bytes.keys() - seen:  # no code of its own: with what shares its weights, or with the caller
        tied = next((p for tie in ties if path in tie for p in tie if p in seen), None)
        at = next((i for i, n in enumerate(nodes) if n.path == tied and n.name != INPUT), 0) if tied else 0
        weights[at] += weight_bytes[path]
    graph, _ = build_graph(
        name,
        [n.name for n in nodes],
        tensors,
        op_types=["module" if n.is_unit else "code" for n in nodes],
        op_classes=["free" if n.name in (INPUT, OUTPUT) else "matmul" if n.flops else "elementwise" for n in nodes],
        module_paths=[n.path for n in nodes],
        weight_bytes=weights,
        flops=[n.flops for n in nodes],
        colocation=group,
    )
    return graph, nodes


def find_slots(traces: list[Trace], units: Units) -> Slots:
    """Which arguments and results can stay where they are, in every forward that was traced."""
    idle: tuple[dict[str, set[str]], dict[str, set[str]]] = (defaultdict(set), defaultdict(set))
    busy: tuple[dict[str, set[str]], dict[str, set[str]]] = (defaultdict(set), defaultdict(set))
    containers, placed = set(units.containers), {*units.paths, *units.containers}
    for trace in traces:
        read: dict[str, set[int]] = defaultdict(set)
        models = _device_models(trace, units)
        for index, record in enumerate(trace.records):
            owner = units.owner[_path(trace, record.call)]
            if owner in containers:
                read[owner].update(trace.origin(t) for t in [*record.inputs, *models.get(index, ())])
        for call in trace.calls:
            if call.path in containers:
                _sort_slots(trace, call.arguments, read[call.path], idle[0][call.path], busy[0][call.path])
            if call.path in placed and call.path:
                caller = units.parent[call.path]
                _sort_slots(trace, call.results, read[caller], idle[1][call.path], busy[1][call.path])
    return Slots(
        {path: frozenset(slots - busy[0][path]) for path, slots in idle[0].items()},
        {path: frozenset(slots - busy[1][path]) for path, slots in idle[1].items()},
    )


def _device_models(trace: Trace, units: Units) -> dict[int, list[int]]:
    """For own code that makes tensors from nothing: the tensors at hand, one of which told it the device.

    Keys are the last such operators of every call of a container; values its arguments and what its calls returned.
    """
    containers = set(units.containers)
    last: dict[int, int] = {}
    for index, record in enumerate(trace.records):
        if record.from_nothing and units.owner[_path(trace, record.call)] in containers:
            call = record.call
            while call >= 0 and trace.calls[call].path not in containers:
                call = trace.calls[call].parent
            last[call] = index
    found: dict[int, list[int]] = {}
    for call, index in last.items():
        if call < 0:
            continue
        tensors = list(trace.calls[call].arguments.values())
        for child in trace.calls:
            if child.parent == call and child.ended and child.ended <= index:
                tensors += child.results.values()
        found[index] = tensors
    return found


def _sort_slots(trace: Trace, slots: dict[str, int], read: set[int], idle: set[str], busy: set[str]) -> None:
    for slot, tensor in slots.items():
        (busy if trace.origin(tensor) in read else idle).add(slot)


def _groups(nodes: list[Node], ties: tuple[tuple[str, ...], ...]) -> list[int]:
    """Colocation classes: calls of one unit, one home's code, and whatever shares weights."""
    numbers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if node.name not in (INPUT, OUTPUT):
            numbers.setdefault(node.path, number)
    for tied in ties:
        keys = [key for key in tied if key in numbers]
        if keys:
            root = min(numbers[k] for k in keys)
            old = {numbers[k] for k in keys}
            numbers.update({key: root for key, n in numbers.items() if n in old})
    return [-1 if n.name in (INPUT, OUTPUT) else numbers[n.path] for n in nodes]


def _path(trace: Trace, call: int) -> str:
    return trace.calls[call].path if call >= 0 else ""


def _call_of(trace: Trace, call: int, path: str) -> int:
    while trace.calls[call].path != path:
        call = trace.calls[call].parent
    return call


def owners_of_weights(model: Any, units: Units) -> dict[int, tuple[Any, list[str]]]:
    """Every parameter and buffer once, by identity, with the units and homes that hold it."""
    held: dict[int, tuple[Any, list[str]]] = {}
    unit_paths = set(units.paths)
    for path, module in model.named_modules():
        owner = units.owner[path]
        key = owner if owner in unit_paths else units.home_of[owner]
        for tensor in [*module._parameters.values(), *module._buffers.values()]:
            if tensor is not None:
                entry = held.setdefault(id(tensor), (tensor, []))
                if key not in entry[1]:
                    entry[1].append(key)
    return held
