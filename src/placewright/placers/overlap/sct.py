"""``sct``: earliest start, but a device waits for the favourite child of its last op (m-SCT; Hanen and Munier 1995)."""

from __future__ import annotations

from placewright.budget import Budget
from placewright.placers.base import Found, Placer
from placewright.placers.overlap.attempts import search_with
from placewright.placers.overlap.favourites import favourites_by_programme, heaviest_favourites
from placewright.placers.overlap.schedulers import start_scheduler
from placewright.problems import Problem

# 10,000 ops take half a second where copies are cheap. Where they are dear the programme is far harder, and what it
# favours is worth little.
MOST_PROGRAMME_S_PER_OP = 1.2e-4


class SctPlacer(Placer):
    """Favourites by a linear programme; if that takes too long, by the heaviest edges."""

    name = "sct"
    summary = "list scheduling with favourite children by a linear programme (m-SCT)"
    executions = ("overlap",)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        most_s = max(0.5, MOST_PROGRAMME_S_PER_OP * problem.n_ops)
        favourite = favourites_by_programme(problem, min(most_s, budget.remaining_s() / 2))
        by_rule = favourite is None
        found = search_with(
            problem, budget, start_scheduler(problem, heaviest_favourites(problem) if favourite is None else favourite)
        )
        note = "favourites by the heaviest edges: the linear programme was not solved in time" if by_rule else ""
        return found._replace(note="; ".join(filter(None, (found.note, note))))
