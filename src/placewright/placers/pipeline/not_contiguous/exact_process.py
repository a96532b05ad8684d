"""The exact programmes, each run in a process of its own: what they are asked and what they answer."""

from __future__ import annotations

import io
import json
from typing import Literal, NamedTuple

import numpy as np

from placewright.placers.child_solver import ChildSolver, Line
from placewright.placers.pipeline.not_contiguous.units import Communication, IntArray, Objective, Units

Contiguity = Literal["none", "convex", "chain"]
Solver = Literal["cpsat", "highs"]
MODULES: dict[Solver, str] = {
    "cpsat": "placewright.placers.pipeline.not_contiguous.cp_programme",
    "highs": "placewright.placers.pipeline.not_contiguous.highs_programme",
}


class Settings(NamedTuple):
    """What the programme is asked for."""

    objective: Objective
    communication: Communication
    contiguity: Contiguity
    seconds: float
    workers: int
    seed: int
    upper: float  # value of the best assignment known: anything worse is not looked at
    hint: IntArray | None


class Message(NamedTuple):
    """News of a running solve: a ``solution``, a ``bound``, or that it is ``done`` and with which ``status``."""

    name: Literal["solution", "bound", "done"]
    solution: IntArray | None = None
    bound: float = 0.0
    status: str = "unknown"


class ExactProcess:
    """Handle on a running solve: poll `messages`, then `close`."""

    def __init__(self, units: Units, settings: Settings, solver: Solver) -> None:
        self.child = ChildSolver(MODULES[solver], packed(units, settings))

    @property
    def finished(self) -> bool:
        return self.child.finished

    def messages(self) -> list[Message]:
        """What has arrived since the last call."""
        return [_message(line) for line in self.child.lines()]

    def close(self) -> None:
        """End the solve, finished or not."""
        self.child.close()


def _message(line: Line) -> Message:
    if "solution" in line:
        line["solution"] = np.array(line["solution"], dtype=np.int32)
    return Message(**line)


def packed(units: Units, settings: Settings) -> bytes:
    """A problem as the child reads it."""
    hint = settings.hint if settings.hint is not None else np.zeros(0, dtype=np.int32)
    words = np.array(json.dumps(settings._replace(hint=None)))
    buffer = io.BytesIO()
    np.savez(buffer, settings=words, hint=hint, **units._asdict())
    return buffer.getvalue()


def unpacked(data: bytes) -> tuple[Units, Settings]:
    """The inverse of `packed`."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        hint = arrays["hint"]
        settings = Settings(*json.loads(str(arrays["settings"])))._replace(hint=hint if len(hint) else None)
        return Units(*(arrays[name] for name in Units._fields)), settings
