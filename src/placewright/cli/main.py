"""The command line: one file per verb; errors are one line and an exit code, never a traceback."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.main import get_command

from placewright import __version__
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
from placewright.cli.run import run as run_verb
from placewright.cli.train import train
from placewright.errors import PlacewrightError
from placewright.text import shown

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
):
    app.command()(verb)
app.command("run")(run_verb)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"placewright {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@functools.cache  # building all verbs takes as long as a small command
def _command() -> Any:
    return get_command(app)


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        code = _command()(arguments, standalone_mode=False, prog_name="placewright")
        return int(code or 0)
    except typer.Exit as exit_request:
        return int(exit_request.exit_code)
    except PlacewrightError as error:
        _complain(str(error))
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        _complain("stopped")
        return 130
    except BrokenPipeError:
        # The reader went away (placewright … | head): nothing to complain about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        _complain(f"{message()} (see placewright --help)")
        return 2


def _complain(message: str) -> None:
    line = shown(message, limit=2000)
    print(f"placewright: {line}", file=sys.stderr)


def main() -> None:
    """Entry point of the ``placewright`` command."""
    if not sys.warnoptions:  # libraries warn their developers, not our users; python -W or PYTHONWARNINGS shows all
        warnings.simplefilter("ignore")
    sys.exit(run())
