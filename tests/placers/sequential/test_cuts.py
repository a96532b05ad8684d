from __future__ import annotations

import itertools

import numpy as np
import pytest
from cut_problems import best_fusion, random_label, small_problem

from placewright._core.sequential import MinimumCut, MovableLabels
from placewright.evaluate import evaluate
from placewright.placers.sequential.edge_costs import PathMix
from placewright.placers.sequential.fusion_moves import fuse
from placewright.placers.sequential.labelling import energy_of, labelling_value, sub_energy
from placewright.placers.sequential.lagrangian import PlacedOnce, priced_cuts
from placewright.placers.sequential.large_moves import improve_by_cuts, never, starting_labels
from placewright.placers.sequential.local_moves import annealed, fits, repaired
from placewright.placers.sequential.segments import score_of, segments_of, two_segments
from placewright.placers.units import movable_units
from placewright.testing import optimum


@pytest.mark.parametrize("seed", range(100))
def test_the_cut_is_least(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    tail, head = rng.integers(0, n, (2, int(rng.integers(0, 4 * n)))).astype(np.int32)
    tail, head = tail[tail != head], head[tail != head]
    forward, backward = rng.integers(0, 5, (2, len(tail))).astype(float)
    ends = np.where(rng.random((2, n)) < 0.6, rng.exponential(4.0, (2, n)), 0.0)
    forward[rng.random(len(tail)) < 0.1] = MinimumCut.ENDLESS

    def value(at_sink: np.ndarray) -> float:
        goes, comes = ~at_sink[tail] & at_sink[head], at_sink[tail] & ~at_sink[head]
        paid = np.where(forward == MinimumCut.ENDLESS, np.inf, forward)
        return ends[0][at_sink].sum() + ends[1][~at_sink].sum() + paid[goes].sum() + backward[comes].sum()

    least = min(value(np.array(side, dtype=bool)) for side in itertools.product([False, True], repeat=n))
    cut, at_sink = MinimumCut(tail, head, forward, backward, *ends), np.empty(n, dtype=np.bool_)
    assert cut.run()
    cut.write_sink_side(at_sink)
    assert value(at_sink) == pytest.approx(least, rel=1e-12)
    assert least * (1 - 1e-12) <= cut.bound <= least * (1 + 1e-14)


def test_a_stopped_cut_still_bounds_and_goes_on() -> None:
    rng = np.random.default_rng(1)
    n, arcs = 20_000, 200_000  # some hundredths of a second, many times what is between two looks at the budget
    tail, head = rng.integers(0, n - 1, arcs).astype(np.int32), rng.integers(0, n, arcs).astype(np.int32)
    tail = np.where(tail == head, n - 1, tail).astype(np.int32)
    network = tail, head, rng.random(arcs), np.zeros(arcs), *rng.exponential(2.0, (2, n))
    whole, stopped = MinimumCut(*network), MinimumCut(*network)
    assert whole.run()
    asked = iter([True] * 3)
    assert not stopped.run(lambda: next(asked, False))
    assert stopped.bound < whole.bound
    while not stopped.run(lambda: next(asked, False)):
        pass
    assert stopped.bound == whole.bound
    with pytest.raises(ZeroDivisionError):
        MinimumCut(*network).run(lambda: bool(1 / 0))
    sides = np.empty((2, n), dtype=np.bool_)
    whole.write_sink_side(sides[0])
    stopped.write_sink_side(sides[1])
    assert (sides[0] == sides[1]).all()


@pytest.mark.parametrize("seed", range(60))
def test_values_are_the_evaluators(seed: int) -> None:
    problem = small_problem(seed, overhead=seed % 2 == 0, max_segments=2 if seed % 3 == 0 else None)
    if problem is None:
        return
    rng = np.random.default_rng(seed)
    energy, unit = energy_of(problem), movable_units(problem).unit_of_op
    label = random_label(energy, rng)
    score, judged = score_of(problem, label), evaluate(problem, label[unit])
    assert score.value == pytest.approx(judged.value)
    if seed % 2:
        assert labelling_value(energy, label) == pytest.approx(judged.value)
    state = MovableLabels(energy.core, label, problem.arrays.memory_limit_bytes)
    for v in range(energy.n_units):
        other = label.copy()
        other[v] = rng.choice(np.flatnonzero(np.isfinite(energy.time_s[v])))
        change = labelling_value(energy, other) - labelling_value(energy, label)
        assert state.change_of_move(v, int(other[v])) == pytest.approx(change, abs=1e-9)


@pytest.mark.parametrize("seed", range(100))
def test_fusions(seed: int) -> None:
    problem = small_problem(seed, 2 + seed % 3, overhead=False, direct=seed % 2 == 0)
    if problem is None:
        return
    rng = np.random.default_rng(seed)
    energy = energy_of(problem)
    label, allowed = random_label(energy, rng), np.isfinite(energy.time_s)
    one, other = rng.permutation(energy.n_devices)[:2]
    expansion = fuse(energy, label, np.where(allowed[:, one], one, label).astype(np.int32))
    best = best_fusion(energy, label, np.where(allowed[:, one], one, label))
    found = labelling_value(energy, expansion.label)
    assert found <= labelling_value(energy, label) + 1e-9
    if expansion.is_exact:
        assert found == pytest.approx(best, abs=1e-9)
        assert expansion.bound == pytest.approx(best, abs=1e-9)
    free = ((label == one) | (label == other)) & allowed[:, one] & allowed[:, other]
    first, second = (np.where(free, d, label).astype(np.int32) for d in (one, other))
    swap = fuse(energy, first, second)
    assert swap.is_exact
    assert labelling_value(energy, swap.label) == pytest.approx(best_fusion(energy, first, second), abs=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_by_prices_hold(seed: int) -> None:
    problem = small_problem(seed, overhead=False, limits=True)
    if problem is None or not np.isfinite(best := optimum(problem)):
        return
    energy, limit = energy_of(problem), problem.arrays.memory_limit_bytes
    slack = best * (1 + 1e-9) + 1e-9
    assert PlacedOnce(energy, limit).ascend(60, best, never, lambda bound: None) <= slack
    if energy.n_devices == 2:
        bounds: list[float] = []
        priced_cuts(energy, limit, never, lambda label, bound: bounds.append(bound))
        assert max(bounds) <= slack
        if (np.diff(bounds) <= 0).all() and problem.memory_cannot_bind:
            assert bounds[0] == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_repair_and_annealing_keep_the_limits(seed: int) -> None:
    problem = small_problem(seed, overhead=False, limits=True)
    if problem is None:
        return
    energy, limit = energy_of(problem), problem.arrays.memory_limit_bytes
    label = repaired(energy, improve_by_cuts(energy, starting_labels(energy)[0]), limit)
    if label is not None:
        better = annealed(energy, label, limit, 2_000, seed)
        assert fits(energy, label, limit)
        assert fits(energy, better, limit)
        assert optimum(problem) - 1e-9 <= labelling_value(energy, better) <= labelling_value(energy, label) + 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_mixed_paths_never_cost_more_than_segments(seed: int) -> None:
    problem = small_problem(seed, overhead=True, direct=seed % 2 == 0)
    if problem is None:
        return
    rng = np.random.default_rng(seed)
    energy = energy_of(problem)
    mix = PathMix(problem, problem.arrays.segment_overhead_s)
    for step in range(4):
        mix.mix_in(random_label(energy, rng), 2 / (step + 2))
    for _ in range(20):
        label = random_label(energy, rng)
        assert labelling_value(mix.energy(), label) <= score_of(problem, label).value + 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_two_segments_are_the_best_in_that_order(seed: int) -> None:
    problem = small_problem(seed, 2 + seed % 2, overhead=False)
    if problem is None:
        return
    energy = energy_of(problem)
    fused = two_segments(problem, 1, 0)
    labels = [np.array(row, dtype=np.int32) for row in itertools.product((0, 1), repeat=energy.n_units)]
    unit, g = movable_units(problem).unit_of_op, problem.graph
    values = [
        labelling_value(energy, label)
        for label in labels
        if not (label[unit[g.edge_producer]] < label[unit[g.consumer_op]]).any()
    ]
    best = min(values)
    if fused is None:
        assert np.isinf(best)
    else:
        assert labelling_value(energy, fused.label) == pytest.approx(best, abs=1e-9)
        assert segments_of(problem, fused.label)[1] <= 2


def test_a_part_keeps_its_own_tensors() -> None:
    problem = small_problem(11, 3, overhead=False)
    assert problem is not None
    energy = energy_of(problem)
    label = random_label(energy, np.random.default_rng(0))
    keep = np.arange(energy.n_units) % 2 == 0
    part = sub_energy(energy, keep)
    rest = sub_energy(energy, ~keep)
    total = labelling_value(part, label[keep]) + labelling_value(rest, label[~keep])
    assert total <= labelling_value(energy, label) + 1e-9
    everything = sub_energy(energy, np.ones(energy.n_units, dtype=np.bool_))
    assert labelling_value(everything, label) == labelling_value(energy, label)
