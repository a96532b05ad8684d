"""``placewright export``: a placement in another tool's own language."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from placewright.cli import options as o
from placewright.cli.completing import completer, formats


def export(
    placement_file: o.PlacementFile,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="one of those above", autocompletion=completer(formats))
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="the file to write")],
    model: o.GivenModel = None,
    cluster: o.ClusterName = None,
    shape: o.Shape = None,
    profile: o.ProfileFile = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Write a placement for another tool.

    FORMAT is one of openvino-affinity, onnx, ort-settings, device-map, split-spec (to run it), trace,
    model-explorer, dot, csv (to look at it). What a format cannot say is a warning, or an error that names the op.

    Examples:

    placewright export placement.json --to openvino-affinity -o affinity.json

    placewright export placement.json --to trace -o trace.json
    """
    from placewright.cli.doing import doing
    from placewright.export import export_placement
    from placewright.text import shown

    placement = o.open_placed(placement_file, model, cluster, profile, shape, objective, execution)
    with doing(f"exporting {shown(output)}"):
        exported = export_placement(placement, to, output)
    paths = [str(path) for path in exported.files]
    if as_json:
        typer.echo(json.dumps({"format": to, "files": paths, "losses": list(exported.losses)}))
        return
    for path in paths:
        typer.echo(f"wrote {shown(path, 200)}")
    for loss in () if quiet else exported.losses:
        typer.echo(f"placewright: note: {loss}", err=True)
