"""The command line: one file per verb; errors are one line and an exit code, never a traceback.

What is imported here is little, so that a signal is heard from the beginning.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import functools
import os
import sys
import warnings
from typing import Any

from placewright.cli import doing, stopping
from placewright.errors import PlacewrightError
from placewright.text import shown

# What tables and messages are written with, for terminals that have nothing but ASCII; as wide as the original.
_PLAIN = str.maketrans({"—": "-", "…": "~", "·": "-", "±": "~", "×": "x", "→": ">"})


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'placewright.cli.main' has no attribute '{name}'")
    from placewright.cli.verbs import app

    return app


@functools.cache  # building all verbs takes as long as a small command
def _command() -> Any:
    from typer.main import get_command

    from placewright.cli.verbs import app

    return get_command(app)


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words or bool(os.environ.get("PLACEWRIGHT_DEBUG"))
    words = [word for word in words if word != "--debug"]
    doing.be_quiet(any(word in ("-q", "--quiet") for word in words))
    with stopping.heard():
        try:
            code = _command()(words, standalone_mode=False, prog_name="placewright")
            return int(code or 0)
        except BaseException as wrapped:
            error = stopping.unwrapped(wrapped)
            if debug and not isinstance(error, SystemExit):
                _show_traceback(error)
            ended = _ended_by(error)
            if ended is None:
                raise
            return ended


def _ended_by(error: BaseException) -> int | None:
    """Say in one line why the command ended, and return the exit code; ``None`` if it is not ours to say."""
    import typer

    from placewright.extras import missing_extra

    match error:
        case typer.Exit():
            return int(error.exit_code)
        case Exception() if (stopped := stopping.raised()) is not None:
            return _complain(str(stopped), stopping.exit_code(stopped.number))
        case PlacewrightError():
            return _complain(str(error), error.exit_code)
        case stopping.Stopped():
            return _complain(str(error), stopping.exit_code(error.number))
        case typer.Abort() | KeyboardInterrupt():
            return _complain("stopped", stopping.exit_code())
        case BrokenPipeError():  # the reader went away (placewright … | head): nothing to complain about
            _give_up_output()
            return 0
        case OSError():
            is_output = error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
            where = "output" if is_output else shown(str(error.filename or type(error).__name__), 200)
            return _complain(f"{where}: {error.strerror or error}", 2)
        case MemoryError():
            return _complain(f"out of memory{f': {error}' if str(error) else ''}", 1)
        case ImportError() if (wanted := missing_extra(error)) is not None:
            return _complain(str(wanted), wanted.exit_code)
        case Exception():
            return _complain_of(error)
    return None


def _complain_of(error: Exception) -> int:
    message = getattr(error, "format_message", None)
    if message is not None:  # of the parser of command lines
        return _complain(f"{message()} (see placewright --help)", 2)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {shown(first, 300)}" if first else type(error).__name__
    return _complain(f"internal error: {text}; run again with --debug for the traceback", 1)


def _complain(message: str, code: int) -> int:
    doing.note(shown(message, limit=2000))
    return code


def _show_traceback(error: BaseException) -> None:
    import traceback

    import typer

    if not isinstance(error, typer.Exit):
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exception(error)


def _give_up_output() -> None:
    """Nobody can take what is still to be written: the interpreter must not try again when it closes."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flushed(code: int) -> int:
    """The exit code after everything was really written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
    except (OSError, ValueError) as error:
        _give_up_output()
        return _complain(f"output: {getattr(error, 'strerror', None) or error}", 2) if code == 0 else code
    return code


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for characters that a terminal's encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode(error.encoding, "backslashreplace").decode(error.encoding), error.end


def main() -> None:
    """Entry point of the ``placewright`` command."""
    try:
        stopping.listen()
        stopping.watch()
        stopping.quiet_where_ignored()
        doing.show_always()
        codecs.register_error("placewright", _plain)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError):  # none, or another kind of stream
                stream.reconfigure(errors="placewright")  # type: ignore[union-attr]
        if not sys.warnoptions:  # libraries warn their developers, not our users; python -W or PYTHONWARNINGS shows all
            warnings.simplefilter("ignore")
        code = _flushed(run())
    except stopping.Uncaught as error:  # before the command line was read
        code = _ended_by(stopping.unwrapped(error)) or 1
    stopping.is_over(code)
    sys.exit(code)
