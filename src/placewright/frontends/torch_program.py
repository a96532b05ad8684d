"""An exported torch program in plain data, however it was obtained, and its records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from placewright.errors import InputError
from placewright.frontends.assemble import BodyWork, OpRecord, Role, TensorInfo, body_work
from placewright.frontends.flops import Shape, Work, bits_bytes, elements
from placewright.frontends.torch_ops import (
    CONTROL,
    KIND_OF_TYPE,
    SCALAR_NAMESPACES,
    SOURCES,
    Call,
    short_type,
    torch_work,
)
from placewright.text import shown


class Value(NamedTuple):
    """A tensor (or a number, of shape ``()``): shape and bits per element."""

    shape: Shape
    bits: int
    is_integer: bool = False

    @property
    def size_bytes(self) -> float:
        return bits_bytes(self.shape, self.bits)


class Ref(NamedTuple):
    """An argument that is another value of the program, by name."""

    name: str


class Weight(NamedTuple):
    """A parameter, buffer or constant tensor: its name in the module, and whether training changes it."""

    path: str
    is_trained: bool


@dataclass
class Node:
    """One call. ``outputs`` are value names; arguments may hold :class:`Ref`, numbers, texts, lists and programs."""

    name: str
    target: str
    arguments: dict[str, Any]
    outputs: list[str]
    module_path: str = ""
    is_backward: bool = False
    together: tuple[str, ...] = ()


@dataclass
class Program:
    """Nodes in order, the values they exchange, inputs, weights, results, and buffers that some value replaces."""

    nodes: list[Node]
    values: dict[str, Value]
    inputs: list[str]
    weights: dict[str, Weight] = field(default_factory=dict)
    results: set[str] = field(default_factory=set)
    replaced: dict[str, str] = field(default_factory=dict)  # value name: path of the buffer
    backward_inputs: set[str] = field(default_factory=set)
    gradients: dict[str, str] = field(default_factory=dict)  # weight: the value that is its gradient
    state_per_weight: float = 0.0  # what the optimizer keeps, in sizes of the weights


def program_records(program: Program, where: str) -> list[OpRecord]:
    """Records of all inputs and calls. A weight is charged to its first reader."""
    place: dict[str, tuple[int, int]] = {}
    records: list[OpRecord] = []
    for name in program.inputs:
        place[name] = (len(records), 0)
        info = _tensor(program, name)
        backward = name in program.backward_inputs
        records.append(OpRecord(name, "placeholder", "free", outputs=[info], role="input", is_backward=backward))
    bearer: dict[str, int] = {}
    changed = [_changed_in_place(node) for node in program.nodes]
    state_paths = {program.weights[name].path for name in changed if name in program.weights}
    state_paths |= set(program.replaced.values())
    for node, changed_value in zip(program.nodes, changed, strict=True):
        read = list(dict.fromkeys(references(node.arguments)))
        record = _record(program, node, where)
        record.inputs = [place[name] for name in read if name in place]
        weights = [(name, program.weights[name]) for name in read if name in program.weights]
        for name, weight in weights:
            if name not in bearer:
                bearer[name] = len(records)
                size = program.values[name].size_bytes
                record.weight_bytes += size
                record.trained_bytes += size * weight.is_trained
        # Whoever reads a buffer that the step replaces, and whoever makes its new value, stay together.
        states = {w.path for _, w in weights if w.path in state_paths}
        states |= {program.replaced[name] for name in node.outputs if name in program.replaced}
        record.together += tuple(f"buffer {path}" for path in sorted(states))
        if states:
            record.role = "source"
        elif record.role == "compute" and node.target.startswith("aten.") and all(n in program.weights for n in read):
            record.role = "constant"
        place.update((name, (len(records), o)) for o, name in enumerate(node.outputs))
        if changed_value is not None:  # whoever reads it from here on reads what this node made of it
            place[changed_value] = (len(records), 0)
        records.append(record)
    return records + _updates(program, records, bearer, place)


def _updates(
    program: Program, records: list[OpRecord], bearer: dict[str, int], place: dict[str, tuple[int, int]]
) -> list[OpRecord]:
    """One op per bearer of trained weights: it holds gradients and the optimizer's state, and stays with the bearer."""
    updates: dict[int, OpRecord] = {}
    for weight, gradient in program.gradients.items():
        if weight not in bearer or gradient not in place:
            continue
        owner = records[bearer[weight]]
        if bearer[weight] not in updates:
            key = (f"update {owner.name}",)
            owner.together += key
            updates[bearer[weight]] = OpRecord(
                f"{owner.name}/update", "Update", "elementwise", module_path=owner.module_path, role="source",
                together=key, is_backward=True,
            )  # fmt: skip
        update, value = updates[bearer[weight]], program.values[weight]
        update.inputs.append(place[gradient])
        update.flops += elements(value.shape) * (2 + 3 * program.state_per_weight)
        update.weight_bytes += value.size_bytes * (1 + program.state_per_weight)
    return list(updates.values())


def _changed_in_place(node: Node) -> str | None:
    """The value that an in-place operator (``add_``) writes to."""
    parts = node.target.split(".")
    first = next(iter(node.arguments.values()), None)
    is_in_place = parts[0] == "aten" and len(parts) > 1 and parts[1].endswith("_") and not parts[1].endswith("__")
    return first.name if is_in_place and isinstance(first, Ref) else None


def references(argument: Any) -> list[str]:
    """Names of all values in an argument, in order."""
    if isinstance(argument, Ref):
        return [argument.name]
    if isinstance(argument, dict):
        return [name for item in argument.values() for name in references(item)]
    if isinstance(argument, (list, tuple)):
        return [name for item in argument for name in references(item)]
    return []


def _record(program: Program, node: Node, where: str) -> OpRecord:
    record = OpRecord(
        node.name,
        node.target,
        "",
        outputs=[_tensor(program, name) for name in node.outputs],
        module_path=node.module_path,
        role=_role(node.target),
        together=node.together,
        is_backward=node.is_backward,
    )
    bodies = [item for item in _flat(node.arguments) if isinstance(item, Program)]
    if short_type(node.target) in CONTROL or bodies:
        body = _control(short_type(node.target), node, program, bodies, where)
        record.op_class, record.flops = "control", body.flops
        record.weight_bytes, record.unknown_inside = body.weight_bytes, body.unknown
        return record
    if node.target.startswith(SCALAR_NAMESPACES):  # arithmetic on sizes
        record.op_class = "free"
        return record
    record.op_class, record.flops = _work(program, node, where)
    return record


def _work(program: Program, node: Node, where: str) -> Work:
    def shape(ref: Ref) -> Shape:
        return program.values[ref.name].shape if ref.name in program.values else ()

    call = Call(
        node.arguments,
        {key: shape(item) for key, item in node.arguments.items() if isinstance(item, Ref)},
        [shape(Ref(name)) for name in references(node.arguments)],
        [program.values[name].shape for name in node.outputs if name in program.values],
    )
    try:
        return torch_work(node.target, call)
    except (IndexError, KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InputError(
            f"{where}: node '{shown(node.name)}' of type {shown(node.target)} has arguments that do not fit it"
        ) from error


def _role(target: str) -> Role:
    name = short_type(target)
    if target.split(".")[0] != "aten":
        return "compute"
    if name in SOURCES:
        return "source"
    return "shape" if KIND_OF_TYPE.get(name) == "shape" else "compute"


def _control(name: str, node: Node, program: Program, bodies: list[Program], where: str) -> BodyWork:
    works = [body_work(program_records(body, where), where) for body in bodies]
    weights = sum(w.weight_bytes for w in works)
    unknown = sum((w.unknown for w in works), Counter[str]())
    runs = 1
    if name in ("scan", "map", "map_impl", "associative_scan"):
        first = next((program.values[n].shape for n in references(node.arguments) if n in program.values), ())
        runs = first[0] if first else 1
    flops = max((w.flops for w in works), default=0.0) if name == "cond" else sum(w.flops for w in works) * runs
    return BodyWork(flops, weights, unknown)


def _flat(argument: Any) -> list[Any]:
    if isinstance(argument, dict):
        return [item for value in argument.values() for item in _flat(value)]
    if isinstance(argument, (list, tuple)) and not isinstance(argument, Ref):
        return [item for value in argument for item in _flat(value)]
    return [argument]


def _tensor(program: Program, name: str) -> TensorInfo:
    value = program.values.get(name, Value((), 0))
    return TensorInfo(name, value.shape, value.size_bytes, value.is_integer, is_result=name in program.results)
