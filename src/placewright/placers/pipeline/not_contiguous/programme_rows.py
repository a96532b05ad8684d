"""Mixed-integer programmes for HiGHS, written row by row."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from placewright.placers.pipeline.not_contiguous.units import BoolArray, FloatArray

INF = highspy.kHighsInf


def new_highs(**options: bool | int | float) -> Any:
    """A silent solver on one thread, with these options."""
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in {"output_flag": False, "threads": 1, **options}.items():
        highs.setOptionValue(option, value)
    return highs


class Rows:
    """The constraints of a programme."""

    def __init__(self) -> None:
        self.starts, self.index = [0], list[int]()
        self.value, self.lower, self.upper = list[float](), list[float](), list[float]()

    def add(self, entries: list[tuple[int, float]], low: float, high: float) -> int:
        """``low <= sum of value * column <= high``; returns the row's number."""
        self.index.extend(i for i, _ in entries)
        self.value.extend(v for _, v in entries)
        self.starts.append(len(self.index))
        self.lower.append(low)
        self.upper.append(high)
        return len(self.lower) - 1

    def model(self, cost: FloatArray, upper: FloatArray, is_integer: BoolArray) -> highspy.HighsLp:
        """Minimise cost over these rows; columns lie between 0 and `upper`."""
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(cost), len(self.lower)
        model.col_cost_, model.col_lower_, model.col_upper_ = cost, np.zeros(len(cost)), upper
        model.row_lower_, model.row_upper_ = np.array(self.lower), np.array(self.upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_, model.a_matrix_.index_ = np.array(self.starts), np.array(self.index)
        model.a_matrix_.value_ = np.array(self.value, dtype=float)
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if flag else kinds.kContinuous for flag in is_integer.tolist()]
        return model
