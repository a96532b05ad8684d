"""Timing: medians, intervals, turns, and no gain inside the noise."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.execute.measure import compare, measure_in_turns, timing


class Clock:
    """A clock that variants move by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def takes(self, seconds: float) -> object:
        def run() -> None:
            self.now_s += seconds

        return run


def test_variants_run_in_turns_and_in_changing_order() -> None:
    order: list[str] = []
    measure_in_turns({n: lambda n=n: order.append(n) for n in "abc"}, repeats=12, warm_up=0)
    rounds = [order[i : i + 3] for i in range(0, 36, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1


def test_medians_and_exact_gain() -> None:
    clock = Clock()
    timings = measure_in_turns({"ours": clock.takes(2.0), "theirs": clock.takes(3.0)}, 5, 1, clock=clock)
    assert (timings["ours"].median_s, timings["theirs"].median_s) == pytest.approx((2.0, 3.0))
    comparison = compare(timings["ours"], timings["theirs"])
    assert comparison.gain == pytest.approx(1 / 3)
    assert comparison.is_real
    assert "33.3% faster" in str(comparison)


def test_a_gain_inside_the_noise_is_not_claimed() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = timing(1.0 + 0.2 * rng.random(15)), timing(1.005 + 0.2 * rng.random(15))
    assert not compare(ours, theirs).is_real
    assert "no difference beyond noise" in str(compare(ours, theirs))


def test_the_interval_holds_the_median_and_narrows_with_more_samples() -> None:
    rng = np.random.default_rng(1)
    few, many = timing(rng.random(10)), timing(rng.random(1000))
    assert few.low_s <= few.median_s <= few.high_s
    assert many.high_s - many.low_s < few.high_s - few.low_s


def test_an_interrupted_measurement_keeps_whole_rounds() -> None:
    runs = 0

    def count() -> None:
        nonlocal runs
        runs += 1

    timings = measure_in_turns({"a": count}, 100, 0, should_stop=lambda: runs >= 3)
    assert len(timings["a"].samples_s) == 3


def test_runs_that_settle_do_not_count_and_turns_stay_whole() -> None:
    clock = Clock()
    order: list[str] = []

    def variant(name: str) -> object:
        take = clock.takes(1.0)

        def run() -> None:
            order.append(name)
            take()

        return run

    timings = measure_in_turns(
        {n: variant(n) for n in "ab"}, repeats=3, warm_up=0, runs_per_turn=4, settling_runs=2, clock=clock
    )
    assert [len(t.samples_s) for t in timings.values()] == [12, 12]
    turns = [order[i : i + 6] for i in range(0, len(order), 6)]
    assert len(turns) == 6
    assert all(len(set(turn)) == 1 for turn in turns)
