"""``placewright diff``: what changed from one placement to another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placewright.cli import options as o

if TYPE_CHECKING:
    from placewright.placement import Placement

_GROUPS_SHOWN = 25


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="a placement or a split", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B", help="another one of the same model", show_default=False)],
    model: o.GivenModel = None,
    cluster: o.ClusterName = None,
    profile: o.ProfileFile = None,
    shape: o.Shape = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Compare two placements: value and bound of both, which ops moved, loads, bytes moved.

    Example:

    placewright diff before.json after.json
    """
    from placewright.reports.changes import changes_document, find_changes

    a, b = (o.open_placed(p, model, cluster, profile, shape, objective, execution) for p in (first, second))
    changes = find_changes(a, b)
    if as_json:
        typer.echo(json.dumps(changes_document(a, b, changes)))
        return
    from rich.console import Console

    console = Console()
    console.print(_headline(a, b), highlight=False, markup=False, soft_wrap=True, style="bold")
    moved = int(changes.moved.sum())
    if not quiet:
        console.print(_device_table(a, b))
        if moved:
            console.print(_moved_table(changes.groups, a.problem.time_unit))
        if len(changes.groups) > _GROUPS_SHOWN:
            console.print(f"and {len(changes.groups) - _GROUPS_SHOWN} more groups (--json lists all)", style="dim")
    console.print(f"{moved} of {len(changes.moved)} ops moved", highlight=False)


def _headline(a: Placement, b: Placement) -> str:
    from placewright.text import time_text

    parts = []
    for p in (a, b):
        bound = "" if p.faults else f" (bound {time_text(p.bound, p.problem.time_unit)})"
        parts.append(f"{time_text(p.value, p.problem.time_unit)}{bound}")
    rules = [f"{p.problem.objective} ({p.problem.execution})" for p in (a, b)]
    if rules[0] != rules[1]:  # a pipeline's time per sample is not to be set against the time for one sample
        return f"{rules[0]}: {parts[0]} -> {rules[1]}: {parts[1]}"
    text = f"{a.problem.objective}: {parts[0]} -> {parts[1]}"
    if not (a.value > 0 and b.value < float("inf") and a.value < float("inf")):
        return text
    change = 1 - b.value / a.value
    return f"{text}, " + ("the same" if change == 0 else f"{abs(change):.1%} {'less' if change > 0 else 'more'}")


def _device_table(a: Placement, b: Placement) -> Any:
    from rich.markup import escape
    from rich.table import Column, Table

    from placewright.text import bytes_text, shown, time_text

    table = Table("", *(Column(h, justify="right") for h in ("A", "B")))
    names = list(dict.fromkeys([*a.problem.cluster.device_names, *b.problem.cluster.device_names]))
    for name in names:
        for what in ("ops", "load", "memory"):
            cells = [_device_cell(p, name, what) for p in (a, b)]
            table.add_row(escape(f"{shown(name)} {what}"), *cells)
    evaluations = [p.evaluation for p in (a, b)]
    table.add_row("segments", *(str(e.segments) if e else "—" for e in evaluations))
    table.add_row("moved between devices", *(bytes_text(e.bytes_moved) if e else "—" for e in evaluations))
    table.add_row("gap to the proven bound", *(f"{p.gap:.2%}" if p.gap < float("inf") else "—" for p in (a, b)))
    table.add_row("faults", *(str(len(p.faults)) for p in (a, b)))
    table.add_row("seconds of search", *(time_text(p.seconds) if p.seconds else "—" for p in (a, b)))
    return table


def _device_cell(p: Placement, name: str, what: str) -> str:
    from placewright.text import bytes_text, time_text

    names = p.problem.cluster.device_names
    if name not in names or p.evaluation is None:
        return "—"
    d = names.index(name)
    if what == "ops":
        return str(int(p.evaluation.ops[d]))
    if what == "load":
        return time_text(float(p.evaluation.load[d]), p.problem.time_unit)
    return bytes_text(float(p.evaluation.memory_bytes[d]))


def _moved_table(groups: list[Any], unit: str) -> Any:
    from rich.markup import escape
    from rich.table import Column, Table

    from placewright.text import shown, time_text

    table = Table("ops that moved", Column("ops", justify="right"), "from", "to", "compute there")
    for group in groups[:_GROUPS_SHOWN]:
        times = f"{time_text(group.from_s, unit)} -> {time_text(group.to_s, unit)}"
        table.add_row(
            escape(group.path),
            str(len(group.ops)),
            escape(shown(group.from_device)),
            escape(shown(group.to_device)),
            times,
        )
    return table
