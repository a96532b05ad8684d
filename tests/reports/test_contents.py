"""The data of the report page: every figure is the evaluator's, every box lies in its parent, nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright import InputError, load, open_placement, place
from placewright.evaluate import evaluate, evaluate_many, timeline
from placewright.evaluate.occupancy import occupancy
from placewright.placement import Placement, checked_placement
from placewright.problems import EXECUTIONS, Execution, Problem
from placewright.reports.blocks import Boxes, find_boxes
from placewright.reports.changes import find_changes
from placewright.reports.contents import report_contents
from placewright.reports.moves import BREAKS_LIMIT, NOT_ALLOWED, values_if_moved
from placewright.reports.packing import packed_names
from placewright.reports.schedule import timeline_columns
from placewright.testing.drawn_problems import random_problem


def random_placement(seed: int, execution: Execution, n_ops: int = 12, n_devices: int = 3) -> Placement:
    problem = random_problem(seed, n_ops, n_devices, 2, execution)
    device = np.random.default_rng(seed).integers(0, n_devices, n_ops).astype(np.int32)
    return checked_placement(problem, device, placer="random")


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", range(12))
def test_moved_values_are_the_evaluators(execution: Execution, seed: int) -> None:
    p = random_placement(seed, execution)
    if not np.isfinite(p.value):
        assert len(values_if_moved(p).op) == 0
        return
    moves = values_if_moved(p)
    assert moves.op.tolist() == list(range(p.problem.n_ops))
    group = p.problem.group_of_op
    for v in range(p.problem.n_ops):
        for d in range(p.problem.n_devices):
            row = p.device_of_op.copy()  # type: ignore[union-attr]
            row[group == group[v]] = d
            judged = evaluate_many(p.problem, row)
            if p.device_of_op[v] == d:  # type: ignore[index]
                assert moves.value[v, d] == p.value
            elif p.problem.needs_contiguous_stages:
                continue  # what depends on each other in a circle moves together there
            elif not p.problem.allowed[group == group[v], d].all():
                assert moves.value[v, d] == NOT_ALLOWED
            else:
                assert moves.value[v, d] == (judged.value[0] if judged.is_valid[0] else BREAKS_LIMIT)


def test_only_the_heaviest_are_tried_when_there_is_little_to_spend() -> None:
    p = random_placement(4, "overlap")
    tried = values_if_moved(p, cells=3 * 2 * p.problem.n_ops).op
    group_time = np.zeros(p.problem.n_ops)
    times = p.problem.op_time_s[np.arange(p.problem.n_ops), p.problem.cluster.device_kind[p.device_of_op]]
    np.add.at(group_time, p.problem.group_of_op, times)
    mine = group_time[p.problem.group_of_op]
    rest = np.setdiff1d(np.arange(p.problem.n_ops), tried)
    assert 0 < len(tried) < p.problem.n_ops
    assert mine[tried].min() >= mine[rest].max()


@pytest.mark.parametrize("seed", range(40))
def test_the_peak_of_memory_over_time_is_the_evaluators(seed: int) -> None:
    p = random_placement(seed, "overlap")
    curves = occupancy(p.problem, p.device_of_op)  # type: ignore[arg-type]
    for curve, peak in zip(curves, p.evaluation.memory_bytes, strict=True):  # type: ignore[union-attr]
        assert curve.size_bytes.max() == pytest.approx(peak)
        assert curve.time_s[0] == 0.0
        assert (np.diff(curve.time_s) > 0).all()


def check_boxes(problem: Problem, device: Any) -> Boxes:
    found = find_boxes(problem, device)
    assert sorted(found.order.tolist()) == list(range(problem.n_ops))
    position = np.argsort(found.order)
    g = problem.graph
    assert (position[g.edge_producer] < position[g.consumer_op]).all()
    for number, box in enumerate(found.boxes):
        assert box.start < box.end
        inner = [b for b in found.boxes if b.parent == number]
        if inner:
            assert [b.start for b in inner] == [box.start, *(b.end for b in inner[:-1])]
            assert inner[-1].end == box.end
        if box.kind == "segment":
            ops = found.order[box.start : box.end]
            assert len(set(found.segment_of_op[ops].tolist())) == 1
            assert len(set(device[ops].tolist())) == 1
    return found


@pytest.mark.parametrize("seed", range(30))
def test_boxes_share_out_their_parents(seed: int) -> None:
    p = random_placement(seed, "sequential", n_ops=30, n_devices=3)
    found = check_boxes(p.problem, p.device_of_op)
    assert found.n_segments == p.evaluation.segments  # type: ignore[union-attr]


def test_very_many_segments_come_in_packs() -> None:
    problem = load("zoo:chain?ops=300", cluster="p100x2")
    device = (np.arange(problem.n_ops) % 2).astype(np.int32)
    found = check_boxes(problem, device)
    assert found.n_segments == 300
    top = [b for b in found.boxes if b.parent == 0]
    assert len(top) < 40
    assert {b.kind for b in top} == {"segments"}


def test_modules_are_boxes() -> None:
    problem = load("zoo:inception-v3", cluster="flex170")
    found = check_boxes(problem, np.zeros(problem.n_ops, dtype=np.int32))
    assert {"Mixed_5b", "Mixed_7c"} <= {b.label for b in found.boxes if b.kind == "module"}


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", range(8))
def test_the_timeline_is_the_evaluators(execution: Execution, seed: int) -> None:
    p = random_placement(seed, execution)
    if not np.isfinite(p.value):
        return
    columns = timeline_columns(p)
    start = np.cumsum(columns["start"]) / columns["ticks"] * (columns["end"] or 0)
    took = np.array(columns["took"]) / columns["ticks"] * (columns["end"] or 0)
    slices = timeline(p.problem, p.device_of_op)  # type: ignore[arg-type]
    computed = {s.op: s for s in slices if s.op >= 0}
    seen = [(what, i) for i, what in enumerate(columns["what"]) if what is not None and what >= 0]
    assert sorted(what for what, _ in seen) == list(range(p.problem.n_ops))
    for op, i in seen:
        assert start[i] == pytest.approx(computed[op].start_s, abs=1e-4)
        assert took[i] == pytest.approx(computed[op].end_s - computed[op].start_s, abs=1e-4)
        assert columns["lanes"][columns["lane"][i]]["from"] == p.device_of_op[op]  # type: ignore[index]
    copied = {s.tensor for s in slices if s.tensor >= 0}
    assert {-1 - w for w in columns["what"] if w is not None and w < 0} == copied


def test_figures_of_the_page_are_the_placements() -> None:
    placement = place(load("zoo:inception-v3", cluster="flex170"), placer="heft")
    contents = report_contents([placement], ["mine"])
    shown = contents["placements"][0]
    evaluation = evaluate(placement.problem, placement.device_of_op, placement.priority)  # type: ignore[arg-type]
    assert shown["value"] == pytest.approx(placement.value, rel=1e-8)
    assert shown["bound"] == pytest.approx(placement.bound, rel=1e-8)
    assert shown["segments"] == evaluation.segments
    assert [d["ops"] for d in shown["devices"]] == evaluation.ops.tolist()
    assert [d["load"] for d in shown["devices"]] == pytest.approx(evaluation.load.tolist(), rel=1e-8)
    rows = shown["segment_rows"]
    assert sum(rows["ops"]) == placement.problem.n_ops
    assert sum(rows["compute"]) == pytest.approx(float(evaluation.load.sum()), rel=1e-6)
    assert sum(shown["copy_rows"]["bytes"]) == pytest.approx(evaluation.bytes_moved)
    names = _unpacked(contents["model"]["names"])
    assert tuple(names) == placement.problem.graph.op_names
    json.dumps(contents, allow_nan=False)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", range(8))
def test_every_placement_can_be_shown(execution: Execution, seed: int) -> None:
    p = random_placement(seed, execution)
    again = json.loads(json.dumps(report_contents([p, p], ["a", "b"]), allow_nan=False))
    assert len(again["placements"]) == 2
    assert again["placements"][0]["value"] == (pytest.approx(p.value) if np.isfinite(p.value) else None)


def _unpacked(packed: dict[str, list[Any]]) -> list[str]:
    names: list[str] = []
    for keep, rest in zip(packed["keep"], packed["rest"], strict=True):
        names.append((names[-1][:keep] if names else "") + rest)
    return names


def test_names_survive_packing() -> None:
    names = ["a/b/c", "a/b/d", "", "a", "ü-1", "ü-2", "🙂1", "🙂2", "x" * 10_000, "x" * 9_999 + "y"]
    assert _unpacked(packed_names(names)) == names


def test_changes_are_found_and_grouped() -> None:
    problem = load("zoo:inception-v3", cluster="flex170")
    first = np.zeros(problem.n_ops, dtype=np.int32)
    second = first.copy()
    moved = [v for v, path in enumerate(problem.graph.module_paths) if path.startswith(("Mixed_5b", "Mixed_7c"))]
    second[moved] = 1
    a, b = (checked_placement(problem, row, placer="hand") for row in (first, second))
    changes = find_changes(a, b)
    assert np.flatnonzero(changes.moved).tolist() == moved
    assert sum(len(g.ops) for g in changes.groups) == len(moved)
    assert {(g.from_device, g.to_device) for g in changes.groups} == {("cpu0", "gpu0")}
    assert all(g.path.startswith(("Mixed_5b", "Mixed_7c")) for g in changes.groups)
    contents = report_contents([a, b], ["a", "b"])
    assert contents["changes"][0]["ops"] == moved
    assert len(contents["costs"]) == 1
    assert not find_changes(a, a).moved.any()


def test_other_models_cannot_be_compared() -> None:
    a, b = (place(load(f"zoo:chain?ops={n}", cluster="p100x2"), placer="single") for n in (5, 6))
    with pytest.raises(InputError, match="different models"):
        find_changes(a, b)


def test_learning_is_kept_with_the_placement(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from placewright.budget import Budget

    problem = load("zoo:chain?ops=12", cluster="laptop-npu")
    placement = place(problem, placer="hsdag", budget=Budget(20.0, evaluations=60))
    assert placement.curve is not None
    assert placement.curve["evaluations"][-1] == placement.evaluations
    placement.save(tmp_path / "p.json")
    again = open_placement(tmp_path / "p.json")
    assert again.curve == placement.curve
    shown = report_contents([again], ["learnt"])["placements"][0]["curve"]
    assert shown["best"][-1] == pytest.approx(min(shown["best"]))


@pytest.mark.parametrize(
    "figures",
    [{}, {"measured_s": "fast"}, {"measured_s": -1}, {"measured_s": float("nan")}, {"measured_s": True}],
)
def test_a_run_without_a_figure_is_refused(figures: dict[str, Any]) -> None:
    placement = place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single")
    with pytest.raises(InputError, match="measured_s"):
        report_contents([placement], ["x"], [figures])


def test_a_run_is_shown_with_its_interval() -> None:
    placement = place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single")
    run = {
        "measured_s": 0.5,
        "interval_s": [0.4, 0.6],
        "predicted_s": 0.45,
        "runtime": "torch",
        "single_device": {"gpu0": {"measured_s": 0.7}, "<b>": {"measured_s": None}},
        "something": "else",
    }
    shown = report_contents([placement], ["x"], [run])["placements"][0]["run"]
    assert shown["interval"] == [0.4, 0.6]
    assert shown["single"] == {"gpu0": 0.7}
    assert "something" not in shown
