"""What to do next, after a command: a line or two on stderr, ready to be copied."""

from __future__ import annotations

import shlex
import sys

from placewright.text import shown


def next_steps(*steps: tuple[str, list[str | None]]) -> None:
    """Print steps, each (what for, words after ``placewright``); words that are ``None`` are left out."""
    for i, (why, words) in enumerate(steps):
        command = shown(" ".join(["placewright", *(shlex.quote(w) for w in words if w is not None)]), 400)
        print(f"{'next:' if i == 0 else '     '} {command}   # {why}", file=sys.stderr)
