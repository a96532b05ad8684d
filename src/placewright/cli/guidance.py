"""What to do next, after a command: a line or two on stderr, ready to be copied."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from placewright.text import shown


def next_steps(*steps: tuple[str, Sequence[str]]) -> None:
    """Print steps, each (what for, words after ``placewright``)."""
    for i, (why, words) in enumerate(steps):
        command = shown(" ".join(["placewright", *(shlex.quote(w) for w in words)]), 400)
        print(f"{'next:' if i == 0 else '     '} {command}   # {why}", file=sys.stderr)
