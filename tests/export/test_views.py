"""Formats to look at: read back by strict readers of their own, for every execution model and hostile names."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_problems import HOSTILE, hostile_placement, random_placement

from placewright.errors import InputError
from placewright.evaluate import timeline
from placewright.export.dot import dot
from placewright.export.model_explorer import NODE_DATA, model_explorer
from placewright.export.table import COLUMNS, cell, table
from placewright.export.trace import trace
from placewright.placement import Placement

OUT = Path("out.json")
EXECUTIONS = ["overlap", "sequential", "calls", "pipeline"]
CASES = [(seed, execution) for execution in EXECUTIONS for seed in range(6)]


@pytest.fixture(scope="module", params=[None, *CASES], ids=str)
def placement(request: pytest.FixtureRequest) -> Placement:
    return hostile_placement() if request.param is None else random_placement(*request.param)


def only_file(exported: Any) -> str:
    return exported.files[OUT].decode("utf-8")


def test_csv_has_every_op_where_it_was_placed(placement: Placement) -> None:
    rows = list(csv.DictReader(io.StringIO(only_file(table(placement, OUT)), newline="")))
    names, device = placement.problem.cluster.device_names, placement.device_of_op
    assert device is not None
    assert [r["device"] for r in rows] == [names[d] for d in device]
    assert [r["op"] for r in rows] == [cell(n) for n in placement.problem.graph.op_names]
    assert set(rows[0]) == set(COLUMNS)


def test_trace_is_well_formed(placement: Placement) -> None:
    if not np.isfinite(placement.value):
        with pytest.raises(InputError, match="cannot run, so it has no timeline"):
            trace(placement, OUT)
        return
    document = json.loads(only_file(trace(placement, OUT)), parse_constant=pytest.fail)
    events = document["traceEvents"]
    assert {e["ph"] for e in events} <= {"M", "X", "s", "t", "f", "C"}
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    for e in events:
        if e["ph"] == "X":
            start, length = round(e["ts"] * 1000), round(e["dur"] * 1000)
            assert start >= 0
            assert length >= 0
            tracks[e["pid"], e["tid"]].append((start, start + length))
    assert set(tracks) == named
    for slices in tracks.values():
        slices.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices)), "slices of a track overlap"
    chains: dict[int, list[Any]] = defaultdict(list)
    for e in events:
        if e["ph"] in "stf":
            chains[e["id"]].append(e)
            at = round(e["ts"] * 1000)
            assert any(a <= at <= b for a, b in tracks[e["pid"], e["tid"]]), "an arrow must end in a slice"
    for chain in chains.values():
        assert "".join(e["ph"] for e in chain).replace("t", "") == "sf"
        assert [e["ts"] for e in chain] == sorted(e["ts"] for e in chain)


@pytest.mark.parametrize("execution", ["overlap", "sequential"])
def test_trace_says_what_the_timeline_says(execution: str) -> None:
    arrows = 0
    for seed in range(6):
        p = random_placement(seed, execution)
        events = json.loads(only_file(trace(p, OUT)))["traceEvents"]
        slices = timeline(p.problem, p.device_of_op, p.priority)
        drawn = sorted((e["pid"] - 1, e["ts"], e["dur"]) for e in events if e["ph"] == "X")
        wanted = sorted((s.device, s.start_s * 1e6, (s.end_s - s.start_s) * 1e6) for s in slices)
        np.testing.assert_allclose(drawn, wanted, atol=2e-3)
        assert len([e for e in events if e["ph"] == "s"]) <= len([s for s in slices if s.what == "copy in"])
        arrows += len([e for e in events if e["ph"] == "s"])
    assert arrows > 0


def test_trace_counts_memory() -> None:
    for seed in range(6):
        p = random_placement(seed, "overlap")
        peak: dict[int, float] = defaultdict(float)
        for e in json.loads(only_file(trace(p, OUT)))["traceEvents"]:
            if e["ph"] == "C":
                peak[e["pid"] - 1] = max(peak[e["pid"] - 1], e["args"]["bytes"])
        assert p.evaluation is not None
        np.testing.assert_allclose([peak[d] for d in range(p.problem.n_devices)], p.evaluation.memory_bytes)


def test_a_pipeline_is_drawn_with_several_samples() -> None:
    drawn = [random_placement(seed, "pipeline") for seed in range(6)]
    staged = [p for p in drawn if p.stage is not None and len(set(p.stage.tolist())) > 1]
    assert staged
    for p in staged:
        events = json.loads(only_file(trace(p, OUT)))["traceEvents"]
        assert len({e["args"]["sample"] for e in events if e["ph"] == "X"}) == len(set(p.stage.tolist()))


def test_model_explorer_graph_and_data(placement: Placement) -> None:
    exported = model_explorer(placement, OUT)
    (graph,) = json.loads(only_file(exported), parse_constant=pytest.fail)
    ids = [n["id"] for n in graph["nodes"]]
    assert len(set(ids)) == placement.problem.n_ops
    assert {e["sourceNodeId"] for n in graph["nodes"] for e in n["incomingEdges"]} <= set(ids)
    for field in ("id", "label", "namespace"):
        assert all(isinstance(n[field], str) for n in graph["nodes"])
    data = json.loads(exported.files[OUT.with_name("out" + NODE_DATA)])[graph["id"]]
    assert set(ids) <= set(data["results"])
    device = dict(zip(ids, placement.device_of_op, strict=True))  # type: ignore[arg-type]
    names = placement.problem.cluster.device_names
    assert all(data["results"][i]["value"] == names[d] for i, d in device.items())
    overlaid = {
        (e["sourceNodeId"], e["targetNodeId"])
        for overlays in graph["tasksData"]["edgeOverlaysDataListLeftPane"]
        for overlay in overlays["overlays"]
        for e in overlay["edges"]
    }
    edges = {(e["sourceNodeId"], n["id"]) for n in graph["nodes"] for e in n["incomingEdges"]}
    assert overlaid == {(a, b) for a, b in edges if device[a] != device[b]}


_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([A-Za-z_][A-Za-z_0-9]*|\d+)|(->|[{}\[\]=;,]))', re.DOTALL)


def dot_tokens(text: str) -> list[str]:
    """Split DOT into tokens; whatever is none of them is a fault."""
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        assert match, f"not DOT: {text[at : at + 40]!r}"
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


@pytest.mark.parametrize("most", [400, 3])
def test_dot(placement: Placement, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placewright.export.dot.MOST_OPS", most)
    tokens = dot_tokens(only_file(dot(placement, OUT)))
    assert tokens[0] == "digraph"
    assert tokens.count("{") == tokens.count("}") == 1
    nodes = {t for t in tokens if re.fullmatch(r"n\d+", t)}
    if most > placement.problem.n_ops:
        assert len(nodes) == placement.problem.n_ops
        graph = placement.problem.graph
        assert tokens.count("->") == len(set(zip(graph.edge_producer, graph.consumer_op, strict=True)))


def test_hostile_names_stay_text() -> None:
    p = hostile_placement()
    for make in (dot, table, trace, model_explorer):
        for content in make(p, OUT).files.values():
            assert content.decode("utf-8")
    events = json.loads(only_file(trace(p, OUT)))["traceEvents"]
    assert {n for n in HOSTILE if "\ud800" not in n} <= {e["name"] for e in events}
