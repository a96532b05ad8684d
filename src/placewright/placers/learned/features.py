"""What a policy knows about each group before it decides: op types, shapes, structure, position, work.

The paper's vector is [types | output shape | in- and out-degree | fractal dimension | position]. Blocks can be left
out. Sizes enter as logarithms. The columns depend on a :class:`Vocabulary` only, so that weights fit other graphs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.graph import FloatArray, OpGraph
from placewright.placers.learned.groups import GroupGraph
from placewright.problems import Problem

SHAPE_WIDTH = 4
MOST_DEGREE = 8  # larger degrees share the last column
POSITION_WIDTH = 16
MOST_GROUPS_FOR_ALL_DISTANCES = 5000  # beyond it, balls end at LONGEST_RADIUS
LONGEST_RADIUS = 24


class Vocabulary(NamedTuple):
    """Op types that have a column of their own, in alphabetical order; all others share one more column."""

    op_types: tuple[str, ...]

    @classmethod
    def of(cls, graphs: Iterable[OpGraph]) -> Vocabulary:
        """The types that occur in some graphs."""
        return cls(tuple(sorted({t for graph in graphs for t in graph.op_types})))

    @property
    def width(self) -> int:
        return len(self.op_types) + 1

    def columns(self, op_types: Iterable[str]) -> NDArray[np.int64]:
        """The column of each op."""
        number = {t: i for i, t in enumerate(self.op_types)}
        return np.array([number.get(t, len(number)) for t in op_types], dtype=np.int64)


@dataclass(frozen=True)
class Blocks:
    """Which parts of the feature vector are used."""

    types: bool = True
    shape: bool = True
    structure: bool = True  # degrees and fractal dimension
    position: bool = True  # place in the topological order, with sinusoids
    work: bool = True  # bytes and times, which the paper does not use
    index: bool = False  # the raw number of the group, as the released code has it

    def width(self, vocabulary: Vocabulary) -> int:
        """Number of columns."""
        widths = {
            "types": vocabulary.width,
            "shape": SHAPE_WIDTH,
            "structure": 2 * (MOST_DEGREE + 1) + 1,
            "position": 1 + POSITION_WIDTH,
            "work": 5,
            "index": 1,
        }
        return sum(widths[f.name] for f in fields(self) if getattr(self, f.name))


def node_features(problem: Problem, groups: GroupGraph, vocabulary: Vocabulary, blocks: Blocks) -> NDArray[np.float32]:
    """[groups, width]: the chosen blocks side by side."""
    makers: dict[str, Any] = {
        "types": lambda: mean_types(problem.graph.op_types, groups, vocabulary),
        "shape": lambda: output_shapes(problem.graph, groups),
        "structure": lambda: np.concatenate([_degrees(groups), fractal_dimensions(groups)[:, None]], axis=1),
        "position": lambda: _positions(groups.n_groups),
        "work": lambda: work(problem, groups),
        "index": lambda: np.arange(groups.n_groups)[:, None],
    }
    parts = [makers[f.name]() for f in fields(blocks) if getattr(blocks, f.name)]
    return np.concatenate(parts, axis=1).astype(np.float32)


def mean_types(op_types: Iterable[str], groups: GroupGraph, vocabulary: Vocabulary) -> FloatArray:
    """[groups, vocabulary]: which share of a group's ops has which type."""
    counts = np.zeros((groups.n_groups, vocabulary.width))
    np.add.at(counts, (groups.group_of_op, vocabulary.columns(op_types)), 1.0)
    return counts / counts.sum(axis=1, keepdims=True)


def output_shapes(graph: OpGraph, groups: GroupGraph) -> FloatArray:
    """Logarithms of the dimensions of the last tensor of the group's last op; what exceeds the width is multiplied."""
    result = np.zeros((groups.n_groups, SHAPE_WIDTH))
    last_op = np.zeros(groups.n_groups, dtype=np.int64)
    last_op[groups.group_of_op] = np.arange(graph.n_ops)  # later ops overwrite earlier ones
    for g, v in enumerate(last_op.tolist()):
        if graph.tensor_ptr[v + 1] > graph.tensor_ptr[v]:
            shape = [float(d) for d in graph.tensor_shapes[graph.tensor_ptr[v + 1] - 1]]
            head, tail = shape[: SHAPE_WIDTH - 1], shape[SHAPE_WIDTH - 1 :]
            numbers = head + ([float(np.prod(tail))] if tail else [])
            result[g, : len(numbers)] = np.log1p(numbers)
    return result


def _degrees(groups: GroupGraph) -> FloatArray:
    n = groups.n_groups
    result = np.zeros((n, 2 * (MOST_DEGREE + 1)))
    for side in (0, 1):
        degree = np.minimum(np.bincount(groups.edges[:, 1 - side], minlength=n), MOST_DEGREE)
        result[np.arange(n), side * (MOST_DEGREE + 1) + degree] = 1.0
    return result


def _positions(n: int) -> FloatArray:
    position = np.arange(n)[:, None]
    rate = 10000.0 ** (-np.arange(0, POSITION_WIDTH, 2) / POSITION_WIDTH)
    return np.concatenate([position / max(1, n - 1), np.sin(position * rate), np.cos(position * rate)], axis=1)


def work(problem: Problem, groups: GroupGraph) -> FloatArray:
    """Bytes in, out and resident, the time of the fastest device, and how much slower the slowest one is."""
    g, n = problem.graph, groups.n_groups
    sent, read = np.zeros(n), np.zeros(n)
    np.add.at(sent, groups.group_of_op[g.tensor_producer], g.tensor_bytes)
    np.add.at(read, groups.group_of_op[g.consumer_op], g.tensor_bytes[g.edge_tensor])
    usable = np.where(np.isfinite(groups.time_s), groups.time_s, np.nan)
    least, most = np.nanmin(usable, axis=1), np.nanmax(usable, axis=1)
    typical = float(least.mean()) or 1.0
    bytes_part = np.log1p(np.stack([sent, read, groups.memory_bytes], axis=1)) / 10
    time_part = np.stack([np.log1p(least / typical), np.log1p(most / typical) - np.log1p(least / typical)], axis=1)
    return np.concatenate([bytes_part, time_part], axis=1)


def fractal_dimensions(groups: GroupGraph) -> FloatArray:
    """[groups]: slope of log N(r) against log r, where N(r) counts the other groups within r hops, directions ignored.

    Groups that cannot be reached do not count; with fewer than two radii the dimension is 0.
    """
    both = np.concatenate([groups.edges, groups.edges[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=groups.n_groups))]).astype(np.int64)
    radius = groups.n_groups if groups.n_groups <= MOST_GROUPS_FOR_ALL_DISTANCES else LONGEST_RADIUS
    result = np.empty(groups.n_groups)
    _core.learned.fractal_dimensions(ptr, np.ascontiguousarray(both[:, 1]), radius, result)
    return result
