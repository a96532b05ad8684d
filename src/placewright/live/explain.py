"""Which block is where and why, in lines for people."""

from __future__ import annotations

import re

import numpy as np

from placewright.live.device_map import rules
from placewright.live.dispatch import live_of, places_of
from placewright.placement import Placement
from placewright.text import bytes_text, time_text


def explain(placement: Placement) -> str:
    """Memory and time per device, blocks by sort with the time they take there and elsewhere, and the rules."""
    problem, device = placement.problem, placement.device_of_op
    if device is None:
        return placement.note or placement.status
    live, places = live_of(placement), places_of(placement)
    evaluation = placement.evaluation
    assert evaluation is not None
    phases = " and ".join(live.phases)
    lines = [f"{problem.graph.name}, {phases}: predicted {time_text(placement.value)}, {placement.note}"]
    if placement.measured and "measured_s" in placement.measured:
        lines[0] += f"; measured {time_text(placement.measured['measured_s'])}"
    for d, entry in enumerate(problem.cluster.devices):
        used, limit = bytes_text(evaluation.memory_bytes[d]), bytes_text(entry.memory_bytes)
        lines.append(f"  {entry.name}: {used} of {limit} for weights and caches, {time_text(evaluation.load[d])}")
    rows: dict[tuple[str, str], list[int]] = {}
    for v, path in enumerate(problem.graph.module_paths):
        if path in places and problem.graph.op_types[v] == "module" and path:
            rows.setdefault((re.sub(r"\.\d+\.", ".*.", path), places[path]), []).append(v)
    names = problem.cluster.device_names
    for (sort, place), ops in rows.items():
        each = problem.op_device_time_s[ops].mean(axis=0)
        times = ", ".join(f"{time_text(each[d])} on {n}" for d, n in enumerate(names) if np.isfinite(each[d]))
        size = bytes_text(problem.memory_bytes[ops].mean())
        lines.append(f"  {len(ops)} x {sort} on {place}: {size} each; {times}")
    return "\n".join([*lines, "  as rules:", *(f"    {rule}" for rule in rules(placement))])
