"""``placewright placers``: which placers there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from placewright.cli import options as o

if TYPE_CHECKING:
    from placewright.placers.base import Placer


def _what(placer: type[Placer]) -> str:
    from placewright.placers.registry import is_installed

    return placer.summary if is_installed(placer) else f"{placer.summary} (needs 'placewright[{placer.extra}]')"


def placers(as_json: o.Json = False, quiet: o.Quiet = False) -> None:
    """List the placers, with the execution models each is made for.

    Examples:

    placewright placers

    placewright place zoo:inception-v3 --placer anneal --budget 10s
    """
    from placewright.placers.registry import get_placer_class, placer_names

    if quiet:
        typer.echo("\n".join(placer_names()))
        return
    classes = [get_placer_class(name) for name in placer_names()]
    if as_json:
        rows = [{"name": c.name, "summary": c.summary, "executions": list(c.executions)} for c in classes]
        typer.echo(json.dumps({"placers": rows}))
        return
    from rich.console import Console
    from rich.table import Table

    from placewright.problems import EXECUTIONS

    table = Table("placer", "what it does", "execution models")
    for c in classes:
        table.add_row(c.name, _what(c), "all" if set(c.executions) == set(EXECUTIONS) else ", ".join(c.executions))
    Console().print(table)
