"""Rewards by real execution: measured once, kept, and a killed search takes the same way again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from placewright.api import load
from placewright.budget import Budget
from placewright.execute.memo import Memo
from placewright.placers import get_placer
from placewright.placers.learned.rewards import MeasuredRewards
from placewright.problems import Problem


class FakeRuntime:
    """A runtime that notes what it is asked to run, and refuses placements that use device ``refused``."""

    def __init__(self, problem: Problem, refused: str = "") -> None:
        self.problem, self.refused = problem, refused
        self.started: list[Mapping[str, str]] = []
        self.killed_at = 0
        self.pause_s: Callable[[Mapping[str, str]], float] = lambda devices: 0.0

    def live(self) -> Any:
        return SimpleNamespace(graph=self.problem.graph, inputs=[], start=self.start, runtime="fake")

    def start(self, devices: Mapping[str, str], cluster: Any, starts: Any) -> Any:
        self.started.append(dict(devices))
        if len(self.started) == self.killed_at:
            raise KeyboardInterrupt
        if self.refused in devices.values():
            raise RuntimeError("this device is broken")
        return _Executor(self.pause_s(devices))


class _Executor:
    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        time.sleep(self._pause_s)
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def problem() -> Problem:
    return load("zoo:fork-join?blocks=2", cluster="p100x2")


def test_what_was_measured_is_not_run_again(problem: Problem, tmp_path: Path) -> None:
    runtime = FakeRuntime(problem)
    live = runtime.live()
    rows = np.stack([np.zeros(problem.n_ops), np.ones(problem.n_ops), np.zeros(problem.n_ops)]).astype(np.int32)
    with Memo(tmp_path / "memo.sqlite", "here") as memo:
        rewards = MeasuredRewards(problem, live, memo)
        first = rewards.judge(rows)
        assert len(runtime.started) == 2
        again = MeasuredRewards(problem, live, memo)
        assert again.judge(rows).value.tolist() == first.value.tolist()
        assert len(runtime.started) == 2
        assert (rewards.evaluations, again.evaluations, again.measured) == (3, 3, 0)


def test_a_placement_that_cannot_run_is_the_worst_of_all(problem: Problem, tmp_path: Path) -> None:
    runtime = FakeRuntime(problem, refused=problem.cluster.device_names[1])
    with Memo(tmp_path / "memo.sqlite", "here") as memo:
        rewards = MeasuredRewards(problem, runtime.live(), memo)
        judged = rewards.judge(np.stack([np.zeros(problem.n_ops), np.ones(problem.n_ops)]).astype(np.int32))
    assert judged.is_valid.tolist() == [True, False]
    assert np.isinf(judged.value[1])


def test_a_killed_search_goes_the_same_way_and_measures_only_what_is_missing(problem: Problem, tmp_path: Path) -> None:
    runtime = FakeRuntime(problem)
    live = runtime.live()
    made: list[MeasuredRewards] = []

    def search() -> None:
        with Memo(tmp_path / "memo.sqlite", "here") as memo:

            def rewards(p: Problem) -> MeasuredRewards:
                made.append(MeasuredRewards(p, live, memo, repeats=1, warm_up=0))
                return made[-1]

            get_placer("hsdag", rewards=rewards).place(problem, Budget(60, evaluations=40), 0)

    runtime.killed_at = 20
    with pytest.raises(KeyboardInterrupt):
        search()
    runtime.killed_at = 0
    search()
    killed, resumed = made
    assert killed.measured == 19
    assert 0 < resumed.measured <= 40 - killed.measured
    assert resumed.evaluations == 40


def test_a_candidate_wins_only_if_it_is_faster_beyond_noise(problem: Problem, tmp_path: Path) -> None:
    n = problem.n_ops
    single = np.stack([np.zeros(n), np.ones(n)]).astype(np.int32)
    mixed = (np.arange(n) % 2).astype(np.int32)[None]
    for pause_s, winner in ((0.0, mixed[0]), (0.004, single[0])):
        runtime = FakeRuntime(problem)
        runtime.pause_s = lambda devices, pause_s=pause_s: pause_s if len(set(devices.values())) == 2 else 0.002
        with Memo(tmp_path / "memo.sqlite", "here") as memo:
            chosen, _ = MeasuredRewards(problem, runtime.live(), memo).confirmed(mixed, single[:1])
        assert chosen.tolist() == winner.tolist()
