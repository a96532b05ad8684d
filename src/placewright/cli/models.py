"""``placewright models``: which models can be named without a file."""

from __future__ import annotations

import json
from typing import Any

import typer

from placewright.cli import options as o
from placewright.cli.doing import doing


def models(as_json: o.Json = False, quiet: o.Quiet = False) -> None:
    """List the models of the zoo with their sizes and options; MODEL is then zoo:NAME or zoo:NAME?option=value&…

    Examples:

    placewright models

    placewright place 'zoo:bert-base?layers=6&batch=8' --cluster p100x2
    """
    from placewright.zoo import MODELS

    if quiet:
        typer.echo("\n".join(f"zoo:{name}" for name in MODELS))
        return
    rows = []
    with doing("building the models of the zoo") as say:
        for name in MODELS:
            say(name)
            rows.append(_row(name))
    if as_json:
        typer.echo(json.dumps({"models": rows}))
        return
    from rich.console import Console
    from rich.table import Column, Table

    from placewright.text import bytes_text

    numbers = (Column(h, justify="right") for h in ("ops", "edges", "flops", "weights", "parameters"))
    table = Table("model", *numbers)
    for row in rows:
        parameters = "—" if row["parameters"] is None else f"{row['parameters']:,}"
        flops, weights = f"{row['flops']:.3g}", bytes_text(row["weight_bytes"])
        table.add_row(row["name"], f"{row['ops']:,}", f"{row['edges']:,}", flops, weights, parameters)
    console = Console()
    console.print(table)
    for row in rows:
        options = " ".join(f"{key}={_shown(value)}" for key, value in row["options"].items())
        console.print(f"{row['name']}: {options}", highlight=False, markup=False, soft_wrap=True)


def _row(name: str) -> dict[str, Any]:
    from placewright.zoo import built_graph, chosen_model
    from placewright.zoo.tape import Tape

    choice = chosen_model(name)
    built = choice.build()
    graph = built_graph(choice, built)
    return {
        "name": name,
        "summary": choice.model.summary,
        "ops": graph.n_ops,
        "edges": graph.n_edges,
        "flops": float(graph.flops.sum()),
        "weight_bytes": float(graph.weight_bytes.sum()),
        "parameters": built.parameters if isinstance(built, Tape) else None,
        "training": choice.training,
        "options": choice.options,
    }


def _shown(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
