"""``placewright compare``: several placers on one problem, one table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import options as o
from placewright.cli.completing import completer
from placewright.cli.completing import placers as placer_words
from placewright.cli.guidance import next_steps

if TYPE_CHECKING:
    from placewright.placement import Placement


def compare(
    model: o.Model,
    cluster: o.ClusterName = None,
    shape: o.Shape = None,
    profile: o.ProfileFile = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    placers: Annotated[
        str | None,
        typer.Option("--placers", metavar="A,B,C", help="all if not given", autocompletion=completer(placer_words)),
    ] = None,
    budget: o.BudgetText = "30s",
    evaluations: o.Evaluations = None,
    seed: o.Seed = 0,
    pin: o.Pin = None,
    forbid: o.Forbid = None,
    together: o.Together = None,
    constraints: o.ConstraintsFile = None,
    max_segments: o.MaxSegments = None,
    contiguous: o.Contiguous = True,
    schedule: o.ScheduleName = "1f1b",
    communication: o.CommunicationName = "added",
    replicas: o.Replicas = 1,
    split: o.SplitFile = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Run several placers, each with the same budget, and put them side by side.

    Example:

    placewright compare zoo:layered?ops=500 --cluster p100x4 --placers single,topo,random
    """
    from placewright.budget import parse_seconds
    from placewright.cli.running import run_in_turn
    from placewright.placers.registry import get_placer, get_placer_class, is_installed, placer_names

    seconds = parse_seconds(budget)
    names = [n.strip() for n in placers.split(",")] if placers is not None else None
    if names is None:
        names = [
            n for n in placer_names() if is_installed(get_placer_class(n)) and (n != "expert" or split is not None)
        ]
    chosen = [get_placer(n, **({"split": split} if n == "expert" and split is not None else {})) for n in names]
    problem = o.load_problem(
        model, cluster, profile, objective, execution, pin, forbid, together, shape, constraints,
        max_segments=max_segments, contiguous=contiguous, schedule=schedule, communication=communication,
        max_replicas=replicas,
    )  # fmt: skip
    usable = [p for p in chosen if problem.execution in p.executions or placers is not None]

    def answer(results: list[Placement]) -> int:
        _show(results, model, cluster, objective, as_json=as_json, quiet=quiet)
        return _exit_code(results)

    raise typer.Exit(run_in_turn(((p, problem) for p in usable), seconds, evaluations, seed, answer))


def _show(
    results: list[Placement], model: str, cluster: str | None, objective: str | None, *, as_json: bool, quiet: bool
) -> None:
    if as_json:
        typer.echo(json.dumps({"model": model, "placers": [r.summary() for r in results]}))
    elif quiet:
        for r in sorted(results, key=lambda r: (not r.is_valid, r.value)):
            typer.echo(f"{r.placer} {r.value:.6g}" if r.is_valid else f"{r.placer} {r.status}")
    else:
        from rich.console import Console

        from placewright.cli.tables import print_comparison

        print_comparison(results, Console())
        best = min((r for r in results if r.is_valid), key=lambda r: r.value, default=None)
        if best is not None:
            on = ["--cluster", cluster] if cluster is not None else []
            goal = ["--objective", objective] if objective is not None else []
            words = ["place", model, *on, *goal, "--placer", best.placer, "-o", "placement.json"]
            next_steps(("keep the best", words))


def _exit_code(results: list[Placement]) -> int:
    if any(r.is_valid for r in results):
        return 0
    proven = next((r for r in results if r.status == "infeasible" and r.device_of_op is None), None)
    if proven is None:
        return 4
    typer.echo(f"placewright: infeasible: {'; '.join(f.message for f in proven.faults[:3])}", err=True)
    return 3
