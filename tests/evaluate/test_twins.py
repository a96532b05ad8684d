"""Fast kernels against their plain twins on random problems, and the laws that hold for every model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster
from placewright.evaluate import check, evaluate, evaluate_many, lower_bound, timeline
from placewright.evaluate.reference import (
    calls_value,
    chain_exists,
    overlap_value_and_peaks,
    pipeline_value,
    sequential_value_and_segments,
)
from placewright.problems import EXECUTIONS, Problem
from placewright.testing import random_problem

THOROUGH = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def problems(draw: Any, execution: str, **fixed: Any) -> tuple[Problem, np.ndarray]:
    flags = {f: draw(st.booleans()) for f in ("classes", "backward", "direct", "limits") if f not in fixed}
    n_devices = draw(st.integers(1, fixed.pop("max_devices", 8)))
    problem = random_problem(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(1, 14)),
        n_devices,
        draw(st.integers(1, 4)),
        execution,
        **flags,
        **fixed,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return problem, rng.integers(0, n_devices, (3, problem.n_ops)).astype(np.int32)


def close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))


@THOROUGH
@given(problems("overlap"), st.booleans())
def test_overlap_agrees_with_its_twin(case: tuple[Problem, np.ndarray], with_priority: bool) -> None:
    problem, rows = case
    priority = np.random.default_rng(1).integers(0, 4, problem.n_ops).astype(float) if with_priority else None
    result = evaluate_many(problem, rows, priority)
    limits = np.array([d.memory_bytes for d in problem.cluster.devices])
    for i, row in enumerate(rows):
        value, peaks = overlap_value_and_peaks(problem, row.tolist(), priority.tolist() if with_priority else None)
        assert close(result.value[i], value)
        assert close(result.excess_bytes[i], float(np.maximum(0, np.array(peaks) - limits).sum()))
        assert evaluate(problem, row, priority).memory_bytes.tolist() == pytest.approx(peaks, rel=1e-9)


@THOROUGH
@given(problems("sequential"))
def test_sequential_agrees_with_its_twin(case: tuple[Problem, np.ndarray]) -> None:
    problem, rows = case
    result = evaluate_many(problem, rows)
    for i, row in enumerate(rows):
        value, segments = sequential_value_and_segments(problem, row.tolist())
        evaluation = evaluate(problem, row)
        assert close(result.value[i], value)
        assert close(evaluation.value, value)
        assert evaluation.segments == segments


@THOROUGH
@given(problems("calls"))
def test_calls_agrees_with_its_twin(case: tuple[Problem, np.ndarray]) -> None:
    problem, rows = case
    result = evaluate_many(problem, rows)
    for i, row in enumerate(rows):
        value = calls_value(problem, row.tolist())
        assert close(result.value[i], value)
        assert close(evaluate(problem, row).value, value)


@THOROUGH
@given(
    problems("pipeline", max_devices=5),
    st.sampled_from(["1f1b", "gpipe"]),
    st.sampled_from(["added", "overlapped"]),
    st.booleans(),
)
def test_pipeline_agrees_with_its_twin(
    case: tuple[Problem, np.ndarray], schedule: Any, communication: Any, contiguous: bool
) -> None:
    problem, rows = case
    problem = problem.with_options(schedule=schedule, communication=communication, contiguous=contiguous)
    result = evaluate_many(problem, rows)
    for i, row in enumerate(rows):
        assert close(result.value[i], pipeline_value(problem, row.tolist()))
        assert close(evaluate(problem, row).value, result.value[i])
        broken = any(f.code == "contiguity" for f in check(problem, row))
        assert broken == (contiguous and not chain_exists(problem, row.tolist()))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_check_and_batch_agree_on_validity(execution: str) -> None:
    @QUICK
    @given(problems(execution, unsupported=True), st.integers(1, 9))
    def law(case: tuple[Problem, np.ndarray], max_segments: int) -> None:
        problem, rows = case
        problem = problem.with_options(max_segments=max_segments if max_segments < 6 else None)
        result = evaluate_many(problem, rows)
        for valid, row in zip(result.is_valid, rows, strict=True):
            assert valid == (check(problem, row) == ())

    law()


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_no_valid_placement_is_below_the_bound(execution: str) -> None:
    @QUICK
    @given(problems(execution), st.sampled_from(["1f1b", "gpipe"]), st.sampled_from(["added", "overlapped"]))
    def law(case: tuple[Problem, np.ndarray], schedule: Any, communication: Any) -> None:
        problem, rows = case
        problem = problem.with_options(schedule=schedule, communication=communication)
        # Grouped rows are likelier to be valid.
        rows = np.concatenate([rows, rows[:, problem.group_of_op], np.zeros((1, problem.n_ops), dtype=np.int32)])
        result = evaluate_many(problem, rows)
        if result.is_valid.any():
            assert lower_bound(problem) <= result.value[result.is_valid].min()

    law()


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_renaming_devices_permutes_the_answer(execution: str) -> None:
    @QUICK
    @given(problems(execution), st.integers(0, 1000))
    def law(case: tuple[Problem, np.ndarray], seed: int) -> None:
        problem, rows = case
        if execution == "sequential" and problem.n_devices > 2:
            # With more than two devices ties between equally ready devices go by number, by definition.
            problem = _without_overhead(problem)
        new_place = np.random.default_rng(seed).permutation(problem.n_devices)
        old = np.argsort(new_place)
        cluster = problem.cluster
        renamed = Cluster(
            cluster.name, cluster.kinds, tuple(cluster.devices[d] for d in old), cluster.to_host, cluster.from_host,
            cluster.direct,
        )  # fmt: skip
        mapping = [problem.links.links.index(link) for link in renamed.link_table().links]
        other = problem.with_options(cluster=renamed, tensor_copy_s=problem.tensor_copy_s[:, mapping])
        before, after = evaluate_many(problem, rows), evaluate_many(other, new_place[rows])
        np.testing.assert_allclose(after.value, before.value, rtol=1e-9)
        np.testing.assert_allclose(after.excess_bytes, before.excess_bytes, rtol=1e-9)
        assert lower_bound(other) == pytest.approx(lower_bound(problem), rel=1e-6)

    law()


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_free_links_make_cuts_free(execution: str) -> None:
    @QUICK
    @given(problems(execution, max_devices=4))
    def law(case: tuple[Problem, np.ndarray]) -> None:
        problem, rows = case
        free = problem.with_options(tensor_copy_s=np.zeros_like(problem.tensor_copy_s))
        costly, gratis = evaluate(problem, rows[0]), evaluate(free, rows[0])
        work = problem.op_time_s[np.arange(problem.n_ops), problem.cluster.device_kind[rows[0]]]
        if execution == "pipeline":
            assert gratis.value == pytest.approx(np.bincount(rows[0], work).max(), rel=1e-9)
        elif execution == "sequential":
            assert _without_overhead_value(free, rows[0]) == pytest.approx(work.sum(), rel=1e-9)
        elif execution == "overlap":
            assert all(s.start_s == s.end_s for s in timeline(free, rows[0]) if s.what != "compute")
        if execution != "overlap":  # under overlap dearer copies can change the order of ops for the better
            assert gratis.value <= costly.value * (1 + 1e-9)

    law()


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_one_device_gives_the_sum_of_work(execution: str) -> None:
    @QUICK
    @given(problems(execution, max_devices=3, limits=False))
    def law(case: tuple[Problem, np.ndarray]) -> None:
        problem, _ = case
        row = np.zeros(problem.n_ops, dtype=np.int32)
        kind = problem.cluster.kind_of(problem.cluster.devices[0])
        if execution == "calls" and kind.is_host:
            return  # a pool of unlimited width: the critical path, not the sum
        work = problem.op_time_s[:, problem.cluster.device_kind[0]].sum()
        overhead = kind.segment_overhead_s if execution == "sequential" else 0.0
        assert evaluate(problem, row).value == pytest.approx(work + overhead, rel=1e-9)

    law()


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_timeline_tells_the_same_story(execution: str) -> None:
    @QUICK
    @given(problems(execution))
    def law(case: tuple[Problem, np.ndarray]) -> None:
        problem, rows = case
        evaluation = evaluate(problem, rows[0])
        if np.isinf(evaluation.value):
            return
        slices = timeline(problem, rows[0])
        assert sorted(s.op for s in slices if s.what == "compute") == list(range(problem.n_ops))
        if execution in ("overlap", "sequential"):
            assert max(s.end_s for s in slices) == pytest.approx(evaluation.value, rel=1e-9)
        if execution == "pipeline" and problem.schedule == "1f1b":
            assert max(s.end_s for s in slices) == pytest.approx(evaluation.value, rel=1e-9)
        for d in range(problem.n_devices):
            host_pool = execution == "calls" and problem.cluster.is_host[d]
            track = sorted((s.start_s, s.end_s) for s in slices if s.device == d and s.what == "compute")
            assert host_pool or not any(b[0] < a[1] - 1e-9 for a, b in pairwise(track))

    law()


def _without_overhead(problem: Problem) -> Problem:
    kinds = tuple(replace(k, segment_overhead_s=0.0) for k in problem.cluster.kinds)
    return problem.with_options(cluster=replace(problem.cluster, kinds=kinds))


def _without_overhead_value(problem: Problem, row: np.ndarray) -> float:
    return evaluate(_without_overhead(problem), row).value


@QUICK
@given(
    problems("pipeline", max_devices=4), st.sampled_from(["1f1b", "gpipe"]), st.sampled_from(["added", "overlapped"])
)
def test_replicated_stages_agree_with_the_twin(
    case: tuple[Problem, np.ndarray], schedule: Any, communication: Any
) -> None:
    problem, rows = case
    rng = np.random.default_rng(0)
    sync = rng.exponential(1.0, problem.op_time_s.shape)
    problem = problem.with_options(
        max_replicas=3, sync_s=sync, schedule=schedule, communication=communication, contiguous=False
    )
    replicas = rng.integers(1, 4, problem.n_devices).astype(np.int32)
    for row in rows:
        value = pipeline_value(problem, row.tolist(), replicas.tolist())
        assert close(evaluate(problem, row, replicas=replicas).value, value)
        used = np.bincount(row, minlength=problem.n_devices) > 0
        groups = problem.cluster.device_groups()
        too_many = any(replicas[g][used[g]].sum() > len(g) for g in groups)
        faults = check(problem, row, replicas=replicas)
        assert too_many == any(f.code == "replicas" for f in faults)
        if not faults:
            assert lower_bound(problem) <= value
