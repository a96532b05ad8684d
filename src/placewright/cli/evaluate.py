"""``placewright evaluate``: what a given placement costs and whether it is allowed."""

from __future__ import annotations

import json

import typer

from placewright.cli import options as o
from placewright.cli.guidance import next_steps


def evaluate(
    model: o.Model,
    placement_file: o.PlacementFile,
    cluster: o.ClusterName = None,
    shape: o.Shape = None,
    profile: o.ProfileFile = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    pin: o.Pin = None,
    forbid: o.Forbid = None,
    together: o.Together = None,
    constraints: o.ConstraintsFile = None,
    max_segments: o.MaxSegments = None,
    contiguous: o.Contiguous = True,
    schedule: o.ScheduleName = "1f1b",
    communication: o.CommunicationName = "added",
    replicas: o.Replicas = 1,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Evaluate a placement or a split: value, bound, gap, load and memory per device, all faults.

    Objective, execution model, cluster and profile are the ones the placement was made for, unless given.

    Examples:

    placewright evaluate zoo:fork-join placement.json

    placewright evaluate problem.json split.json --objective throughput --json
    """
    from placewright.placement import placement_settings, read_placement

    settings = placement_settings(placement_file)
    if objective is None and execution is None:
        objective, execution = settings.get("objective"), settings.get("execution")
    if cluster is None and profile is None and not model.endswith(".json"):
        cluster, profile = settings.get("cluster"), settings.get("profile")
    problem = o.load_problem(
        model, cluster, profile, objective, execution, pin, forbid, together, shape, constraints,
        max_segments=max_segments, contiguous=contiguous, schedule=schedule, communication=communication,
        max_replicas=replicas,
    )  # fmt: skip
    placement = read_placement(placement_file, problem)
    if as_json:
        typer.echo(json.dumps(placement.summary()))
        return
    from rich.console import Console

    from placewright.cli.tables import print_placement, result_line

    if quiet:
        typer.echo(result_line(placement))
    else:
        print_placement(placement, Console())
        next_steps(("look at it", ["report", placement_file, "-o", "report.html"]))
