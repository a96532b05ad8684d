"""Favourite children for SCT: which consumer should follow an op on its device, so that the copy is saved.

The relaxed programme of Hanen and Munier: starts ``s``, end ``w``, and ``x = 0`` where the child is the favourite:

    minimise w    s_u + p_u + c_uv x_uv <= s_v    sum_v x_uv >= children(u) - 1    sum_u x_uv >= parents(v) - 1

with mean times ``p`` and copies ``c``. A child is the favourite if its ``x`` is below ``THRESHOLD``; at most one half,
so that no op has two favourites and none is the favourite of two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import BoolArray, FloatArray, IntArray, sums_by_index
from placewright.placers.overlap.list_costs import list_costs
from placewright.problems import Problem

THRESHOLD = 0.1


class Edges(NamedTuple):
    """Pairs of ops with a copy between them, all tensors of a pair added up; pairs within a group cost nothing."""

    parent: NDArray[np.int64]
    child: NDArray[np.int64]
    copy_s: FloatArray


def op_edges(problem: Problem) -> Edges:
    """Edges between ops, sorted by parent and child."""
    g = problem.graph
    key = g.edge_producer.astype(np.int64) * problem.n_ops + g.consumer_op
    values, index = np.unique(key, return_inverse=True)
    parent, child = values // problem.n_ops, values % problem.n_ops
    copy_s = sums_by_index(index, list_costs(problem).mean_copy_s[g.edge_tensor], len(values))
    copy_s[problem.group_of_op[parent] == problem.group_of_op[child]] = 0.0
    return Edges(parent, child, copy_s)


def heaviest_favourites(problem: Problem) -> IntArray:
    """Favourites without a programme: edges by falling copy time, where both ends are still without one."""
    edges = op_edges(problem)
    favourite = np.full(problem.n_ops, -1, dtype=np.int32)
    is_child = np.zeros(problem.n_ops, dtype=np.bool_)
    for e in np.argsort(-edges.copy_s, kind="stable").tolist():
        u, v = edges.parent[e], edges.child[e]
        if edges.copy_s[e] > 0 and favourite[u] < 0 and not is_child[v]:
            favourite[u] = v
            is_child[v] = True
    return favourite


def favourites_by_programme(problem: Problem, time_limit_s: float) -> IntArray | None:
    """Favourites by the linear programme; ``None`` if it was not solved in time."""
    edges = op_edges(problem)
    costly = edges.copy_s > 0
    favourite = np.full(problem.n_ops, -1, dtype=np.int32)
    if not costly.any():
        return favourite
    x = _solve(list_costs(problem).mean_time_s, edges, costly, time_limit_s)
    if x is None:
        return None
    chosen = np.flatnonzero(costly)[x < THRESHOLD]
    favourite[edges.parent[chosen]] = edges.child[chosen]
    return favourite


def _solve(time_s: FloatArray, edges: Edges, costly: BoolArray, time_limit_s: float) -> FloatArray | None:
    """Values of ``x`` on the costly edges. Columns: starts, then ``x``, then ``w``; all times over the longest one.

    Dual simplex: an interior solution of this programme, which has many optima, has few small ``x``. Devex pricing
    halves the time that the default takes.
    """
    import highspy

    n, n_x = len(time_s), int(costly.sum())
    end = n + n_x
    scale = max(float(time_s.max()), float(edges.copy_s.max()))
    x_column = np.full(len(costly), -1)
    x_column[costly] = n + np.arange(n_x)
    every = np.arange(len(costly))
    sinks = np.setdiff1d(np.arange(n), edges.parent)
    blocks: list[tuple[Any, Any, Any]] = [  # (row within the block, column, value) of the entries
        (every, edges.child, 1.0),
        (every, edges.parent, -1.0),
        (every[costly], x_column[costly], -edges.copy_s[costly] / scale),
    ]
    lower: list[Any] = [time_s[edges.parent] / scale, time_s[sinks] / scale]
    last = len(costly) + np.arange(len(sinks))
    blocks += [(last, np.full(len(sinks), end), 1.0), (last, sinks, -1.0)]
    n_rows = len(costly) + len(sinks)
    for ends in (edges.parent[costly], edges.child[costly]):
        _, index, count = np.unique(ends, return_inverse=True, return_counts=True)
        blocks.append((n_rows + index, x_column[costly], 1.0))
        lower.append(count - 1.0)
        n_rows += len(count)
    row = np.concatenate([block[0] for block in blocks])
    column = np.concatenate([block[1] for block in blocks])
    value = np.concatenate([np.broadcast_to(block[2], len(block[0])) for block in blocks])
    by_row = np.lexsort((column, row))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = end + 1, n_rows
    lp.col_cost_ = np.append(np.zeros(end), 1.0)
    lp.col_lower_ = np.zeros(end + 1)
    lp.col_upper_ = np.concatenate([np.full(n, highspy.kHighsInf), np.ones(n_x), [highspy.kHighsInf]])
    lp.row_lower_ = np.concatenate(lower)
    lp.row_upper_ = np.full(n_rows, highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))])
    lp.a_matrix_.index_ = column[by_row]
    lp.a_matrix_.value_ = value[by_row]
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {
        "output_flag": False,
        "solver": "simplex",
        "simplex_dual_edge_weight_strategy": 1,
        "threads": 1,
        "time_limit": time_limit_s,
    }
    for option, choice in options.items():
        highs.setOptionValue(option, choice)
    highs.passModel(lp)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(highs.getSolution().col_value)[n:end]
