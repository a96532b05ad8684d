"""The reductions, each one function, each saying when it is exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placewright.problems import Problem
from placewright.reductions.contract import Reduced, Reduction, acyclic_labels, contract, strongly_connected

_NO_TIME = 1e-6  # as in the published preprocessing


def _labels(problem: Problem) -> NDArray[np.int64]:
    return np.arange(problem.n_ops, dtype=np.int64)


def _additive(problem: Problem) -> bool:
    """True if the value is sums over ops and crossing tensors only: merging then changes nothing by itself."""
    if problem.max_segments is not None:
        return False
    no_overhead = all(k.segment_overhead_s == 0 for k in problem.cluster.kinds)
    return problem.execution == "pipeline" or (problem.execution == "sequential" and no_overhead)


def _same_devices(problem: Problem, u: NDArray[np.integer], v: NDArray[np.integer]) -> NDArray[np.bool_]:
    """True where the first op of each pair may go wherever the second may."""
    return np.asarray((problem.allowed[u] | ~problem.allowed[v]).all(axis=1))


def _apply_group_colocated(problem: Problem) -> Reduced:
    label = 2 * problem.group_of_op.astype(np.int64) + problem.graph.is_backward
    return contract(problem, acyclic_labels(problem, label))


def _apply_contract_sccs(problem: Problem) -> Reduced:
    source, target = problem.arrays.order_source, problem.arrays.order_target
    group = problem.group_of_op
    components = strongly_connected(problem.n_ops, group[source], group[target])
    united = group.astype(np.int64)
    for c in components:
        united[c] = min(c)
    label = 2 * united[group] + problem.graph.is_backward
    return contract(problem, acyclic_labels(problem, label))


def _apply_fold_constants(problem: Problem) -> Reduced:
    g = problem.graph
    label = _labels(problem)
    consumers = np.diff(g.consumer_ptr)
    single = np.flatnonzero((np.diff(g.tensor_ptr) == 1) & (np.diff(g.input_ptr) == 0) & _is_free(problem))
    single = single[consumers[g.tensor_ptr[single]] == 1]
    target = g.consumer_op[g.consumer_ptr[g.tensor_ptr[single]]]
    usable = (g.is_backward[single] == g.is_backward[target]) & _same_devices(problem, single, target)
    usable &= _ungrouped(problem)[single]
    label[single[usable]] = target[usable]
    return contract(problem, label)


def _apply_merge_chains(problem: Problem) -> Reduced:
    g = problem.graph
    label = _labels(problem)
    one_in = np.diff(g.input_ptr) == 1
    for v in np.flatnonzero(one_in).tolist():
        t = int(g.input_tensor[g.input_ptr[v]])
        u = int(g.tensor_producer[t])
        only_reader = g.consumer_ptr[t + 1] - g.consumer_ptr[t] == 1 and g.tensor_ptr[u + 1] - g.tensor_ptr[u] == 1
        alike = g.is_backward[u] == g.is_backward[v] and np.array_equal(problem.allowed[u], problem.allowed[v])
        if only_reader and alike:
            label[v] = label[u]
    return contract(problem, label)


def _apply_merge_free(problem: Problem) -> Reduced:
    """Repeat: an op without time that touches exactly one other op joins it."""
    g = problem.graph
    label = _labels(problem)
    neighbours: list[set[int]] = [set() for _ in range(problem.n_ops)]
    for u, v in zip(g.edge_producer.tolist(), g.consumer_op.tolist(), strict=True):
        neighbours[u].add(v)
        neighbours[v].add(u)
    free = (_is_free(problem) & _ungrouped(problem)).tolist()
    todo = [v for v in range(problem.n_ops) if free[v]]
    while todo:
        v = todo.pop()
        if not free[v] or len(neighbours[v]) != 1:
            continue
        (host,) = neighbours[v]
        if g.is_backward[v] != g.is_backward[host] or not (problem.allowed[v] | ~problem.allowed[host]).all():
            continue
        free[v] = False
        label[v] = host
        neighbours[v].clear()
        neighbours[host].discard(v)
        if free[host]:
            todo.append(host)
    for v in range(problem.n_ops):  # hosts may have joined others in turn
        while label[label[v]] != label[v]:
            label[v] = label[label[v]]
    return contract(problem, label)


def _is_free(problem: Problem) -> NDArray[np.bool_]:
    return np.asarray((np.where(np.isinf(problem.op_time_s), 0.0, problem.op_time_s) < _NO_TIME).all(axis=1))


def _is_exactly_free(problem: Problem) -> bool:
    free = _is_free(problem)
    return bool((np.where(np.isinf(problem.op_time_s), 0.0, problem.op_time_s)[free] == 0).all())


def _ungrouped(problem: Problem) -> NDArray[np.bool_]:
    return np.asarray(np.bincount(problem.group_of_op, minlength=problem.n_ops)[problem.group_of_op] == 1)


group_colocated = Reduction(
    "group_colocated",
    "ops of one colocation class become one op (forward and backward apart)",
    _apply_group_colocated,
    is_exact=_additive,
)
contract_sccs = Reduction(
    "contract_sccs",
    "classes that depend on each other in a circle must share a stage and become one op",
    _apply_contract_sccs,
    is_exact=lambda p: _additive(p) and p.needs_contiguous_stages,
)
fold_constants = Reduction(
    "fold_constants",
    "an op without inputs and time joins its only consumer",
    _apply_fold_constants,
    is_exact=lambda p: _additive(p) and p.memory_cannot_bind and _is_exactly_free(p),
)
merge_free = Reduction(
    "merge_free",
    "an op without time that touches one other op joins it",
    _apply_merge_free,
    is_exact=lambda p: _additive(p) and p.memory_cannot_bind and _is_exactly_free(p),
)
merge_chains = Reduction(
    "merge_chains",
    "an op whose only reader reads nothing else joins it",
    _apply_merge_chains,
    is_exact=lambda p: False,
)
REDUCTIONS = (fold_constants, group_colocated, contract_sccs, merge_free, merge_chains)
