"""Kernels of the core against what says the same in a few lines."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
from cut_problems import random_label, small_problem

from placewright import _core
from placewright.placers.sequential.labelling import energy_of, labelling_value, sub_energy
from placewright.placers.sequential.local_moves import descended, fits, repaired, used_bytes
from placewright.problems import core_problem
from placewright.testing import random_problem

kernels = _core.sequential


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_set_of_a_device(seed: int) -> None:
    problem = small_problem(seed, overhead=False)
    if problem is None:
        return
    rng = np.random.default_rng(seed)
    e = energy_of(problem)
    leaving, entering = rng.exponential(1.0, (2, len(e.home)))
    leaving[rng.random(len(e.home)) < 0.3] = 0.0
    cost = rng.normal(0.0, 2.0, e.n_units)

    def value(taken: np.ndarray) -> float:
        total = cost[taken].sum()
        for t, home in enumerate(e.home):
            readers = taken[e.reader[e.reader_ptr[t] : e.reader_ptr[t + 1]]]
            total += entering[t] * (readers.any() and not taken[home]) + leaving[t] * (
                taken[home] and not readers.all()
            )
        return float(total)

    least = min(value(np.array(row)) for row in itertools.product([False, True], repeat=e.n_units))
    share, taken = kernels.DeviceShare(e.core, leaving, entering), np.empty(e.n_units, dtype=np.bool_)
    for _ in range(2):
        assert share.cheapest_set(cost, taken) == pytest.approx(least, abs=1e-9)
        assert value(taken) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_the_value_of_a_labelling(seed: int) -> None:
    problem = small_problem(seed, overhead=False, direct=seed % 2 == 0)
    if problem is None:
        return
    e = energy_of(problem)
    label = random_label(e, np.random.default_rng(seed))
    total = sum(e.time_s[u, label[u]] for u in range(e.n_units))
    for t, home in enumerate(e.home):
        source = label[home]
        targets = set(label[e.reader[e.reader_ptr[t] : e.reader_ptr[t + 1]]].tolist()) - {source}
        direct = {d for d in targets if e.direct[source, d] >= 0}
        total += sum(e.copy_s[t, e.direct[source, d]] for d in direct)
        total += sum(e.copy_s[t, e.from_host[d]] for d in targets - direct)
        total += e.copy_s[t, e.to_host[source]] if targets - direct else 0.0
    assert labelling_value(e, label) == pytest.approx(total)


@pytest.mark.parametrize("seed", range(40))
def test_the_path_whose_segments_cost_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, int(rng.integers(1, 12)), 3, 2, "sequential")
    g, device = problem.graph, rng.integers(0, 3, problem.n_ops).astype(np.int32)
    segment_s, edges = rng.random(3), np.empty(problem.n_ops, dtype=np.int32)
    worst = segment_s[device]  # of the paths that end at each op
    for before, after in zip(g.edge_producer.tolist(), g.consumer_op.tolist(), strict=True):
        changes = device[before] != device[after]
        worst[after] = max(worst[after], worst[before] + segment_s[device[after]] * changes)
    length, first = kernels.worst_path(core_problem(problem), device, segment_s, edges)
    at, total = first, segment_s[device[first]]
    for e in edges[:length][::-1].tolist():
        assert g.edge_producer[e] == at
        total += segment_s[device[g.consumer_op[e]]] * (device[at] != device[g.consumer_op[e]])
        at = int(g.consumer_op[e])
    assert total == pytest.approx(worst.max())


@pytest.mark.parametrize("seed", range(40))
def test_what_follows_and_what_precedes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    before, after = rng.integers(0, n, (2, int(rng.integers(0, 2 * n)))).astype(np.int32)
    leads = np.eye(n, dtype=np.bool_)
    leads[before, after] = True
    for _ in range(n):
        leads = leads @ leads
    marked = rng.random(n) < 0.2
    for mark, wanted in (
        (kernels.mark_what_follows, marked @ leads),
        (kernels.mark_what_precedes, leads @ marked),
    ):
        found = marked.copy()
        mark(before, after, found)
        assert (found == wanted).all()


@pytest.mark.parametrize("seed", range(40))
def test_labels_that_no_other_beats(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(0, 60)), int(rng.integers(0, 4))
    state = np.sort(rng.integers(0, 5, n)).astype(np.int32)
    memory_bytes, kept = rng.integers(0, 6, (n, width)).astype(np.float64), np.empty(n, dtype=np.bool_)
    kernels.mark_undominated(state, memory_bytes, kept)
    for i in range(n):
        rivals = np.flatnonzero(state[:i] == state[i])
        assert kept[i] == (not (memory_bytes[rivals] <= memory_bytes[i]).all(axis=1).any())


@pytest.mark.parametrize("seed", range(40))
def test_descent_and_repair_end_where_no_single_unit_helps(seed: int) -> None:
    problem = small_problem(seed, overhead=False)
    if problem is None:
        return
    rng = np.random.default_rng(seed)
    e = energy_of(problem)
    limit = e.memory_bytes.sum() / e.n_devices * rng.uniform(0.8, 2.0, e.n_devices)
    label = random_label(e, rng)
    mended = repaired(e, label, limit)
    assert mended is None or fits(e, mended, limit)
    for better in (descended(e, label, limit), mended):
        if better is None:
            continue
        used, value = used_bytes(e, better), labelling_value(e, better)
        for u, d in np.argwhere(np.isfinite(e.time_s)).tolist():
            other = better.copy()
            other[u] = d
            gets_fuller = max(used[d] + e.memory_bytes[u], limit[d]) > max(used[d], limit[d])
            if d != better[u] and not gets_fuller:
                assert labelling_value(e, other) >= value * (1 - 1e-9)


def test_a_labelling_keeps_its_energy_alive() -> None:
    problem = small_problem(11, 3, overhead=False)
    assert problem is not None
    e = energy_of(problem)
    label = random_label(e, np.random.default_rng(0))
    views = [
        kernels.MovableLabels(sub_energy(e, np.ones(e.n_units, dtype=np.bool_)).core, label, np.full(3, np.inf))
        for _ in range(20)
    ]
    gc.collect()
    again = sub_energy(e, np.ones(e.n_units, dtype=np.bool_))
    wanted = kernels.MovableLabels(again.core, label, np.full(3, np.inf)).change_of_move(0, 1)
    assert [view.change_of_move(0, 1) for view in views] == [wanted] * 20


def test_an_impossible_label_is_told_by_its_name() -> None:
    problem = small_problem(11, 3, overhead=False)
    assert problem is not None
    e = energy_of(problem)
    with pytest.raises(IndexError, match="index 3 is outside 'unary_s' of 3"):
        labelling_value(e, np.full(e.n_units, 3, dtype=np.int32))
