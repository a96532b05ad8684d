"""The tape: one model as a list of operators with shapes, work and weights, and its way to an ``OpGraph``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from placewright.frontends.assemble import fingerprint
from placewright.graph import OpGraph, build_graph

FLOAT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
INTEGER_BYTES = 8  # token ids and indices are 64-bit integers


class Value(NamedTuple):
    """One output of one op of a tape."""

    op: int  # position of the producing op
    port: int  # which of its outputs
    shape: tuple[int, ...]
    is_integer: bool = False


class Weight(NamedTuple):
    """A stored tensor of an op. ``name`` is the attribute of the torch module that holds it."""

    name: str
    shape: tuple[int, ...]
    is_trained: bool = True  # False: a buffer such as running statistics or a table of positions
    is_integer: bool = False


@dataclass(frozen=True, slots=True)
class TapeOp:
    """One operator. ``kind`` names its meaning, ``settings`` hold what besides inputs and weights determines it."""

    path: str
    kind: str
    op_class: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    flops: float = 0.0
    weights: tuple[Weight, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tape:
    """A whole model; ops are in an order in which they can run. Ops of kind ``Input`` come first."""

    name: str
    dtype: str
    ops: tuple[TapeOp, ...]
    outputs: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[TapeOp, ...]:
        return tuple(op for op in self.ops if op.kind == "Input")

    @property
    def parameters(self) -> int:
        """Number of trained values; shared weights count once."""
        return sum(math.prod(w.shape) for op in self.ops for w in op.weights if w.is_trained)

    def size_bytes(self, shape: tuple[int, ...], is_integer: bool) -> int:
        """Bytes of a tensor in this tape's element type."""
        return math.prod(shape) * (INTEGER_BYTES if is_integer else FLOAT_BYTES[self.dtype])


def tape_graph(tape: Tape) -> OpGraph:
    """The graph of a tape: op names and module paths are the tape's paths; outputs nobody reads are left out."""
    consumers: dict[tuple[int, int], list[int]] = {}
    for position, op in enumerate(tape.ops):
        for value in op.inputs:
            consumers.setdefault((value.op, value.port), []).append(position)
    results = {(v.op, v.port) for v in tape.outputs}
    tensors: list[tuple[int, float, list[int]]] = []
    names: list[str] = []
    shapes: list[tuple[int, ...]] = []
    integers: list[int] = []
    for op in tape.ops:
        for value in op.outputs:
            key = (value.op, value.port)
            if key not in consumers and key not in results:
                continue
            size = float(tape.size_bytes(value.shape, value.is_integer))
            if value.is_integer:
                integers.append(len(tensors))
            tensors.append((value.op, size, consumers.get(key, [])))
            names.append(op.path if len(op.outputs) == 1 else f"{op.path}:{value.port}")
            shapes.append(value.shape)
    paths = [op.path for op in tape.ops]
    graph, _ = build_graph(
        tape.name,
        paths,
        tensors,
        op_types=[op.kind for op in tape.ops],
        op_classes=[op.op_class for op in tape.ops],
        module_paths=paths,
        weight_bytes=[_weight_bytes(tape, op) for op in tape.ops],
        flops=[op.flops for op in tape.ops],
        tensor_names=names,
        tensor_shapes=shapes,
        metadata={
            "frontend": "zoo",
            "unknown_op_types": {},
            "trained_bytes": tuple(_weight_bytes(tape, op, only_trained=True) for op in tape.ops),
            "integer_tensors": tuple(integers),
        },
    )
    graph.metadata["fingerprint"] = fingerprint(graph)
    return graph


def _weight_bytes(tape: Tape, op: TapeOp, only_trained: bool = False) -> float:
    chosen = (w for w in op.weights if w.is_trained or not only_trained)
    return float(sum(tape.size_bytes(w.shape, w.is_integer) for w in chosen))
