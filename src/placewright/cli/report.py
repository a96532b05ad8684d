"""``placewright report``: placements as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from placewright.cli import options as o


def report(
    placement: Annotated[
        list[str],
        typer.Argument(metavar="PLACEMENT...", help="placements by 'place -o', or splits", show_default=False),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="the page to write")] = "report.html",
    model: o.GivenModel = None,
    cluster: o.ClusterName = None,
    profile: o.ProfileFile = None,
    shape: o.Shape = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="FILE", help="what 'run --json' printed, one per placement, in their order"),
    ] = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Write one HTML page that shows what runs where, when, and what was gained. It needs no network.

    Several placements of one model are shown side by side, with what changed from the first.

    Examples:

    placewright report placement.json -o report.html

    placewright report before.json after.json --run before-run.json --run after-run.json
    """
    from placewright.cli.doing import doing
    from placewright.files import write_whole
    from placewright.reports.contents import report_contents
    from placewright.reports.page import page_html
    from placewright.text import bytes_text, shown

    runs = [_figures(file) for file in run or []]
    placements = [o.open_placed(p, model, cluster, profile, shape, objective, execution) for p in placement]
    with doing(f"drawing {shown(output)}"):
        page = page_html(report_contents(placements, _labels(placement), runs))
    write_whole(output, page)
    if as_json:
        typer.echo(json.dumps({"file": output, "bytes": len(page.encode())}))
    elif not quiet:
        typer.echo(f"wrote {shown(output, 200)} ({bytes_text(len(page.encode()))}); open it in a browser")


def _figures(file: str) -> dict[str, Any]:
    """What 'run --json' printed into a file, checked."""
    from placewright.documents import Fields
    from placewright.files import read_json
    from placewright.reading import reading
    from placewright.reports.contents import measured_figures

    with reading(file, "what 'run --json' prints") as where:
        figures = Fields(read_json(file), where).data
        measured_figures(figures)
        return figures


def _labels(paths: list[str]) -> list[str]:
    stems = [Path(p).name.removesuffix(".json") for p in paths]
    return stems if len(set(stems)) == len(stems) else [f"{i + 1}: {stem}" for i, stem in enumerate(stems)]
