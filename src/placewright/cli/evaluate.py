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
    phase: o.Phase = None,
    tokens: o.Tokens = None,
    memory: o.Memory = None,
    profile: o.ProfileFile = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    pin: o.Pin = None,
    forbid: o.Forbid = None,
    together: o.Together = None,
    constraints: o.ConstraintsFile = None,
    max_segments: o.MaxSegments = None,
    contiguous: o.Contiguous = None,
    schedule: o.ScheduleName = None,
    communication: o.CommunicationName = None,
    replicas: o.Replicas = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Evaluate a placement or a split: value, bound, gap, load and memory per device, all faults.

    The problem is the one that the placement was made for; an option that is given takes the place of what the file
    says. --pin, --forbid and --together take the place of all rules given in that way.

    Examples:

    placewright evaluate zoo:fork-join placement.json

    placewright evaluate problem.json split.json --objective throughput --json
    """
    source = o.checkpoint_source(model, phase, tokens, memory)
    placement = o.open_placed(
        placement_file, source, cluster, profile, shape, objective, execution, pin, forbid, together, constraints,
        max_segments=max_segments, contiguous=contiguous, schedule=schedule, communication=communication,
        max_replicas=replicas,
    )  # fmt: skip
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
