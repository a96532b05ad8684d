"""Text in a CSV: no formulas, no escape sequences, one line per op; numbers are numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from placewright import build_graph, checked_placement, export_placement, load
from placewright.export.table import cell


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_is_no_formula(first: str) -> None:
    assert cell(f"{first}cmd|' /C calc'!A0").startswith("'")
    assert cell(f"a{first}b")[0] == "a"


def test_hostile_names_stay_in_their_cell(tmp_path: Path) -> None:
    names = ["=1+1", "-2", "line\nbreak", "\x1b[31mred", 'quote"comma,']
    graph, _ = build_graph("names", names, [(i, 4.0, [i + 1]) for i in range(4)])
    placement = checked_placement(load(graph, cluster="p100x2"), np.zeros(5, dtype=np.int32), placer="by hand")
    export_placement(placement, "csv", str(tmp_path / "ops.csv"))
    text = (tmp_path / "ops.csv").read_text()
    assert len(text.splitlines()) == 6
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["op"] for row in rows] == ["'=1+1", "'-2", r"line\nbreak", r"\x1b[31mred", 'quote"comma,']
    assert all(float(row["start_s"]) >= 0 for row in rows)
