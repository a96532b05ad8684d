"""``etf``: always the op and the device that can start first, within memory (m-ETF; Hwang et al. 1989, Baechi 2020)."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.placers.base import Found, Placer
from placewright.placers.overlap.attempts import search_with
from placewright.placers.overlap.schedulers import start_scheduler
from placewright.problems import Problem


class EtfPlacer(Placer):
    """Earliest task first; on unlike devices a slower one counts as starting later by what the op loses there."""

    name = "etf"
    summary = "list scheduling by earliest start (m-ETF)"
    executions = ("overlap",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        return search_with(problem, budget, start_scheduler(problem))
