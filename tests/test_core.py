"""The compiled core at its border: what it is given is checked, what goes wrong in it is an exception."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright import _core
from placewright.api import load
from placewright.placers.overlap.attempts import empty_schedule
from placewright.placers.overlap.list_costs import list_costs
from placewright.placers.overlap.schedulers import start_scheduler
from placewright.problems import core_problem
from placewright.testing import random_problem

STUBS = Path(__file__).parents[1] / "src/placewright/_core"


def ranks_of(problem: Any, **changes: Any) -> None:
    costs = list_costs(problem)
    arrays = {"mean_time_s": costs.mean_time_s, "mean_copy_s": costs.mean_copy_s, "out": np.empty(problem.n_ops)}
    _core.overlap.upward_ranks(core_problem(problem), **{**arrays, **changes})


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.empty(4), r"argument 'out': its shape is \(4, \), expected \(6, \)"),
        (np.empty((6, 1)), r"argument 'out': its shape is \(6, 1, \), expected \(6, \)"),
        (np.empty(6, dtype=np.float32), "argument 'out': its items are not of type float64"),
        (np.empty(12)[::2], "argument 'out': it is not C-contiguous"),
    ],
)
def test_a_wrong_array_is_refused_by_its_name(array: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ranks_of(random_problem(1, 6, 2, 2, "overlap"), out=array)


def test_what_is_only_read_is_not_written() -> None:
    out = np.empty(6)
    out.flags.writeable = False
    with pytest.raises(TypeError):
        ranks_of(random_problem(1, 6, 2, 2, "overlap"), out=out)


def test_a_problem_names_the_array_that_does_not_fit() -> None:
    arrays = random_problem(1, 6, 2, 2, "overlap").arrays._asdict()
    with pytest.raises(ValueError, match="argument 'copy_s': expected a numpy array"):
        _core.Problem({**arrays, "copy_s": 3})
    with pytest.raises(ValueError, match="argument 'to_host': its shape is"):
        _core.Problem({**arrays, "to_host": arrays["to_host"][:1].copy()})


def test_an_index_outside_its_array_is_an_exception_that_names_both() -> None:
    problem = random_problem(3, 6, 2, 2, "overlap")
    nobody = np.full(6, 99, dtype=np.int32)
    plan = empty_schedule(problem)
    with pytest.raises(IndexError, match=r"index 99 is outside '[a-z_]+' of 6"):
        start_scheduler(problem, nobody)(np.full(6, -1, dtype=np.int32), problem.arrays.memory_limit_bytes)
    assert plan.device.shape == (6,)


def test_a_problem_that_the_core_has_seen_can_be_pickled() -> None:
    problem = random_problem(1, 6, 2, 2, "overlap")
    ranks_of(problem)
    again = pickle.loads(pickle.dumps(problem))
    assert np.array_equal(list_costs(again).upward_s, list_costs(problem).upward_s)


def test_arrays_live_as_long_as_the_core_looks_into_them() -> None:
    views = [_core.Problem(random_problem(seed, 30, 2, 2, "overlap").arrays._asdict()) for seed in range(20)]
    for seed, view in enumerate(views):
        problem = random_problem(seed, 30, 2, 2, "overlap")
        costs, out = list_costs(problem), np.empty(30)
        _core.overlap.upward_ranks(view, costs.mean_time_s, costs.mean_copy_s, out)
        assert np.array_equal(out, costs.upward_s)


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_signal_ends_a_long_loop() -> None:
    class Enough(Exception):
        pass

    def say(number: int, frame: Any) -> None:
        raise Enough

    problem = load("zoo:layered?ops=50000", cluster="p100x8")
    schedule = start_scheduler(problem)
    decided, limits = np.full(problem.n_ops, -1, dtype=np.int32), problem.arrays.memory_limit_bytes
    began = time.perf_counter()
    schedule(decided.copy(), limits)
    whole_s = time.perf_counter() - began
    before = signal.signal(signal.SIGALRM, say)
    try:
        signal.setitimer(signal.ITIMER_REAL, whole_s / 10)
        began = time.perf_counter()
        with pytest.raises(Enough):
            schedule(decided.copy(), limits)
        assert time.perf_counter() - began < 0.75 * whole_s
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_types_are_those_of_the_core(tmp_path: Path) -> None:
    pytest.importorskip("nanobind", reason="nanobind writes the stubs")
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "placewright._core", "-r", "-O", str(tmp_path)]
    subprocess.run(command, check=True)
    written = {path.relative_to(tmp_path / "_core"): path.read_text() for path in tmp_path.rglob("*.pyi")}
    kept = {path.relative_to(STUBS): path.read_text() for path in STUBS.rglob("*.pyi")}
    assert kept == written, "make core writes them"
