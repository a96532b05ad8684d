"""``expert``: a placement that a person wrote down, from a split or placement file."""

from __future__ import annotations

from pathlib import Path

from placewright.budget import Budget
from placewright.errors import InputError
from placewright.placement import Placement, read_placement
from placewright.placers.base import Found, Placer
from placewright.problems import Problem


class ExpertPlacer(Placer):
    """Reads ``split`` and checks it. Faults of the split are listed, never repaired."""

    name = "expert"
    summary = "a hand-written split, from the file given by --split"

    def __init__(self, split: str | Path | None = None) -> None:
        self.split = split

    def place(self, problem: Problem, budget: Budget | None = None, seed: int = 0) -> Placement:
        """Return the file's placement as it is: unlike all others it may be worse than a single device, or invalid."""
        return read_placement(self._file(), problem)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        return Found(read_placement(self._file(), problem).device_of_op)

    def _file(self) -> str | Path:
        if self.split is None:
            raise InputError("placer 'expert' needs a file: --split FILE")
        return self.split
