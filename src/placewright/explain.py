"""Why a placement looks the way it does, in sentences."""

from __future__ import annotations

import numpy as np

from placewright.evaluate import evaluate_many
from placewright.placement import Placement
from placewright.placers.units import movable_units
from placewright.text import bytes_text, shown, time_text

_MOVES_TRIED = 256
_CELLS = 2_000_000  # ops x moves: what a second or so can evaluate


def idle_reasons(placement: Placement) -> dict[str, str]:
    """For every device without ops, the reason, by device name.

    The reasons are tried, not guessed: units that may go there are moved there one at a time and evaluated.
    """
    if placement.device_of_op is None or placement.evaluation is None:
        return {}
    seen: dict[int, str] = {}
    reasons = {}
    groups = placement.problem.cluster.device_groups()
    for d in np.flatnonzero(placement.evaluation.ops == 0).tolist():
        if d in placement.replica_of:
            continue
        group = next(i for i, g in enumerate(groups) if d in g)
        if placement.problem.rules or group not in seen:  # equal devices have equal reasons
            seen[group] = _idle_reason(placement, d)
        reasons[placement.problem.cluster.devices[d].name] = seen[group]
    return reasons


def _idle_reason(placement: Placement, d: int) -> str:
    problem = placement.problem
    assert placement.device_of_op is not None
    units = movable_units(problem)
    usable = np.flatnonzero(units.allowed[:, d])
    if not len(usable):
        return "no operator may run there"
    limit = problem.cluster.devices[d].memory_bytes
    fitting = usable[units.memory_bytes[usable] <= limit]
    if not len(fitting):
        smallest = float(units.memory_bytes[usable].min())
        return f"the smallest operator needs {bytes_text(smallest)}, it holds {bytes_text(limit)}"
    tries = max(1, min(_MOVES_TRIED, _CELLS // problem.n_ops))
    # Heaviest first: they are the ones whose move could pay.
    fitting = fitting[np.argsort(-units.time_s[fitting].min(axis=1), kind="stable")][:tries]
    rows = np.repeat(placement.device_of_op[None, :], len(fitting), axis=0)
    for i, u in enumerate(fitting.tolist()):
        rows[i, units.unit_of_op == u] = d
    result = evaluate_many(problem, rows, placement.priority)
    values = np.where(result.is_valid, result.value, np.inf)
    best = int(values.argmin())
    tried = f"{len(fitting)} of {len(usable)} moves tried" if len(fitting) < len(usable) else "every single move tried"
    if np.isinf(values[best]):
        return f"no operator can move there alone without breaking a limit ({tried})"
    op = problem.graph.op_names[int(np.flatnonzero(units.unit_of_op == fitting[best])[0])]
    change = values[best] / placement.value - 1 if placement.value > 0 else 0.0
    if values[best] < placement.value * (1 - 1e-9):
        return f"moving '{shown(op, 40)}' there would gain {-change:.2%}, which {shown(placement.placer)} did not find"
    value = time_text(values[best], problem.time_unit)
    return f"no single move there pays; the best, '{shown(op, 40)}', gives {value} ({change:+.2%}; {tried})"
