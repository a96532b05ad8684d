"""From an inference graph to one training step: every op gets its backward ops, every weight its update.

The rules, for an op that depends on weights (others, such as inputs and constants, need no gradients):

- A product (class ``conv``, ``conv1x1``, ``depthwise`` or ``matmul``) gets one backward op per gradient, each with the
  flops of the forward op: ``NAME/grad_input`` for an input tensor that needs one (numbered where several do),
  ``NAME/grad_weight`` for its own weights.
- Any other op gets one op ``NAME/grad`` for all its gradients, with the forward flops, twice that where it has weights
  or is attention.
- Where a tensor has several consumers, their gradients are summed as they come, by ``NAME/sum_K``.
- An op with weights gets ``NAME/update``. It holds the gradient (as large as the weights) and the optimizer's state.
- One op ``loss`` reads all results and starts the gradients.

Backward ops share their op's device (its colocation class) and module path. They read the activations that their
derivative needs, which therefore stay alive until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from placewright.errors import InputError
from placewright.frontends.assemble import fingerprint
from placewright.graph import FloatArray, IntArray, OpGraph, build_graph
from placewright.text import shown

STATE_PER_WEIGHT = {"sgd": 0.0, "momentum": 1.0, "adam": 2.0}
_PRODUCTS = frozenset({"conv", "conv1x1", "depthwise", "matmul"})
_READS_NOTHING = frozenset({"move", "free", "reduce"})
_STOPS_GRADIENTS = frozenset({"StopGradient", "Detach"})
_LINEAR_TYPES = frozenset(
    {"add", "subtract", "sub", "neg", "shift", "scale", "divideby", "identity", "dropout", "convert", "cast"}
)
_FROM_OUTPUT_TYPES = frozenset({"relu", "relu6", "sigmoid", "tanh", "exp", "sqrt", "softmax", "logsoftmax"})


def mirror_training(graph: OpGraph, optimizer: str = "adam") -> OpGraph:
    """Return ``graph`` with a loss, backward ops and updates; ``optimizer`` is sgd, momentum or adam.

    A frontend that knows more may leave in the metadata: ``trained_bytes``, the part of each op's ``weight_bytes`` that
    is trained (all of it otherwise), and ``integer_tensors``, the numbers of tensors that have no gradient. In a
    graph without trained weights, all ops get backward ops.
    """
    if optimizer not in STATE_PER_WEIGHT:
        raise InputError(f"optimizer '{shown(optimizer)}' is not known, expected one of {', '.join(STATE_PER_WEIGHT)}")
    if bool(graph.is_backward.any()):
        raise InputError(f"graph '{shown(graph.name)}' has backward operators already")
    return _Mirror(graph, optimizer).result()


@dataclass
class _Columns:
    """Ops and tensors of the graph to be, as lists."""

    names: list[str]
    types: list[str]
    classes: list[str]
    paths: list[str]
    weight_bytes: list[float]
    flops: list[float]
    colocation: list[int]
    producer: list[int] = field(default_factory=list)
    size_bytes: list[float] = field(default_factory=list)
    consumers: list[list[int]] = field(default_factory=list)
    tensor_names: list[str] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)


class _Mirror:
    """Walks the forward ops backwards; ``gradient[t]`` is the tensor that holds the gradient of tensor ``t`` so far."""

    def __init__(self, graph: OpGraph, optimizer: str) -> None:
        g = self.forward = graph
        self.optimizer = optimizer
        self.state_per_weight = STATE_PER_WEIGHT[optimizer]
        self.trained_bytes = np.asarray(g.metadata.get("trained_bytes", g.weight_bytes), dtype=np.float64)
        self.integers = frozenset(g.metadata.get("integer_tensors", ()))
        self.taken = set(g.op_names)
        self.columns = c = _Columns(
            list(g.op_names), list(g.op_types), list(g.op_classes), list(g.module_paths),
            g.weight_bytes.tolist(), g.flops.tolist(), _own_classes(g.colocation),
        )  # fmt: skip
        c.producer, c.size_bytes = g.tensor_producer.tolist(), g.tensor_bytes.tolist()
        c.consumers = [part.tolist() for part in np.split(g.consumer_op, g.consumer_ptr[1:-1])] if g.n_tensors else []
        c.tensor_names, c.shapes = list(g.tensor_names), list(g.tensor_shapes)
        self.inputs = [part.tolist() for part in np.split(g.input_tensor, g.input_ptr[1:-1])]
        self.outputs = [list(range(a, b)) for a, b in zip(g.tensor_ptr[:-1], g.tensor_ptr[1:], strict=True)]
        self.needs = _needs_gradient(g, self.trained_bytes)
        self.gradient: dict[int, int] = {}
        self.sums: dict[int, int] = {}

    def result(self) -> OpGraph:
        g, c = self.forward, self.columns
        self._add_loss()
        for op in range(g.n_ops - 1, -1, -1):
            if self.needs[op]:
                self._add_backward(op)
        backward = np.arange(len(c.names)) > g.n_ops
        graph, _ = build_graph(
            g.name,
            c.names,
            list(zip(c.producer, c.size_bytes, c.consumers, strict=True)),
            op_types=c.types,
            op_classes=c.classes,
            module_paths=c.paths,
            weight_bytes=c.weight_bytes,
            flops=c.flops,
            is_backward=backward,
            colocation=c.colocation,
            tensor_names=c.tensor_names,
            tensor_shapes=c.shapes,
            metadata={**g.metadata, "training": self.optimizer},
        )
        for key in ("trained_bytes", "integer_tensors"):  # by the numbers of the inference graph
            graph.metadata.pop(key, None)
        graph.metadata["fingerprint"] = fingerprint(graph)
        return graph

    def _add_loss(self) -> None:
        results = [op for op in range(self.forward.n_ops) if self._is_result(op)]
        loss = self._add_op("loss", "Loss", "reduce", "", -1, 0.0)
        for op in results:
            if not self.outputs[op]:
                self.outputs[op] = [self._add_tensor(op, 0.0, (), "")]
            for tensor in self.outputs[op]:
                if not self.columns.consumers[tensor]:
                    self.columns.consumers[tensor].append(loss)
                    self.columns.flops[loss] += self.columns.size_bytes[tensor] / 4
                    if self.needs[op] and tensor not in self.integers:
                        self._contribute(tensor, loss)

    def _is_result(self, op: int) -> bool:
        return any(not self.columns.consumers[t] for t in self.outputs[op]) or not self.outputs[op]

    def _add_backward(self, op: int) -> None:
        g = self.forward
        incoming = [self.gradient[t] for t in self.outputs[op] if t in self.gradient]
        if not incoming:
            return
        wanted = [t for t in self.inputs[op] if self.needs[g.tensor_producer[t]] and t not in self.integers]
        has_weights = self.trained_bytes[op] > 0
        if g.op_classes[op] in _PRODUCTS:
            for place, tensor in enumerate(wanted):
                others = [t for t in self.inputs[op] if t != tensor]
                suffix = "grad_input" if len(wanted) == 1 else f"grad_input{place}"
                step = self._add_step(op, suffix, g.flops[op], incoming, others)
                self._contribute(tensor, step)
            if has_weights:
                step = self._add_step(op, "grad_weight", g.flops[op], incoming, self.inputs[op])
                self._add_update(op, [self._add_tensor(step, 0.0, (), "")])
        elif wanted:
            factor = 2.0 if has_weights or g.op_classes[op] == "attention" else 1.0
            step = self._add_step(op, "grad", factor * g.flops[op], incoming, self._saved(op))
            for tensor in wanted:
                self._contribute(tensor, step)
            if has_weights:
                self._add_update(op, [self._add_tensor(step, 0.0, (), "")])
        elif has_weights:
            self._add_update(op, incoming + (self.inputs[op] if g.op_classes[op] == "embedding" else []))

    def _saved(self, op: int) -> Sequence[int]:
        """Forward tensors that the derivative of an op reads."""
        kind, op_class = self.forward.op_types[op].lower(), self.forward.op_classes[op]
        if op_class in _READS_NOTHING or (op_class == "elementwise" and kind in _LINEAR_TYPES):
            return ()
        if op_class == "embedding" and self.integers:
            return [t for t in self.inputs[op] if t in self.integers]  # which rows, not the table
        if op_class == "softmax" or kind in _FROM_OUTPUT_TYPES:
            return self.outputs[op]
        return self.inputs[op]

    def _add_step(self, op: int, suffix: str, flops: float, incoming: Sequence[int], saved: Sequence[int]) -> int:
        g = self.forward
        name = f"{g.op_names[op]}/{suffix}"
        step = self._add_op(name, f"{g.op_types[op]}Grad", g.op_classes[op], g.module_paths[op], op, flops)
        for tensor in (*incoming, *saved):
            self.columns.consumers[tensor].append(step)
        return step

    def _contribute(self, tensor: int, step: int) -> None:
        """``step`` makes a gradient of ``tensor``; add it to what is there."""
        c, owner = self.columns, int(self.columns.producer[tensor])
        made = self._add_tensor(step, c.size_bytes[tensor], c.shapes[tensor], c.tensor_names[tensor])
        if tensor in self.gradient:
            self.sums[owner] = self.sums.get(owner, 0) + 1
            name = f"{c.names[owner]}/sum_{self.sums[owner]}"
            total = self._add_op(name, "AddGrad", "elementwise", c.paths[owner], owner, c.size_bytes[tensor] / 4)
            c.consumers[self.gradient[tensor]].append(total)
            c.consumers[made].append(total)
            made = self._add_tensor(total, c.size_bytes[tensor], c.shapes[tensor], c.tensor_names[tensor])
        self.gradient[tensor] = made

    def _add_update(self, op: int, reads: Sequence[int]) -> None:
        g, c = self.forward, self.columns
        weights = float(self.trained_bytes[op])
        flops = weights / 4 * (2 + 3 * self.state_per_weight)
        update = self._add_op(f"{g.op_names[op]}/update", "Update", "elementwise", g.module_paths[op], op, flops)
        c.weight_bytes[update] = weights * (1 + self.state_per_weight)
        for tensor in reads:
            c.consumers[tensor].append(update)

    def _add_op(self, name: str, kind: str, op_class: str, path: str, owner: int, flops: float) -> int:
        c = self.columns
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        c.names.append(name)
        c.types.append(kind)
        c.classes.append(op_class)
        c.paths.append(path)
        c.weight_bytes.append(0.0)
        c.flops.append(float(flops))
        c.colocation.append(c.colocation[owner] if owner >= 0 else -1)
        return len(c.names) - 1

    def _add_tensor(self, producer: int, size_bytes: float, shape: tuple[int, ...], name: str) -> int:
        c = self.columns
        c.producer.append(producer)
        c.size_bytes.append(size_bytes)
        c.consumers.append([])
        c.tensor_names.append(f"{name}/grad" if name else "")
        c.shapes.append(shape)
        return len(c.producer) - 1


def _own_classes(colocation: IntArray) -> list[int]:
    """Colocation classes with a class of its own for every op that had none."""
    classes = colocation.astype(np.int64)
    free = classes < 0
    classes[free] = int(classes.max(initial=-1)) + 1 + np.arange(int(free.sum()))
    return classes.tolist()


def _needs_gradient(g: OpGraph, trained_bytes: FloatArray) -> list[bool]:
    """Whether each op depends on trained weights; everything does in a graph that has none."""
    needs = (trained_bytes > 0).tolist()
    if not any(needs):
        return [True] * g.n_ops
    for u, v in sorted(zip(g.edge_producer.tolist(), g.consumer_op.tolist(), strict=True)):
        needs[v] = needs[v] or (needs[u] and g.op_types[v] not in _STOPS_GRADIENTS)
    return needs
