"""Sharing the search among threads changes nothing, and a search that is stopped says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pipeline_problems import random_ops

from placewright.placers.pipeline import thresholds
from placewright.placers.pipeline.bisection import Task, new_task
from placewright.placers.pipeline.ideals import solve_ideals
from placewright.placers.pipeline.lattice import Lattice, enumerate_ideals
from placewright.placers.pipeline.stage_loads import build_model
from placewright.placers.pipeline.thresholds import Reach
from placewright.placers.pipeline.units import Ops, build_units


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_give_the_same_optimum(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    for seed in range(12):
        ops = random_ops(seed, op_count=12, edge_share=0.2, training=seed % 2 == 1)
        units, _ = build_units(ops, merge_trivial=False)
        expected = solve_ideals(units, threads=1)
        with monkeypatch.context() as patch:
            patch.setattr(thresholds, "_PARALLEL_VISITS", -1)
            result = solve_ideals(units, threads=threads)
        assert result.status == expected.status == "optimal"
        assert result.value == pytest.approx(expected.value, rel=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_search_that_is_stopped_says_so_and_proves_nothing(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(thresholds, "_PARALLEL_VISITS", -1)
    task, lattice = _long_search()
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    with ThreadPoolExecutor(threads) as pool:
        found = _search(task, lattice, should_stop, pool, threads)
    assert found.stopped
    assert found.stages is None
    assert found.visits > 0


def test_what_is_raised_while_threads_search_ends_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "_PARALLEL_VISITS", -1)
    task, lattice = _long_search()
    asked = iter(range(1_000_000))

    class Enough(Exception):
        pass

    def should_stop() -> bool:
        if next(asked) == 20:
            raise Enough
        return False

    with ThreadPoolExecutor(2) as pool, pytest.raises(Enough):
        _search(task, lattice, should_stop, pool, 2)
    assert next(asked) < 30  # the other thread did not go on


def _long_search() -> tuple[Task, Lattice]:
    """More stages than anyone can wait for, and no pipeline: the first op and the last are too heavy for one stage, and
    what goes from one to the other is too heavy for two. Bounds do not see that, and nothing dominates anything.
    """
    middle = 30
    tensors = [[last := middle + 1], *([later for later in (op + 6, last) if later <= last] for op in range(1, last))]
    cost = np.full((len(tensors), 1), 2.0)
    cost[0] = 1000.0
    ops = Ops(
        op_time=np.array([40.0, *[1.0] * middle, 40.0])[:, None],
        memory_bytes=np.zeros(middle + 2),
        is_backward=np.zeros(middle + 2, np.bool_),
        colocation=np.full(middle + 2, -1, np.int64),
        tensor_producer=np.arange(len(tensors), dtype=np.int32),
        consumer_ptr=np.cumsum([0, *map(len, tensors)]).astype(np.int32),
        consumer_op=np.concatenate(tensors).astype(np.int32),
        tensor_in=cost,
        tensor_out=cost / 1000,
        kind_count=np.array([3], np.int64),
        kind_memory=np.array([np.inf]),
    )
    units, _ = build_units(ops, merge_trivial=False)
    task = new_task(units, build_model(units), lambda: False)
    assert task is not None
    lattice = enumerate_ideals(units, 300_000, lambda: False)
    assert isinstance(lattice, Lattice)
    return task, lattice


def _search(
    task: Task, lattice: Lattice, should_stop: Callable[[], bool], pool: ThreadPoolExecutor, threads: int
) -> Reach:
    threshold = 60.0
    assert threshold > task.lower
    return thresholds.search(task.model, lattice, task.vectors, task.prices, threshold, should_stop, pool, threads)
