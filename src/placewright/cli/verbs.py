"""All verbs of the command line, as one application."""

from __future__ import annotations

from typing import Annotated

import typer

from placewright import __version__
from placewright.cli import stopping
from placewright.cli.bench import bench
from placewright.cli.compare import compare
from placewright.cli.devices import devices
from placewright.cli.diff import diff
from placewright.cli.evaluate import evaluate
from placewright.cli.export import export
from placewright.cli.models import models
from placewright.cli.place import place
from placewright.cli.placers import placers
from placewright.cli.profile import profile
from placewright.cli.report import report
from placewright.cli.run import run
from placewright.cli.train import train

app = typer.Typer(
    name="placewright",
    help="Decides which operator of a neural network runs on which device. Every verb has --help with examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (
    place,
    evaluate,
    compare,
    diff,
    report,
    export,
    profile,
    train,
    bench,
    placers,
    models,
    devices,
    run,
):
    app.command()(stopping.uncaught(verb))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"placewright {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show where an error comes from; also after a verb")] = False,
) -> None:
    pass
