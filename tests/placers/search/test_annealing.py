from __future__ import annotations

import numpy as np
import pytest

import placewright as pw
from placewright.budget import Budget
from placewright.evaluate import check, evaluate, evaluate_many, lower_bound
from placewright.placers import get_placer
from placewright.placers.judges.calls import find_pieces, run_groups
from placewright.placers.search import sampling
from placewright.placers.search.chains import Annealed, Point, _Search, anneal_from, rank_of, work_prices
from placewright.placers.search.pace import Pace, planned
from placewright.placers.search.sampling import samples_help
from placewright.placers.search.state_calls import change, keep, undo
from placewright.placers.search.state_overlap import last_checkpoint, least_tails_s, new_engine, new_log, run
from placewright.placers.search.view_calls import critical_ops, new_calls_engine, rebuild
from placewright.placers.search.view_overlap import count_loads, move_op, new_loads, smooth_maxima, windows
from placewright.placers.units import movable_units
from placewright.problems import Execution, Problem
from placewright.testing import random_problem


def some_problem(seed: int, n_ops: int = 30, execution: Execution = "overlap", **options: bool) -> Problem:
    return random_problem(seed, n_ops, 2 + seed % 3, 1 + seed % 3, execution, direct=seed % 2 == 0, **options)


def random_point(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Devices, ranks, and the ops by rank."""
    order = rng.permutation(problem.n_ops).astype(np.int32)
    rank = np.empty_like(order)
    rank[order] = np.arange(problem.n_ops, dtype=np.int32)
    return rng.integers(0, problem.n_devices, problem.n_ops).astype(np.int32), rank, order


def test_engine_agrees_with_the_evaluator_from_the_beginning_and_from_checkpoints() -> None:
    """Changed ops, new devices or exchanged ranks, from the last checkpoint before the change."""
    from_checkpoint = 0
    for seed in range(120):
        problem = some_problem(seed, n_ops=10 + seed % 60)
        rng = np.random.default_rng(seed)
        a = problem.arrays
        e = new_engine(a, least_tails_s(a, problem.op_device_time_s.min(axis=1)))
        log = new_log(problem.n_ops)
        device, rank, order = random_point(problem, rng)
        no_change = np.zeros(problem.n_devices)
        value = run(a, e, log, device, rank, order, -1, no_change, np.inf, True)
        assert value == evaluate(problem, device, rank.astype(float)).value
        producers = [
            a.tensor_producer[a.input_tensor[a.input_ptr[v] : a.input_ptr[v + 1]]] for v in range(problem.n_ops)
        ]
        for _ in range(20):
            v, d = int(rng.integers(problem.n_ops)), int(rng.integers(problem.n_devices))
            changed, change = device.copy(), np.zeros(problem.n_devices)
            change[device[v]] -= problem.op_time_s[v, a.device_kind[device[v]]]
            change[d] += problem.op_time_s[v, a.device_kind[d]]
            changed[v] = d
            first = int(log.done_index[producers[v]].min()) if len(producers[v]) else -1
            checkpoint = last_checkpoint(e.at_done, first)
            from_checkpoint += checkpoint > 0
            expected = evaluate(problem, changed, rank.astype(float)).value
            assert run(a, e, log, changed, rank, order, checkpoint, change, np.inf, False) == expected
            assert run(a, e, log, changed, rank, order, checkpoint, change, expected, False) == expected
            limit = expected * rng.uniform(0.3, 0.99)
            assert run(a, e, log, changed, rank, order, checkpoint, change, limit, False) in (np.inf, expected)
            if rng.random() < 0.3:
                device = changed
                assert run(a, e, log, device, rank, order, checkpoint, change, np.inf, True) == expected
    assert from_checkpoint > 500


def test_loads_of_moved_ops_are_those_counted_afresh_and_never_above_the_value() -> None:
    for seed in range(80):
        problem = some_problem(seed, n_ops=5 + seed % 30)
        rng = np.random.default_rng(seed)
        a, time_s = problem.arrays, np.ascontiguousarray(problem.op_time_s[:, problem.cluster.device_kind])
        window = windows(a, time_s.min(axis=1), 1 + seed % 4)
        device, rank, _ = random_point(problem, rng)
        loads = new_loads(a, window, True)
        count_loads(loads, time_s, device)
        for _ in range(30):
            move_op(loads, time_s, device, int(rng.integers(problem.n_ops)), int(rng.integers(problem.n_devices)))
        afresh = new_loads(a, window, True)
        count_loads(afresh, time_s, device)
        assert loads.busy_s == pytest.approx(afresh.busy_s, abs=1e-9)
        assert (loads.readers == afresh.readers).all()
        busiest = afresh.busy_s.sum(axis=0).max()
        assert busiest <= evaluate(problem, device, rank.astype(float)).value * (1 + 1e-9)
        parts = afresh.busy_s.max(axis=1)
        assert (
            parts.sum() - 1e-9
            <= smooth_maxima(afresh.busy_s)
            <= parts.sum() * (3 * problem.n_devices) ** (1 / 8) + 1e-9
        )


def test_windows_divide_the_work_along_the_graph() -> None:
    problem = some_problem(1, n_ops=200)
    window = windows(problem.arrays, problem.op_time_s.min(axis=1), 5)
    assert set(window.tolist()) == set(range(5))
    work = np.bincount(window, problem.op_time_s.min(axis=1))
    assert work.max() <= work.sum() / 5 + 2 * problem.op_time_s.max()
    chain = np.arange(200) * 5 // 200
    assert np.corrcoef(window, chain)[0, 1] > 0.3  # ops are numbered in topological order


def test_a_plan_is_the_same_for_speeds_that_are_nearly_the_same() -> None:
    assert len({_length(planned(speed, 10.0)) for speed in np.linspace(1000, 1050, 20)}) <= 2
    assert _length(planned(1000.0, 10.0)) <= 10_000


def test_a_plan_is_cut_where_the_time_would_not_do() -> None:
    pace = planned(1000.0, 10.0)
    remaining_s = 10.0
    while pace.share < 1 and remaining_s > 0:
        remaining_s -= pace.next_steps(remaining_s) / 100.0  # ten times slower than it seemed
    assert pace.share == 1


def _length(pace: Pace) -> int:
    steps = 0
    while pace.share < 1:
        steps += pace.next_steps()
    return steps


def test_exchanged_ranks_from_a_checkpoint() -> None:
    for seed in range(60):
        problem = some_problem(seed, n_ops=40)
        rng = np.random.default_rng(seed)
        a = problem.arrays
        e, log = new_engine(a, np.zeros(problem.n_ops)), new_log(problem.n_ops)
        device, rank, order = random_point(problem, rng)
        none = np.zeros(problem.n_devices)
        run(a, e, log, device, rank, order, -1, none, np.inf, True)
        for _ in range(20):
            u, v = rng.choice(problem.n_ops, 2, replace=False)
            first = problem.n_ops
            for w in (u, v):
                producers = a.tensor_producer[a.input_tensor[a.input_ptr[w] : a.input_ptr[w + 1]]]
                first = min(first, int(log.done_index[producers].max()) if len(producers) else -1)
            other = rank.copy()
            other[[u, v]] = rank[[v, u]]
            ops = np.argsort(other).astype(np.int32)
            value = run(a, e, log, device, other, ops, last_checkpoint(e.at_done, first), none, np.inf, False)
            assert value == evaluate(problem, device, other.astype(float)).value


def test_a_given_order_is_kept_as_ranks() -> None:
    for seed in range(40):
        problem = some_problem(seed)
        device, rank, _ = random_point(problem, np.random.default_rng(seed))
        again = rank_of(problem, device, rank.astype(float))
        assert again.tolist() == rank.tolist()
        first_come = rank_of(problem, device, None)
        assert sorted(first_come.tolist()) == list(range(problem.n_ops))


@pytest.mark.parametrize("execution", ["overlap", "sequential", "calls"])
def test_annealed_values_are_the_evaluators_and_valid(execution: Execution) -> None:
    met = 0
    for seed in range(25):
        problem = some_problem(seed, 16, execution, limits=True, classes=True, unsupported=seed % 2 == 0)
        units = movable_units(problem)
        if not units.allowed.any(axis=1).all():
            continue
        start = Point(units.time_s.argmin(axis=1).astype(np.int32)[units.unit_of_op])
        found = anneal_from(problem, [start], Budget(60, evaluations=1500), seed)
        if found.best is not None:
            met += 1
            assert check(problem, found.best.device_of_op, found.best.priority) == ()
            value = evaluate(problem, found.best.device_of_op, found.best.priority).value
            assert value == pytest.approx(found.value, rel=1e-12)
    assert met >= 8


def test_annealing_improves_on_random_placements_of_a_larger_graph() -> None:
    problem = some_problem(4, n_ops=200)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, problem.n_devices, (200, problem.n_ops)).astype(np.int32)
    best_random = evaluate_many(problem, rows).value.min()
    found = anneal_from(problem, [Point(rows[0])], Budget(60, evaluations=4000), 0)
    assert found.value < best_random


@pytest.mark.parametrize(("model", "cluster"), [("zoo:inception-v3", "flex170"), ("zoo:layered?ops=300", "p100x4")])
def test_annealing_improves_on_list_schedules_of_deep_and_of_wide_graphs(model: str, cluster: str) -> None:
    """The longest way decides on the one, the load of the devices on the other."""
    problem = pw.load(model, cluster=cluster, execution="overlap")
    listed = min(get_placer(name).place(problem, Budget(10), 0).value for name in ("heft", "peft", "etf", "cpop"))
    annealed = get_placer("anneal").place(problem, Budget(60, evaluations=20_000), 0)
    assert annealed.value < 0.97 * listed


def test_the_same_seed_gives_the_same_answer_on_any_number_of_slices() -> None:
    problem = some_problem(3, n_ops=60)
    start = Point(np.zeros(problem.n_ops, dtype=np.int32))
    first, second = (anneal_from(problem, [start], Budget(60, evaluations=3000), 5, threads=2) for _ in range(2))
    assert first.best is not None
    assert second.best is not None
    assert first.best.device_of_op.tolist() == second.best.device_of_op.tolist()
    assert first.evaluations == second.evaluations


def test_prices_of_equal_devices_are_equal_and_add_up() -> None:
    problem = random_problem(1, 200, 4, 1, "overlap")
    prices = work_prices(problem)
    assert prices.sum() == pytest.approx(1.0)
    assert prices.max() < 1.5 * prices.min()


@pytest.mark.parametrize("name", ["anneal", "cross-entropy"])
def test_max_segments_is_kept(name: str) -> None:
    problem = some_problem(2, 14).with_options(max_segments=2)
    placement = get_placer(name).place(problem, Budget(5, evaluations=400), 0)
    assert placement.is_valid
    assert placement.evaluation is not None
    assert placement.evaluation.segments <= 2


def test_changes_of_calls_have_the_evaluators_values_and_can_be_taken_back() -> None:
    finite, circles, wrongly_cut_off = 0, 0, 0
    for seed in range(150):
        problem = some_problem(seed, 5 + seed % 40, "calls", classes=seed % 3 == 0)
        rng = np.random.default_rng(seed)
        a, n = problem.arrays, problem.n_ops
        one_each, ops = np.arange(n + 1, dtype=np.int32), np.arange(n, dtype=np.int32)
        calls = new_calls_engine(a, n)
        device = rng.integers(0, problem.n_devices, n).astype(np.int32)
        if seed % 2:
            device[:] = 0
        present = rebuild(a, calls, device)
        for _ in range(40):
            moved = rng.choice(ops, int(rng.integers(1, 4))).astype(np.int32)
            changed = device.copy()
            changed[moved] = rng.integers(0, problem.n_devices)
            expected = evaluate(problem, changed).value
            cut_off = rng.random() < 0.3 and np.isfinite(present)
            limit = present * rng.uniform(1.0, 1.2) if cut_off else np.inf
            is_exact = rng.random() < 0.5
            value = change(a, calls, changed, moved, one_each, ops, limit, is_exact)
            if np.isfinite(value) or (is_exact and expected <= limit):
                assert value == pytest.approx(expected, rel=1e-12)
            else:
                wrongly_cut_off += np.isfinite(expected) and expected <= limit
            finite += np.isfinite(value)
            circles += np.isinf(expected)
            if value <= limit and rng.random() < 0.5:
                keep(a, calls)
                device, present = changed, value
            else:
                undo(a, calls, device)
    assert finite > 3000
    assert circles > 20
    assert wrongly_cut_off < 60


def test_the_critical_path_of_calls_takes_all_the_time() -> None:
    known = 0
    for seed in range(40):
        problem = some_problem(seed, n_ops=20, execution="calls")
        device = random_point(problem, np.random.default_rng(seed))[0]
        calls = new_calls_engine(problem.arrays, problem.n_ops)
        value = rebuild(problem.arrays, calls, device)
        assert value == evaluate(problem, device).value
        critical = np.zeros(problem.n_ops, dtype=np.int32)
        path = critical[: critical_ops(problem.arrays, calls, critical)]
        assert (len(path) == 0) == np.isinf(value)
        group = np.empty(problem.n_ops, dtype=np.int32)
        times = np.zeros((4, find_pieces(problem.arrays, device, group)))
        run_groups(problem.arrays, device, group, times.shape[1], *times)
        if len(path):
            known += 1
            assert times[1:, np.unique(group[path])].sum() == pytest.approx(value)
    assert known > 20


@pytest.mark.parametrize("execution", ["calls", "overlap"])
def test_annealing_samples_where_that_helps_and_cross_entropy_is_the_same_search(execution: Execution) -> None:
    problem = some_problem(5, 40, execution)
    first, second = (
        get_placer(name).place(problem, Budget(60, evaluations=1500), 3) for name in ("anneal", "cross-entropy")
    )
    assert first.value == second.value
    assert first.evaluations == second.evaluations


def test_samples_help_under_calls_and_near_the_bound_of_overlap() -> None:
    small, large = (random_problem(1, n, 3, 3, "overlap") for n in (50, 4001))
    assert samples_help(small, 1.1 * lower_bound(small))
    assert not samples_help(small, 1.3 * lower_bound(small))
    assert not samples_help(large, 1.1 * lower_bound(large))
    assert samples_help(some_problem(1, 20, "calls"), np.inf)
    assert not samples_help(some_problem(1, 20, "sequential"), 0.0)


def test_an_interrupt_reaches_the_annealing_after_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, budget, seen = some_problem(1, 20, "calls"), Budget(60, evaluations=500), []

    def note(problem: Problem, starts: list[Point], rest: Budget, seed: int) -> Annealed:
        budget.interrupt()
        seen.append((rest.expired(), rest.evaluations))
        return Annealed(None, np.inf, 0)

    monkeypatch.setattr(sampling, "anneal_from", note)
    found = get_placer("anneal").search(problem, budget, 0)
    assert found.device_of_op is not None
    assert seen == [(True, 500 - found.evaluations)]


def test_the_last_round_fills_the_time_and_is_remembered() -> None:
    problem = some_problem(1, 20)
    search = _Search(problem, [Point(np.zeros(20, dtype=np.int32))], 0, 1)
    assert search._round(0, 100, 1000.0, 10.0) == 100
    assert search._round(1, 100, 120.0, 10.0) == 102  # 85%: a slower run can follow
    assert search._round(2, 100, 20.0, 10.0) == 10  # and misses only half of the rest
    again = _Search(problem, [Point(np.zeros(20, dtype=np.int32))], 0, 1)
    assert [again._round(i, 100, 1e9, 10.0) for i in range(4)] == [100, 102, 10, 100]
