"""The one step that all reductions share: merge groups of ops into one op each, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.errors import CycleError
from placewright.graph import build_graph, sums_by_index
from placewright.problems import Problem


class Reduced(NamedTuple):
    """A smaller problem and the inverse: ``new_of_old[v]`` is the small problem's op that holds op ``v``."""

    problem: Problem
    new_of_old: NDArray[np.int32]

    def expand(self, device_of_small_op: NDArray[np.int32]) -> NDArray[np.int32]:
        """Turn a placement of the small problem into one of the original."""
        return np.asarray(device_of_small_op, dtype=np.int32)[self.new_of_old]


@dataclass(frozen=True)
class Reduction:
    """A named way to make a problem smaller.

    ``is_exact(problem)`` says whether an optimal placement provably survives on that problem. On those problems a
    placement of the small problem also has exactly the value of its expansion.
    """

    name: str
    summary: str
    apply: Callable[[Problem], Reduced]
    is_exact: Callable[[Problem], bool]


def identity(problem: Problem) -> Reduced:
    """Nothing merged."""
    return Reduced(problem, np.arange(problem.n_ops, dtype=np.int32))


def reduce_all(problem: Problem, reductions: Sequence[Reduction]) -> Reduced:
    """Apply reductions one after another; the result's inverse leads all the way back."""
    reduced = identity(problem)
    for reduction in reductions:
        step = reduction.apply(reduced.problem)
        reduced = Reduced(step.problem, step.new_of_old[reduced.new_of_old])
    return reduced


def contract(problem: Problem, label: NDArray[np.integer]) -> Reduced:
    """Merge the ops of equal label.

    Labels must not mix forward and backward ops, nor close a cycle (:class:`CycleError`). Times and bytes add up; a
    merged op may go where all its members may; tensors that stay inside disappear, all others stay tensors of their
    own, so that copies cost exactly what they did.
    """
    g = problem.graph
    _, first, new = np.unique(label, return_index=True, return_inverse=True)
    # Numbered by their first member, groups that are already in order stay in order.
    rank = np.argsort(np.argsort(first))
    new = rank[new]
    n_new = len(first)
    first = np.sort(first)
    counts = np.bincount(new, minlength=n_new)
    backward = np.bincount(new, g.is_backward, n_new)
    if ((backward != 0) & (backward != counts)).any():
        raise ValueError("a label holds forward and backward ops; give them two")

    tensors, kept = _outer_tensors(problem, new)
    parent = _united_groups(problem, new, n_new)
    graph, order = build_graph(
        name=g.name,
        op_names=_merged_names(problem, first, counts),
        tensors=tensors,
        op_types=[g.op_types[v] if c == 1 else "merged" for v, c in zip(first, counts, strict=True)],
        module_paths=[g.module_paths[v] for v in first],
        weight_bytes=sums_by_index(new, g.weight_bytes, n_new),
        flops=sums_by_index(new, g.flops, n_new),
        is_backward=backward > 0,
        colocation=parent,
    )
    position = np.empty(n_new, dtype=np.int32)
    position[order] = np.arange(n_new)
    # build_graph sorts tensors by producer, stably.
    kept = kept[np.argsort(position[[t[0] for t in tensors]], kind="stable")] if tensors else kept
    time = np.zeros((n_new, problem.op_time_s.shape[1]))
    np.add.at(time, new, problem.op_time_s)
    permitted = np.ones((n_new, problem.n_devices), dtype=np.bool_)
    np.logical_and.at(permitted, new, problem.allowed)
    small = problem.with_options(
        graph=graph,
        op_time_s=time[order],
        memory_bytes=sums_by_index(new, problem.memory_bytes, n_new)[order],
        tensor_copy_s=problem.tensor_copy_s[kept],
        rules=(),
        permitted=permitted[order],
    )
    return Reduced(small, position[new])


def acyclic_labels(problem: Problem, label: NDArray[np.integer]) -> NDArray[np.int64]:
    """Undo merges that would close a cycle: members of labels on a cycle go back to labels of their own."""
    own = label.astype(np.int64)
    while True:
        try:
            contract(problem, own)
            return own
        except CycleError:
            loose = _labels_on_cycles(problem, own)
            members = np.isin(own, list(loose))
            own[members] = own.max() + 1 + np.arange(int(members.sum()))


def strongly_connected(n: int, source: NDArray[np.integer], target: NDArray[np.integer]) -> list[list[int]]:
    """Strongly connected components of a directed graph on ``0 .. n - 1``."""
    import rustworkx

    digraph = rustworkx.PyDiGraph(multigraph=False)
    digraph.add_nodes_from(range(n))
    digraph.add_edges_from_no_data(list(zip(source.tolist(), target.tolist(), strict=True)))
    return [list(c) for c in rustworkx.strongly_connected_components(digraph)]


def _labels_on_cycles(problem: Problem, label: NDArray[np.int64]) -> set[int]:
    values, dense = np.unique(label, return_inverse=True)
    source, target = dense[problem.graph.edge_producer], dense[problem.graph.consumer_op]
    outer = source != target
    components = strongly_connected(len(values), source[outer], target[outer])
    return {int(values[v]) for c in components if len(c) > 1 for v in c}


def _outer_tensors(
    problem: Problem, new: NDArray[np.integer]
) -> tuple[list[tuple[int, float, list[int]]], NDArray[np.int64]]:
    g = problem.graph
    tensors: list[tuple[int, float, list[int]]] = []
    kept: list[int] = []
    consumer, ptr = new[g.consumer_op].tolist(), g.consumer_ptr.tolist()
    for t, u in enumerate(new[g.tensor_producer].tolist()):
        everyone = consumer[ptr[t] : ptr[t + 1]]
        outside = [v for v in everyone if v != u]
        if outside or not everyone:
            tensors.append((u, float(g.tensor_bytes[t]), outside))
            kept.append(t)
    return tensors, np.array(kept, dtype=np.int64)


def _united_groups(problem: Problem, new: NDArray[np.integer], n_new: int) -> NDArray[np.int32]:
    """Colocation of the merged ops: groups that share a merged op become one; -1 for those alone."""
    components = strongly_connected(
        n_new,
        np.concatenate([new, new[problem.group_of_op]]),
        np.concatenate([new[problem.group_of_op], new]),
    )
    colocation = np.full(n_new, -1, dtype=np.int32)
    for c in components:
        if len(c) > 1:
            colocation[c] = min(c)
    return colocation


def _merged_names(problem: Problem, first: NDArray[np.integer], counts: NDArray[np.integer]) -> list[str]:
    names, taken = [], set(problem.graph.op_names)
    for v, count in zip(first.tolist(), counts.tolist(), strict=True):
        name = problem.graph.op_names[v]
        if count > 1:
            name = f"{name} (+{count - 1})"
            while name in taken:
                name += "'"
            taken.add(name)
        names.append(name)
    return names
