"""Placements and problems as short HTML tables, for notebooks. Every name is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from placewright.text import bytes_text, shown, time_text

if TYPE_CHECKING:
    from placewright.placement import Placement
    from placewright.problems import Problem

_ROWS = 16


def placement_html(p: Placement) -> str:
    """Value, bound and gap, then a row per device."""
    unit = p.problem.time_unit
    head = f"{p.problem.objective} ({p.problem.execution}): <b>{_text(time_text(p.value, unit))}</b>, {p.status}"
    if not p.faults and math.isfinite(p.gap):
        head += f", proven bound {_text(time_text(p.bound, unit))}, gap {p.gap:.2%}"
    if p.evaluation is None:
        return f"<p>{head}: {_text(p.note or '; '.join(f.message for f in p.faults[:3]))}</p>"
    e = p.evaluation
    rows = (
        (d.name, d.kind, f"{e.ops[i]:,}", time_text(float(e.load[i]), unit), bytes_text(float(e.memory_bytes[i])))
        for i, d in enumerate(p.problem.cluster.devices[:_ROWS])
    )
    table = _table(("device", "kind", "ops", "load", "memory"), rows, p.problem.n_devices)
    moved = f"{e.segments:,} segments, {bytes_text(e.bytes_moved)} moved between devices, by {_text(p.placer)}"
    faults = "".join(f"<p>fault: {_text(f.message)}</p>" for f in p.faults[:5])
    return f"<div><p>{head}</p>{table}<p>{moved}</p>{faults}</div>"


def problem_html(problem: Problem) -> str:
    """Model, objective and devices."""
    g = problem.graph
    head = (
        f"<b>{_text(g.name)}</b>: {g.n_ops:,} ops, {g.n_edges:,} edges, {bytes_text(float(g.weight_bytes.sum()))} of "
        f"weights; {problem.objective} ({problem.execution})"
    )
    rows = ((d.name, d.kind, bytes_text(d.memory_bytes)) for d in problem.cluster.devices[:_ROWS])
    table = _table(("device", "kind", "memory"), rows, problem.n_devices)
    rules = "".join(f"<p>{_text(str(rule))}</p>" for rule in problem.rules[:_ROWS])
    return f"<div><p>{head}</p>{table}{rules}</div>"


def _table(headers: Iterable[str], rows: Iterable[tuple[str, ...]], total: int) -> str:
    head = "".join(f"<th>{h}</th>" for h in headers)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    more = f"<p>and {total - _ROWS} more devices</p>" if total > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(text: str) -> str:
    return escape(shown(text, 200))
