"""The labelling with memory limits as an integer programme: exact for small and medium problems, anytime bounds.

Variables: unit u on device d; tensor t enters d (copies through host memory), or goes from s to d (where there are
direct links); tensor t leaves s upwards. The linear relaxation is the one that the prices in ``dual`` work towards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import FloatArray, IntArray
from placewright.placers.sequential.labelling import Energy, labelling_value
from placewright.placers.sequential.large_moves import Stop

VALUE_SCALE = 1e4  # the incumbent's value in the programme's own unit, so that absolute tolerances are small beside it
TOLERANCE = 5e-10  # of a bound: the solver's own tolerances in this unit, and room to spare


class Solved(NamedTuple):
    """The best labelling met (within tolerances), a bound, and whether the programme has no solution at all."""

    label: IntArray | None
    bound: float
    status: Literal["optimal", "infeasible", "open"]


class _Rows:
    """Rows of a sparse matrix, given as whole blocks."""

    def __init__(self) -> None:
        self.count = 0
        self.row: list[NDArray[Any]] = []
        self.column: list[NDArray[Any]] = []
        self.value: list[NDArray[Any]] = []
        self.lower: list[NDArray[Any]] = []
        self.upper: list[NDArray[Any]] = []

    def add(self, columns: list[NDArray[Any]], values: list[float], lower: float, upper: float) -> None:
        """One row per position of the columns; a column of -1 is left out."""
        n = len(columns[0])
        for column, value in zip(columns, values, strict=True):
            there = np.flatnonzero(column >= 0)
            self.row.append(self.count + there)
            self.column.append(column[there])
            self.value.append(np.full(len(there), value))
        self.lower.append(np.full(n, lower))
        self.upper.append(np.full(n, upper))
        self.count += n


def solve_programme(
    energy: Energy,
    limit_bytes: FloatArray,
    incumbent: IntArray | None,
    seconds: float,
    should_stop: Stop,
    on_bound: Callable[[float], None],
    seed: int = 0,
) -> Solved:
    """Solve to the end or until stopped."""
    import highspy

    e = energy
    finite = np.where(np.isfinite(e.time_s), e.time_s, 0.0)
    upper = labelling_value(e, incumbent) if incumbent is not None else float(finite.max(axis=1).sum())
    scale = VALUE_SCALE / upper if upper > 0 else 1.0
    place, n_columns, cost, rows = _model(e, limit_bytes)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n_columns, rows.count
    lp.col_cost_ = cost * scale
    lp.col_lower_, lp.col_upper_ = np.zeros(n_columns), np.ones(n_columns)
    lp.row_lower_, lp.row_upper_ = np.concatenate(rows.lower), np.concatenate(rows.upper)
    row, column = np.concatenate(rows.row), np.concatenate(rows.column)
    order = np.lexsort((row, column))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=n_columns))])
    lp.a_matrix_.index_, lp.a_matrix_.value_ = row[order], np.concatenate(rows.value)[order]
    n_places = int(place.max()) + 1
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger] * n_places + [kinds.kContinuous] * (n_columns - n_places)
    highs = highspy.Highs()
    options = {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 1e-7, "random_seed": seed}
    for option, value in {**options, "time_limit": max(0.01, seconds)}.items():
        highs.setOptionValue(option, value)
    highs.passModel(lp)
    if incumbent is not None:
        chosen = place[np.arange(e.n_units), incumbent].astype(np.int32)
        values = np.zeros(n_places)
        values[chosen] = 1.0
        highs.setSolution(n_places, np.arange(n_places, dtype=np.int32), values)
    seen = {"bound": -np.inf}

    def on_interrupt(event: Any) -> None:
        dual = event.data_out.mip_dual_bound
        if np.isfinite(dual) and dual > seen["bound"]:
            seen["bound"] = dual
            on_bound(dual / scale * (1 - TOLERANCE))
        event.interrupt(should_stop())

    def on_relaxation(event: Any) -> None:
        event.interrupt(should_stop())

    highs.cbMipInterrupt.subscribe(on_interrupt)
    highs.cbSimplexInterrupt.subscribe(on_relaxation)
    highs.cbIpmInterrupt.subscribe(on_relaxation)
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solved(None, np.inf, "infeasible")
    is_optimal = status == highspy.HighsModelStatus.kOptimal
    bound = max(seen["bound"], highs.getInfo().mip_dual_bound if is_optimal else -np.inf) / scale * (1 - TOLERANCE)
    solution = np.array(highs.getSolution().col_value)
    label = None
    if len(solution) == n_columns and highs.getInfo().primal_solution_status == 2:
        chance = np.where(place >= 0, solution[place], -1.0)
        label = chance.argmax(axis=1).astype(np.int32)
    return Solved(label, float(bound), "optimal" if is_optimal else "open")


def _model(e: Energy, limit_bytes: FloatArray) -> tuple[NDArray[Any], int, FloatArray, _Rows]:
    """(column of each unit and device or -1, number of columns, costs, rows)."""
    n = e.n_devices
    allowed = np.isfinite(e.time_s)
    place = np.full(e.time_s.shape, -1, dtype=np.int64)
    place[allowed] = np.arange(int(allowed.sum()))
    cost = [e.time_s[allowed]]
    n_columns = len(cost[0])
    rows = _Rows()
    rows.add([place[:, d] for d in range(n)], [1.0] * n, 1.0, 1.0)
    tensor = np.repeat(np.arange(len(e.home)), np.diff(e.reader_ptr))
    home = e.home[tensor]
    is_direct = bool((e.direct >= 0).any())

    def new_columns(costs: FloatArray) -> NDArray[Any]:
        nonlocal n_columns
        cost.append(costs)
        n_columns += len(costs)
        return np.arange(n_columns - len(costs), n_columns)

    up = [new_columns(e.copy_s[:, e.to_host[s]]) for s in range(n)]
    for d in range(n):
        into = []
        for s in range(n) if is_direct else [-1]:
            if s == d:
                continue
            link = e.direct[s, d] if s >= 0 and e.direct[s, d] >= 0 else e.from_host[d]
            way = new_columns(e.copy_s[:, link])
            into.append(way[tensor])
            if is_direct:
                rows.add([way, place[e.home, s]], [1.0, -1.0], -np.inf, 0.0)
                if e.direct[s, d] < 0:
                    rows.add([up[s], way], [1.0, -1.0], 0.0, np.inf)
        reads = place[e.reader, d] >= 0
        rows.add(
            [w[reads] for w in into] + [place[e.reader, d][reads], place[home, d][reads]],
            [1.0] * len(into) + [-1.0, 1.0],
            0.0,
            np.inf,
        )
        if not is_direct:
            made = place[home, d] >= 0
            rows.add(
                [up[d][tensor][made], place[home, d][made], place[e.reader, d][made]], [1.0, -1.0, 1.0], 0.0, np.inf
            )
        if e.memory_bytes.sum() > limit_bytes[d]:
            room = max(float(limit_bytes[d]), 1e-9)
            users = np.flatnonzero(allowed[:, d] & (e.memory_bytes > 0))
            rows.row.append(np.full(len(users), rows.count))
            rows.column.append(place[users, d])
            rows.value.append(e.memory_bytes[users] / room)
            rows.lower.append(np.array([-np.inf]))
            rows.upper.append(np.array([float(limit_bytes[d]) / room]))
            rows.count += 1
    return place, n_columns, np.concatenate(cost), rows
