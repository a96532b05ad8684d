"""What people see: a placement as a table, several placements side by side."""

from __future__ import annotations

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from placewright.explain import idle_reasons
from placewright.placement import Placement
from placewright.placers.base import single_device_values
from placewright.text import bytes_text, shown, time_text

_FAULTS_SHOWN = 20


def result_line(p: Placement) -> str:
    """Value, bound and gap in one line."""
    unit = p.problem.time_unit
    text = f"{p.problem.objective} ({p.problem.execution}): {time_text(p.value, unit)}"
    if not p.faults:
        text += f", proven bound {time_text(p.bound, unit)}, gap {percent(p.gap)}"
    if p.measured is not None:
        text += f", measured {time_text(p.measured['measured_s'], unit)}"
    return f"{text}  [{p.status}]"


def print_placement(p: Placement, console: Console) -> None:
    """Print the table of devices, the comparison with single devices, idle devices with reasons, and all faults."""
    _say(console, result_line(p), style="bold")
    if p.evaluation is not None:
        console.print(_device_table(p))
        _print_comparison(p, console)
        for names, reason in _idle_by_reason(p).items() if not p.faults else ():
            _say(console, f"  {names} idle: {reason}")
    if p.note:
        _say(console, f"  {shown(p.note, 300)}", style="dim")
    for fault in p.faults[:_FAULTS_SHOWN]:
        _say(console, f"  fault: {fault.message}", style="red")
    if len(p.faults) > _FAULTS_SHOWN:
        _say(console, f"  and {len(p.faults) - _FAULTS_SHOWN} more faults (--json lists all)", style="red")


def print_comparison(placements: list[Placement], console: Console) -> None:
    """Print one row per placer, best first; the gap is to the best bound that any of them proved."""
    unit = placements[0].problem.time_unit
    bound = max((p.bound for p in placements if math.isfinite(p.bound)), default=0.0)
    table = Table("placer", "status", *(_right(h) for h in ("value", "gap", "seconds", "segments", "moved")))
    for p in sorted(placements, key=lambda p: (not p.is_valid, p.value)):
        e = p.evaluation
        table.add_row(
            escape(p.placer),
            p.status if not p.faults else f"{p.status} ({len(p.faults)} faults)",
            time_text(p.value, unit),
            percent(p.value / bound - 1 if bound > 0 else math.inf) if p.is_valid else "—",
            f"{p.seconds:.2f}",
            str(e.segments) if e else "—",
            bytes_text(e.bytes_moved) if e else "—",
        )
    console.print(table)
    _say(console, f"proven bound {time_text(bound, unit)}")


def _device_table(p: Placement) -> Table:
    assert p.evaluation is not None
    unit, alone = p.problem.time_unit, single_device_values(p.problem)
    headers = ("ops", "load", "busy", "memory", "limit", "alone")
    table = Table("device", "kind", *(_right(h) for h in headers))
    for d, device in enumerate(p.problem.cluster.devices):
        lead = p.replica_of.get(d, d)
        load = float(p.evaluation.load[lead])
        busy = load / p.value if p.value > 0 and math.isfinite(p.value) else 0.0
        ops = f"as {shown(p.problem.cluster.devices[lead].name)}" if lead != d else str(p.evaluation.ops[d])
        table.add_row(
            escape(shown(device.name)),
            escape(shown(device.kind)),
            escape(ops),
            time_text(load, unit),
            f"{busy:.0%}" if p.evaluation.ops[lead] else "idle",
            bytes_text(p.evaluation.memory_bytes[lead]),
            bytes_text(device.memory_bytes),
            time_text(alone[device.name], unit) if math.isfinite(alone[device.name]) else "not possible",
        )
    return table


def _print_comparison(p: Placement, console: Console) -> None:
    assert p.evaluation is not None
    unit, alone = p.problem.time_unit, single_device_values(p.problem)
    name = min(alone, key=lambda n: alone[n])
    if math.isfinite(alone[name]) and alone[name] > 0 and math.isfinite(p.value):
        gain = 1 - p.value / alone[name]
        verdict = f"{gain:.1%} less than" if gain > 0 else "the same as" if gain == 0 else f"{-gain:.1%} more than"
        _say(console, f"  {verdict} everything on {shown(name)} ({time_text(alone[name], unit)})")
    elif not math.isfinite(alone[name]):
        _say(console, "  no single device may hold everything")
    moved = bytes_text(p.evaluation.bytes_moved)
    _say(console, f"  segments: {p.evaluation.segments}, moved between devices: {moved}")


def _say(console: Console, text: str, style: str | None = None) -> None:
    # Long lines are left to the terminal, so that pipes get them whole.
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _idle_by_reason(p: Placement) -> dict[str, str]:
    names: dict[str, list[str]] = {}
    for name, reason in idle_reasons(p).items():
        names.setdefault(reason, []).append(shown(name))
    return {", ".join(who): reason for reason, who in names.items()}


def _right(header: str) -> Column:
    return Column(header, justify="right")


def percent(gap: float) -> str:
    """A gap in per cent, or that it is unknown."""
    return f"{gap:.2%}" if math.isfinite(gap) else "unknown"
