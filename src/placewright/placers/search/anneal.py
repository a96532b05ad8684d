"""``anneal``: simulated annealing from constructive placements, with moves that know the graph and the clock."""

from __future__ import annotations

import numpy as np

from placewright.budget import Budget
from placewright.evaluate import evaluate_many
from placewright.placers.base import Found, Placer, best_single_device
from placewright.placers.baselines.random import RandomPlacer
from placewright.placers.baselines.topo import TopoPlacer
from placewright.placers.calls.greedy import GreedyPlacer
from placewright.placers.overlap.starts import constructive_starts
from placewright.placers.search.chains import Point, anneal_from
from placewright.placers.search.sampling import sample_and_anneal, samples_help
from placewright.placers.units import fastest_devices
from placewright.problems import Problem

START_SHARE = 0.2  # of the time, at most, for constructive placements
_RANDOM_STARTS = 20


class AnnealPlacer(Placer):
    """Chains on all cores, started from list schedules, topological fills, single devices and random placements, or
    from the best of many samples where :func:`samples_help`.

    Under ``overlap`` the order of the ops is searched together with their devices. With ``budget.evaluations`` the
    result depends on the seed alone; without, the temperature falls with the time.
    """

    name = "anneal"
    summary = "simulated annealing of devices and order, from list schedules"
    executions = ("overlap", "sequential", "calls")

    def warm_up(self, problem: Problem) -> None:
        anneal_from(problem, [Point(fastest_devices(problem))], Budget(0.05, evaluations=2), 0, threads=1)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        starts = starting_points(problem, budget.part(START_SHARE * budget.remaining_s()), seed)
        if not starts:
            return Found(None, note="no placement to start from was found")
        if samples_help(problem, starts[0][1]):
            return sample_and_anneal(problem, starts, budget, seed)
        result = anneal_from(problem, [point for point, _ in starts], budget, seed)
        best, value = result.best, result.value
        start, start_value = starts[0]
        if start_value <= value and np.isfinite(start_value):
            best = start
        if best is None:
            return Found(None, evaluations=result.evaluations, note="no valid placement was met")
        return Found(best.device_of_op, priority=best.priority, evaluations=result.evaluations)


def starting_points(problem: Problem, budget: Budget, seed: int) -> list[tuple[Point, float]]:
    """Constructive placements with their values (infinite where not valid), best first; never empty.

    What other placers working on the same budget have found is one of them.
    """
    points = [(Point(s.device_of_op, s.priority), s.value) for s in constructive_starts(problem, budget, seed)]
    rows = []
    best = best_single_device(problem)
    if best is not None:
        rows.append(np.full(problem.n_ops, best[0], dtype=np.int32))
    fills: list[Placer] = [TopoPlacer(), RandomPlacer()]
    for placer in [GreedyPlacer(), *fills] if problem.execution == "calls" else fills:
        if points and budget.expired():
            break
        some = budget.apart(budget.remaining_s(), evaluations=_RANDOM_STARTS)
        found = placer.search(problem, some, seed).device_of_op
        if found is not None:
            rows.append(found)
    if not points and not rows:
        rows.append(fastest_devices(problem))
    if rows:
        result = evaluate_many(problem, np.array(rows))
        values = np.where(result.is_valid, result.value, np.inf).tolist()
        points += [(Point(row), value) for row, value in zip(rows, values, strict=True)]
    known = budget.incumbent
    if known is not None:
        again = [value for p, value in points if np.array_equal(known.device_of_op, p.device_of_op)]
        if known.value < min(again, default=np.inf):
            points.append((Point(known.device_of_op, known.priority), known.value))
    return sorted(points, key=lambda p: p[1])
