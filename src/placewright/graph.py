"""``OpGraph``: the operators and tensors of one model, in a fixed topological order. It knows no device."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import CycleError, InputError
from placewright.text import shown, shown_list

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OpGraph:
    """Operators and tensors as parallel arrays; use :func:`build_graph` to make one.

    Ops are numbered in a topological order: every tensor's consumers have larger numbers than its producer.
    A tensor belongs to the op that produces it; an op may produce any number of tensors. A tensor of zero bytes
    is a pure ordering dependency. A tensor without consumers is a result of the model.

    >>> graph, _ = build_graph("pair", ["a", "b"], [(0, 4.0, [1])])
    >>> graph.n_ops, graph.n_edges, graph.index_of["b"]
    (2, 1, 1)
    """

    name: str
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    op_classes: tuple[str, ...]  # the sort of work, as in op_classes.py, whatever the framework calls it
    module_paths: tuple[str, ...]
    weight_bytes: FloatArray  # [ops]
    flops: FloatArray  # [ops]
    is_backward: BoolArray  # [ops]
    colocation: IntArray  # [ops], -1 = free; ops of equal class must share a device
    tensor_producer: IntArray  # [tensors], ascending
    tensor_bytes: FloatArray  # [tensors]
    consumer_ptr: IntArray  # [tensors + 1] into consumer_op
    consumer_op: IntArray  # distinct and ascending within a tensor
    tensor_names: tuple[str, ...]
    tensor_shapes: tuple[tuple[int, ...], ...]
    metadata: dict[str, Any] = field(default_factory=dict)  # what a frontend needs on the way back

    @property
    def n_ops(self) -> int:
        return len(self.op_names)

    @property
    def n_tensors(self) -> int:
        return len(self.tensor_producer)

    @property
    def n_edges(self) -> int:
        """Number of (tensor, consumer) pairs."""
        return len(self.consumer_op)

    @cached_property
    def tensor_ptr(self) -> IntArray:
        """[ops + 1]: op ``v`` produces tensors ``tensor_ptr[v]:tensor_ptr[v + 1]``."""
        counts = np.bincount(self.tensor_producer, minlength=self.n_ops)
        return _frozen(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))

    @cached_property
    def edge_tensor(self) -> IntArray:
        """[edges]: the tensor of each (tensor, consumer) pair, parallel to ``consumer_op``."""
        return _frozen(np.repeat(np.arange(self.n_tensors, dtype=np.int32), np.diff(self.consumer_ptr)))

    @cached_property
    def edge_producer(self) -> IntArray:
        """[edges]: the producing op of each pair, parallel to ``consumer_op``."""
        return _frozen(self.tensor_producer[self.edge_tensor])

    @cached_property
    def input_ptr(self) -> IntArray:
        """[ops + 1]: op ``v`` reads tensors ``input_tensor[input_ptr[v]:input_ptr[v + 1]]``."""
        counts = np.bincount(self.consumer_op, minlength=self.n_ops)
        return _frozen(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))

    @cached_property
    def input_tensor(self) -> IntArray:
        """[edges]: tensors read by each op, ascending within an op."""
        order = np.argsort(self.consumer_op, kind="stable")
        return _frozen(self.edge_tensor[order])

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Op number by name."""
        return {name: i for i, name in enumerate(self.op_names)}

    def __repr__(self) -> str:
        return f"OpGraph({shown(self.name)!r}, ops={self.n_ops}, tensors={self.n_tensors}, edges={self.n_edges})"


def build_graph(
    name: str,
    op_names: Sequence[str],
    tensors: Sequence[tuple[int, float, Sequence[int]]],
    *,
    op_types: Sequence[str] | None = None,
    op_classes: Sequence[str] | None = None,
    module_paths: Sequence[str] | None = None,
    weight_bytes: Sequence[float] | FloatArray | None = None,
    flops: Sequence[float] | FloatArray | None = None,
    is_backward: Sequence[bool] | BoolArray | None = None,
    colocation: Sequence[int] | IntArray | None = None,
    tensor_names: Sequence[str] | None = None,
    tensor_shapes: Sequence[tuple[int, ...]] | None = None,
    metadata: dict[str, Any] | None = None,
) -> tuple[OpGraph, NDArray[np.int64]]:
    """Build an :class:`OpGraph` from ops in any order, and return it with the order it chose.

    ``tensors`` holds (producer, bytes, consumers) by op position; ``tensor_names`` and ``tensor_shapes`` are
    parallel to it. The second result gives, for each op of the graph, its position in the input, so that per-op data
    kept elsewhere can follow: ``data_in_graph_order = data[order]``.
    Ops that already are in topological order keep it. Raises :class:`InputError` for an empty graph, equal names
    or unknown ends, and :class:`CycleError` for a cycle.

    >>> graph, order = build_graph("pair", ["b", "a"], [(1, 4.0, [0])])
    >>> graph.op_names, order.tolist()
    (('a', 'b'), [1, 0])
    """
    n = len(op_names)
    _check_names(name, op_names)
    producer = np.array([t[0] for t in tensors], dtype=np.int64)
    sizes = np.array([t[1] for t in tensors], dtype=np.float64)
    consumer_lists = [sorted(set(t[2])) for t in tensors]
    counts = np.array([len(c) for c in consumer_lists], dtype=np.int64)
    consumers = np.array([c for cs in consumer_lists for c in cs], dtype=np.int64)
    _check_ends(name, n, producer, consumers)
    order = topological_order(n, np.repeat(producer, counts), consumers, op_names)
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)

    tensor_order = np.argsort(position[producer], kind="stable") if len(producer) else np.zeros(0, dtype=np.int64)
    new_consumers = [np.sort(position[consumer_lists[t]]) if consumer_lists[t] else _EMPTY for t in tensor_order]
    ptr = np.concatenate([[0], np.cumsum(counts[tensor_order])]) if len(producer) else np.zeros(1)
    graph = OpGraph(
        name=name,
        op_names=tuple(op_names[i] for i in order),
        op_types=tuple(op_types[i] for i in order) if op_types is not None else ("",) * n,
        op_classes=tuple(op_classes[i] for i in order) if op_classes is not None else ("",) * n,
        module_paths=tuple(module_paths[i] for i in order) if module_paths is not None else ("",) * n,
        weight_bytes=_column(weight_bytes, n, np.float64, 0.0)[order],
        flops=_column(flops, n, np.float64, 0.0)[order],
        is_backward=_column(is_backward, n, np.bool_, False)[order],
        colocation=_column(colocation, n, np.int32, -1)[order],
        tensor_producer=position[producer[tensor_order]].astype(np.int32),
        tensor_bytes=sizes[tensor_order],
        consumer_ptr=ptr.astype(np.int32),
        consumer_op=(np.concatenate(new_consumers) if new_consumers else _EMPTY).astype(np.int32),
        tensor_names=tuple(tensor_names[t] for t in tensor_order) if tensor_names else ("",) * len(producer),
        tensor_shapes=tuple(tensor_shapes[t] for t in tensor_order) if tensor_shapes else ((),) * len(producer),
        metadata=dict(metadata or {}),
    )
    for column in vars(graph).values():
        if isinstance(column, np.ndarray):
            column.flags.writeable = False
    return graph, order


def topological_order(
    n_ops: int, source: NDArray[np.int64], target: NDArray[np.int64], op_names: Sequence[str]
) -> NDArray[np.int64]:
    """Return a topological order, smallest input position first; raise :class:`CycleError` naming one cycle."""
    if bool(np.all(source < target)):
        return np.arange(n_ops, dtype=np.int64)
    successors: list[list[int]] = [[] for _ in range(n_ops)]
    for u, v in zip(source.tolist(), target.tolist(), strict=True):
        successors[u].append(v)
    pending = np.bincount(target, minlength=n_ops).tolist()
    ready = [v for v in range(n_ops) if pending[v] == 0]
    order: list[int] = []
    while ready:
        u = heapq.heappop(ready)
        order.append(u)
        for v in successors[u]:
            pending[v] -= 1
            if pending[v] == 0:
                heapq.heappush(ready, v)
    if len(order) < n_ops:
        cycle = _find_cycle(successors, [p > 0 for p in pending])
        path = " -> ".join(f"'{shown(op_names[v])}'" for v in cycle[:12])
        path += f" -> … ({len(cycle)} operators)" if len(cycle) > 12 else f" -> '{shown(op_names[cycle[0]])}'"
        raise CycleError(f"the operators form a cycle: {path}", cycle)
    return np.array(order, dtype=np.int64)


def _find_cycle(successors: list[list[int]], in_cycle_part: list[bool]) -> list[int]:
    # Every op left over has a predecessor left over: walking backwards must come round.
    predecessor = {v: u for u, vs in enumerate(successors) if in_cycle_part[u] for v in vs if in_cycle_part[v]}
    at = next(v for v in predecessor if in_cycle_part[v])
    seen: dict[int, int] = {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = predecessor[at]
    return path[seen[at] :][::-1]


def sums_by_index(index: NDArray[Any], values: NDArray[Any], n: int) -> FloatArray:
    """Sum ``values`` into ``n`` bins by ``index``."""
    return np.bincount(index, values, n).astype(np.float64)


def _check_names(graph_name: str, op_names: Sequence[str]) -> None:
    if not op_names:
        raise InputError(f"graph '{shown(graph_name)}' has no operators; at least one is needed")
    if len(set(op_names)) != len(op_names):
        repeated = [n for n, times in Counter(op_names).items() if times > 1]
        raise InputError(f"graph '{shown(graph_name)}': operator names must differ, repeated: {shown_list(repeated)}")


def _check_ends(graph_name: str, n: int, producer: NDArray[np.int64], consumers: NDArray[np.int64]) -> None:
    for what, ends in (("producer", producer), ("consumer", consumers)):
        wrong = ends[(ends < 0) | (ends >= n)]
        if len(wrong):
            raise InputError(f"graph '{shown(graph_name)}': tensor {what} {wrong[0]} is not an operator (0 to {n - 1})")


def _column(values: Any, n: int, dtype: Any, default: Any) -> NDArray[Any]:
    if values is None:
        return np.full(n, default, dtype=dtype)
    column = np.asarray(values, dtype=dtype)
    if column.shape != (n,):
        raise InputError(f"expected {n} values, one per operator, got shape {column.shape}")
    return column


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


_EMPTY = np.zeros(0, dtype=np.int64)
