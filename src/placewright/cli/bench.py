"""``placewright bench``: a quick table of placers on some models of the zoo."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placewright.cli import options as o
from placewright.cli.completing import completer
from placewright.cli.completing import placers as all_placers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placewright.placement import Placement
    from placewright.placers.base import Placer
    from placewright.problems import Problem

MODELS = "zoo:inception-v3,zoo:bert-base,zoo:fork-join"
OF_OBJECTIVE = {"latency": "heft,anneal,auto", "throughput": "topo,dpl,dp"}


def bench(
    models: Annotated[str, typer.Option("--models", metavar="A,B", help="models or problems")] = MODELS,
    cluster: o.ClusterName = "laptop-npu",
    objective: o.ObjectiveName = None,
    placers: Annotated[
        str | None,
        typer.Option(
            "--placers",
            metavar="A,B",
            help="some quick ones of each objective if not given",
            autocompletion=completer(all_placers),
        ),
    ] = None,
    budget: o.BudgetText = "2s",
    seed: o.Seed = 0,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Run some placers on some models, for both objectives, and show value, gap and seconds.

    Values are predicted under modelled costs; 'placewright run' measures.

    Examples:

    placewright bench

    placewright bench --models zoo:layered --cluster p100x4 --objective latency --placers heft,etf --budget 5s
    """
    from placewright.budget import parse_seconds
    from placewright.cli.running import run_in_turn
    from placewright.placers.registry import get_placer

    seconds = parse_seconds(budget)
    begun: list[str] = []  # the model of every job

    def jobs() -> Iterator[tuple[Placer, Problem]]:
        for model in models.split(","):
            own = None if model.strip().endswith(".json") else cluster
            for wanted in [objective] if objective is not None else list(OF_OBJECTIVE):
                problem = o.load_problem(model.strip(), own, None, wanted, None, None, None, None, None)
                names = (placers or OF_OBJECTIVE[problem.objective]).split(",")
                for placer in [get_placer(name.strip()) for name in names]:
                    if problem.execution in placer.executions:
                        begun.append(model)
                        yield placer, problem

    def answer(placements: list[Placement]) -> int:
        rows = list(zip(begun, placements, strict=False))  # the last one may have been stopped before it found anything
        if as_json:
            typer.echo(json.dumps({"results": [{"model": m, **p.summary()} for m, p in rows]}))
        elif quiet:
            for model, p in rows:
                typer.echo(f"{model} {p.problem.objective} {p.placer} {p.value:.6g}")
        else:
            _show(rows)
        return 0

    raise typer.Exit(run_in_turn(jobs(), seconds, None, seed, answer))


def _show(rows: list[tuple[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    from placewright.cli.tables import percent
    from placewright.placers.base import single_device_values
    from placewright.text import shown, time_text

    numbers = (Column(h, justify="right", no_wrap=True) for h in ("value", "gap", "gain", "seconds"))
    table = Table(*(Column(h, no_wrap=True) for h in ("model", "objective", "placer")), *numbers)
    before = ("", "")
    for model, p in rows:
        here = (model, p.problem.objective)
        if before[0] and here != before:
            table.add_section()
        unit = p.problem.time_unit
        names = [escape(shown(t)) if here != before else "" for t in here]
        alone = min(single_device_values(p.problem).values())
        gap = percent(p.gap) if p.is_valid else "—"
        gain = f"{1 - p.value / alone:.0%}" if p.is_valid and 0 < alone < math.inf else "—"
        table.add_row(*names, escape(p.placer), time_text(p.value, unit), gap, gain, f"{p.seconds:.2f}")
        before = here
    console = Console()
    console.print(table)
    console.print("gap: to the proven bound; gain: less than on the best single device", highlight=False)
