"""The optimum of a tiny problem by looking at everything: what exact methods are compared with."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np

from placewright.evaluate import evaluate_many
from placewright.problems import Problem


def optimum(problem: Problem) -> float:
    """Least value of all valid placements, under ``overlap`` with all orders of the ops; infinite if none is valid."""
    n = problem.n_ops
    rows = np.array(list(product(range(problem.n_devices), repeat=n)), dtype=np.int32)
    orders = None
    if problem.execution == "overlap":
        every_order = np.array(list(permutations(range(n))), dtype=np.float64)
        orders = np.tile(every_order, (len(rows), 1))
        rows = np.repeat(rows, len(every_order), axis=0)
    result = evaluate_many(problem, rows, orders)
    return float(np.where(result.is_valid, result.value, np.inf).min())
