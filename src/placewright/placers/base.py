"""What every placer is.

One class with a name and a ``search``. The rest (proofs, check, bound, floor, clock) is done here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.errors import InputError
from placewright.extras import require
from placewright.placement import Placement, checked_placement, no_placement
from placewright.problems import EXECUTIONS, Problem, once_per_problem
from placewright.text import shown

if TYPE_CHECKING:
    from placewright.evaluate.checking import Fault
    from placewright.graph import FloatArray


class Found(NamedTuple):
    """What a search brings back.

    ``device_of_op`` is ``None`` if nothing valid was found; ``infeasible`` then may hold the proof that nothing exists.
    ``bound`` is a proven lower bound beyond the cheap ones, if the search has one. ``curve`` tells how learning went.

    >>> Found(np.array([0, 1], dtype=np.int32), evaluations=2).note
    ''
    """

    device_of_op: NDArray[np.int32] | None
    bound: float | None = None
    priority: FloatArray | None = None
    replicas: NDArray[np.int32] | None = None
    evaluations: int = 0
    infeasible: tuple[Fault, ...] = ()
    note: str = ""
    curve: Mapping[str, Sequence[float]] | None = None


class Placer(ABC):
    """Decides which op runs where. Stateless between calls; the same seed gives the same answer.

    A subclass sets ``name`` and ``summary`` and writes :meth:`search`; copy ``baselines/single.py`` to start a new one,
    register it in ``placers/registry.py`` (or by the entry point ``placewright.placers``), and inherit
    ``placewright.testing.PlacerContract`` in its test.

    >>> from placewright import load
    >>> class FirstPlacer(Placer):
    ...     name, summary = "first", "everything on the first device"
    ...     def search(self, problem, budget, seed):
    ...         return Found(np.zeros(problem.n_ops, dtype=np.int32))
    >>> FirstPlacer().place(load("zoo:chain?ops=3", cluster="p100x2")).is_valid
    True
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    executions: ClassVar[tuple[str, ...]] = EXECUTIONS
    requires: ClassVar[tuple[str, ...]] = ()  # optional packages, and the extra that installs them
    extra: ClassVar[str] = ""

    def place(self, problem: Problem, budget: Budget | None = None, seed: int = 0) -> Placement:
        """Return a checked placement with value, bound and provenance, valid or none at all.

        It is never worse than the best single device.
        """
        from placewright.evaluate import prove_infeasible

        self.check_suits(problem)
        budget = budget or Budget()
        started = budget.elapsed_s()
        faults = prove_infeasible(problem)
        if faults:
            return no_placement(problem, placer=self.name, faults=faults, seed=seed)
        found = self.search(problem, budget, seed)
        placement = self._finished(problem, found, seed, budget.elapsed_s() - started)
        if found.infeasible:
            return placement
        floor = best_single_device(problem)
        if floor is not None and not (placement.is_valid and placement.value <= floor[1]):
            alone = np.full(problem.n_ops, floor[0], dtype=np.int32)
            name = problem.cluster.devices[floor[0]].name
            note = f"{self.name} found nothing better than everything on {name}"
            placement = self._finished(
                problem,
                found._replace(device_of_op=alone, priority=None, replicas=None, note=note),
                seed,
                budget.elapsed_s() - started,
            )
        if placement.device_of_op is not None and not placement.is_valid:
            note = f"what was found breaks a limit: {placement.faults[0].message}"
            broken = found._replace(device_of_op=None, note=note)
            placement = self._finished(problem, broken, seed, budget.elapsed_s() - started)
        return placement

    @classmethod
    def check_installed(cls) -> None:
        """Raise :class:`MissingExtraError` if an optional package is missing."""
        for package in cls.requires:
            require(package, cls.extra)

    @classmethod
    def check_suits(cls, problem: Problem) -> None:
        """Raise :class:`InputError` if the placer does not know the problem's execution model or lacks a package."""
        if problem.execution not in cls.executions:
            from placewright.placers.registry import placers_for

            raise InputError(
                f"placer '{shown(cls.name)}' is not made for execution model '{problem.execution}', only for "
                f"{', '.join(cls.executions)}; those for '{problem.execution}' are "
                f"{', '.join(placers_for(problem.execution))}"
            )
        cls.check_installed()

    def warm_up(self, problem: Problem) -> None:  # noqa: B027
        """Compile what the search needs; called before the clock starts. Nothing by default."""

    @abstractmethod
    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        """Look for a good valid placement; called only for problems that are not infeasible at first sight."""

    def _finished(self, problem: Problem, found: Found, seed: int, seconds: float) -> Placement:
        if found.device_of_op is None:
            return no_placement(
                problem,
                placer=self.name,
                faults=found.infeasible,
                seed=seed,
                seconds=seconds,
                evaluations=found.evaluations,
                note=found.note,
            )
        return checked_placement(
            problem,
            found.device_of_op,
            placer=self.name,
            seed=seed,
            seconds=seconds,
            evaluations=found.evaluations,
            bound=found.bound,
            priority=found.priority,
            replicas=found.replicas,
            note=found.note,
            curve=found.curve,
        )


def best_of(problem: Problem, rows: NDArray[np.int32], why_not: str) -> Found:
    """The best valid one of some placements [rows, ops]; ``why_not`` is the note if none is."""
    from placewright.evaluate import evaluate_many

    result = evaluate_many(problem, rows)
    values = np.where(result.is_valid, result.value, np.inf)
    best = int(values.argmin())
    if np.isinf(values[best]):
        return Found(None, evaluations=len(rows), note=why_not)
    return Found(rows[best], evaluations=len(rows))


def make_ready(placer: Placer, problem: Problem) -> None:
    """Do what can be done before the clock starts: check packages, compile the problem and the placer's kernels.

    Kernels are warmed up only on problems that have an answer: they count on every op having a device.
    """
    from placewright.evaluate import prove_infeasible

    placer.check_suits(problem)
    prepare(problem)
    if not prove_infeasible(problem):
        placer.warm_up(problem)


def prepare(problem: Problem) -> None:
    """Do what every answer needs, before the clock starts: compile the problem and, the first time, the kernels."""
    from placewright.evaluate import check, lower_bound, prove_infeasible

    prove_infeasible(problem)
    lower_bound(problem)
    single_device_values(problem)
    check(problem, np.zeros(problem.n_ops, dtype=np.int32))


@once_per_problem
def single_device_values(problem: Problem) -> dict[str, float]:
    """Value of everything on one device, by device name; infinite where that is not allowed."""
    from placewright.evaluate import evaluate_many

    ruled = bool(problem.rules) or problem.permitted is not None
    groups = [[d] for d in range(problem.n_devices)] if ruled else problem.cluster.device_groups()
    rows = np.repeat(np.array([[g[0]] for g in groups], dtype=np.int32), problem.n_ops, axis=1)
    result = evaluate_many(problem, rows)
    values = np.where(result.is_valid, result.value, np.inf).tolist()
    of_device = {d: value for g, value in zip(groups, values, strict=True) for d in g}
    return {name: of_device[d] for d, name in enumerate(problem.cluster.device_names)}


def best_single_device(problem: Problem) -> tuple[int, float] | None:
    """The device that does best alone and its value, ``None`` if no device can hold everything."""
    values = list(single_device_values(problem).values())
    best = int(np.argmin(values))
    return None if math.isinf(values[best]) else (best, values[best])
