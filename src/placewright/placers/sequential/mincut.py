"""``mincut``: the ``sequential`` model by minimum cuts, with proofs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from placewright.budget import OPTIMAL_GAP, Budget, Incumbent
from placewright.evaluate.checking import Fault
from placewright.graph import FloatArray, IntArray
from placewright.placers.base import Found, Placer
from placewright.placers.sequential.branch import branch_and_bound
from placewright.placers.sequential.edge_costs import PathMix
from placewright.placers.sequential.labelling import energy_of, labelling_value
from placewright.placers.sequential.lagrangian import PlacedOnce, priced_cuts
from placewright.placers.sequential.large_moves import improve_by_cuts, starting_labels, two_way_cut
from placewright.placers.sequential.local_moves import annealed, fits, repaired
from placewright.placers.sequential.segments import (
    Score,
    counts_segments,
    improve_segments,
    least_overhead,
    score_of,
    two_segments,
)
from placewright.placers.units import movable_units
from placewright.problems import Problem

WARM_UP_MODEL, WARM_UP_BYTES = "zoo:layered?ops=12", 8e6  # memory for a part of its weights
BRANCHING_BITS = 60  # units x log2(devices) up to which branch and bound is worth its share of the time
BRANCHING_SHARE = 0.3
CUTTING_SHARE = 0.4  # for moves from several starts, more than two devices
SHIFTING_SHARE = 0.25
MIXING_STEPS, MIXING_SHARE = 30, 0.4
MOST_FEES = 12  # doublings of the price of a segment, where their number is limited
DUAL_STEPS, DUAL_SHARE = 400, 0.7
ANNEALING_UNITS, ANNEALING_MOVES, ANNEALING_MOVES_PER_UNIT = 20_000, 2_000_000, 4_000
PROGRAMME_COLUMNS = 60_000  # beyond, the first relaxation takes longer than most budgets


class MincutPlacer(Placer):
    """Two devices: the optimum by one cut. More devices: expansions and swaps, each a cut, and bounds by prices.

    Memory limits are priced, then repaired. Segment overheads are searched by merging, splitting and shifting segments.
    Small problems are solved by branch and bound, medium ones by an integer programme.
    Stops as soon as value and bound meet.
    """

    name = "mincut"
    summary = "minimum cuts for sequential execution: optimal for two devices, proven gaps elsewhere"
    executions = ("sequential",)

    def warm_up(self, problem: Problem) -> None:
        _compile()

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        return _Search(problem, budget, seed).run()


@cache
def _compile() -> None:
    """Run every stage on a small problem; once is enough for a process."""
    from placewright.api import load
    from placewright.cluster_file import load_cluster

    laptop = load_cluster("laptop-npu")
    devices = tuple(d if d.kind == "cpu" else replace(d, memory_bytes=WARM_UP_BYTES) for d in laptop.devices)
    for some in (devices, devices[:2]):
        small = load(WARM_UP_MODEL, cluster=replace(laptop, devices=some), execution="sequential")
        _Search(small, Budget(60.0), 0).run_all()


class _Search:
    """One run: the incumbent, the bound, and the stages that better them."""

    def __init__(self, problem: Problem, budget: Budget, seed: int) -> None:
        self.problem, self.budget, self.seed = problem, budget, seed
        self.energy = energy_of(problem)
        self.limit: FloatArray = problem.arrays.memory_limit_bytes
        self.has_limits = bool(self.energy.memory_bytes.sum() > self.limit.min())
        self.has_segments = counts_segments(problem)
        self.label: IntArray | None = None
        self.score = Score(math.inf, 0, math.inf)
        self.labelling_bound = 0.0  # without segments
        self.few_segments_bound = 0.0  # for at most two segments
        self.bound = 0.0
        self.mixed_energy = self.energy  # with the overheads along some paths, once they are known
        self.prices = np.zeros(problem.n_devices)  # of memory
        self.impossible = ""
        self.scored = 0

    def run(self) -> Found:
        self.budget.knows(self.incumbent)
        self.offer(starting_labels(self.energy)[0])
        for stage in self.stages():
            if self.budget.expired() or self.is_proven() or self.impossible:
                break
            stage()
        if self.impossible:
            return Found(None, evaluations=self.scored, infeasible=(Fault("no-packing", self.impossible),))
        if self.label is None or not self.score.is_valid:
            return Found(None, evaluations=self.scored, note="no placement within the limits was found in the time")
        device = self.label[movable_units(self.problem).unit_of_op]
        return Found(device, bound=self.bound, evaluations=self.scored)

    def incumbent(self) -> Incumbent | None:
        """The best valid placement so far."""
        if self.label is None or not self.score.is_valid:
            return None
        return Incumbent(self.label[movable_units(self.problem).unit_of_op], self.score.value)

    def stages(self) -> list[Callable[[], None]]:
        """Cheapest first; prices of memory, where there are limits, before those of segments."""
        early = [self.price] if self.has_limits and self.has_segments else []
        return [
            self.cut,
            self.few_segments,
            self.branch,
            *early,
            self.mix,
            self.price,
            self.anneal,
            self.programme,
        ]

    def run_all(self) -> None:
        """Run every stage, proven or not: so that everything is compiled."""
        self.offer(starting_labels(self.energy)[0])
        for stage in self.stages():
            self.bound = self.labelling_bound = self.few_segments_bound = 0.0
            stage()

    def is_proven(self) -> bool:
        return self.score.is_valid and self.bound >= self.score.value * (1 - OPTIMAL_GAP)

    def should_stop(self) -> bool:
        return self.budget.expired() or self.is_proven()

    def offer(self, label: IntArray) -> None:
        """Keep a labelling if it is the best so far; one that does not fit is repaired first."""
        if self.has_limits and not fits(self.energy, label, self.limit):
            fixed = repaired(self.energy, label, self.limit, self.budget.expired)
            label = label if fixed is None else fixed
        self.scored += 1
        score = score_of(self.problem, label)
        if self.label is None or score < self.score:
            self.label, self.score = label.copy(), score
            self.report()

    def raise_bound(self, labelling_bound: float) -> None:
        """Note a bound on all labellings; segments come on top."""
        self.labelling_bound = max(self.labelling_bound, labelling_bound)
        bound = self.labelling_bound
        if self.has_segments:
            most = self.problem.max_segments or self.problem.n_ops
            bound += least_overhead(self.problem, 1)
            if self.few_segments_bound > 0:
                more = self.labelling_bound + least_overhead(self.problem, 3) if most > 2 else math.inf
                bound = max(bound, min(self.few_segments_bound, more))
        self.raise_total(bound)

    def raise_total(self, bound: float) -> None:
        """Note a bound with everything in it."""
        if self.bound < bound < math.inf:
            self.bound = bound
            self.report()

    def report(self) -> None:
        self.budget.report(self.score.value if self.score.is_valid else math.inf, self.bound, self.scored)

    def cut(self) -> None:
        """One cut, or one per price of memory, or moves that are cuts."""
        e = self.energy
        if e.n_devices == 1:
            self.raise_bound(labelling_value(e, np.zeros(e.n_units, dtype=np.int32)))
        elif e.n_devices == 2:

            def on_cut(label: IntArray, bound: float) -> None:
                self.raise_bound(bound)
                self.offer(label)

            self.prices = priced_cuts(e, self.limit, self.should_stop, on_cut)
        else:
            self.raise_bound(float(e.time_s.min(axis=1).sum()) * (1 - 1e-12))
            reached: list[IntArray] = []
            budget = self.budget.part(CUTTING_SHARE * self.budget.remaining_s())
            for start in starting_labels(e):
                if budget.expired():
                    break
                label = improve_by_cuts(e, start, should_stop=budget.expired)
                if not any((label == other).all() for other in reached):
                    reached.append(label)
                    self.offer(label)

    def few_segments(self) -> None:
        """Placements in one or two segments exactly, then from many segments to fewer."""
        if not self.has_segments:
            return
        overhead, e = self.problem.arrays.segment_overhead_s, self.energy
        least = math.inf
        for d in range(e.n_devices):
            alone = np.full(e.n_units, d, dtype=np.int32)
            if np.isfinite(e.time_s[:, d]).all():
                self.offer(alone)
                least = min(least, labelling_value(e, alone) * (1 - 1e-12) + float(overhead[d]))
        if self.problem.max_segments != 1:
            for one, other in np.argwhere(~np.eye(e.n_devices, dtype=np.bool_)).tolist():
                fused = two_segments(self.problem, one, other, should_stop=self.budget.expired)
                if fused is not None:
                    self.offer(fused.label)
                    least = min(least, fused.bound + float(overhead[one] + overhead[other]))
                if self.budget.expired():
                    return
        if math.isinf(least) and self.problem.max_segments is not None and self.problem.max_segments <= 2:
            self.impossible = (
                f"no placement has {self.problem.max_segments} segments or fewer: of all orders of two devices, "
                "each puts an operator where it cannot run"
            )
            return
        self.few_segments_bound = least
        self.raise_bound(self.labelling_bound)
        self.shift_segments()

    def shift_segments(self) -> None:
        """Better the incumbent by moves of whole segments, for a share of the time."""
        assert self.label is not None
        budget = self.budget.part(SHIFTING_SHARE * self.budget.remaining_s())
        self.offer(improve_segments(self.problem, self.label, lambda: budget.expired() or self.is_proven()))

    def branch(self) -> None:
        """Small problems to the end."""
        e = self.energy
        if e.n_units * math.log2(e.n_devices) > BRANCHING_BITS:
            return
        budget = self.budget.part(BRANCHING_SHARE * self.budget.remaining_s())
        searched = branch_and_bound(self.problem, self.score.value if self.score.is_valid else math.inf, budget.expired)
        if searched.device_of_op is not None:
            label = np.empty(e.n_units, dtype=np.int32)
            label[movable_units(self.problem).unit_of_op] = searched.device_of_op
            self.offer(label)
        if searched.is_complete and self.score.is_valid:
            self.bound = self.score.value
            self.report()
        elif searched.is_complete:
            self.impossible = f"no placement keeps all limits (proven by search over {searched.nodes:,} nodes)"

    def mix(self) -> None:
        """Overheads along paths: a bound for two devices, and labellings with fewer segments for any number."""
        if not self.has_segments or self.energy.n_devices == 1:
            return
        assert self.label is not None
        budget = self.budget.part(MIXING_SHARE * self.budget.remaining_s())
        most = self.problem.max_segments
        segment_s, fee = self.problem.arrays.segment_overhead_s.astype(np.float64), 0.0
        label = self.label
        for _ in range(MOST_FEES if most is not None else 1):
            mix = PathMix(self.problem, segment_s + fee)
            for step in range(MIXING_STEPS):
                if budget.expired() or self.is_proven():
                    break
                mix.mix_in(label, 2 / (step + 2))
                label = self.best_mixed(mix, label, fee * (most or 0))
                self.offer(label)
            if most is None:
                self.mixed_energy = mix.energy()
            if budget.expired() or self.is_proven() or score_of(self.problem, label).excess_segments == 0:
                break
            fee = 2 * fee or float(segment_s.mean()) or self.score.value / self.energy.n_units
        self.shift_segments()

    def best_mixed(self, mix: PathMix, label: IntArray, allowance: float) -> IntArray:
        """The best labelling with the mean overhead of paths; ``allowance`` is what the limit of segments is worth."""
        energy = mix.energy()
        priced = energy.time_s + energy.memory_bytes[:, None] * self.prices
        if energy.n_devices > 2:
            return improve_by_cuts(energy, label, priced, self.budget.expired)
        cut = two_way_cut(energy, 0, 1, priced, self.budget.expired)
        self.raise_total(cut.bound - allowance - float(self.prices @ np.where(self.prices > 0, self.limit, 0.0)))
        return cut.label

    def price(self) -> None:
        """Bounds for more than two devices."""
        e = self.mixed_energy
        if e.n_devices <= 2:
            return
        assert self.label is not None
        once = PlacedOnce(e, self.limit)
        upper = labelling_value(e, self.label) * (1.0 if self.score.is_valid else 1.1)
        budget = self.budget.part(DUAL_SHARE * self.budget.remaining_s())
        once.ascend(DUAL_STEPS, upper, lambda: budget.expired() or self.is_proven(), self.raise_mixed)
        if self.has_limits and not self.is_proven():
            self.prices = once.memory_price
            priced = e.time_s + e.memory_bytes[:, None] * self.prices
            for start in starting_labels(e, priced)[:2]:
                self.offer(improve_by_cuts(e, start, priced, self.should_stop))

    def raise_mixed(self, bound: float) -> None:
        """Note a bound for ``mixed_energy``."""
        if self.mixed_energy is self.energy:
            self.raise_bound(bound)
        else:
            self.raise_total(bound)

    def anneal(self) -> None:
        """Small moves, where memory is tight and large moves are not enough."""
        if not self.has_limits or not self.score.is_valid or self.energy.n_units > ANNEALING_UNITS:
            return
        assert self.label is not None
        moves = min(ANNEALING_MOVES, ANNEALING_MOVES_PER_UNIT * self.energy.n_units)
        self.offer(annealed(self.energy, self.label, self.limit, moves, self.seed, self.should_stop))

    def programme(self) -> None:
        """The integer programme with what is left of the time."""
        from placewright.placers.sequential.programme import solve_programme

        e = self.mixed_energy
        per_tensor = e.n_devices**2 if (e.direct >= 0).any() else 2 * e.n_devices
        if e.n_devices == 1 or e.n_units * e.n_devices + len(e.home) * per_tensor > PROGRAMME_COLUMNS:
            return
        solved = solve_programme(
            e,
            self.limit,
            self.label if self.score.is_valid else None,
            self.budget.remaining_s(),
            self.should_stop,
            self.raise_mixed,
            self.seed,
        )
        if solved.status == "infeasible" and self.label is not None and not self.score.is_valid:
            self.impossible = "no assignment fits the devices' memories (proven by an integer programme)"
            return
        if solved.label is not None:
            self.offer(solved.label)
        self.raise_mixed(solved.bound)
