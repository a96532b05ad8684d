"""Published problems: proven optima, and the values measured for other methods that they must not fall behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from placewright.api import load, place

# Optimum, and the best value of the original's greedy, max-load split and valid expert.
LATENCY = {
    "layer_bert24_inference": (100.2185, 100.2185),
    "layer_gnmt_inference": (225.647890625, 244.331),
    "layer_resnet50_inference": (1156.88128125, 1443.793),
    "op_bert_l-3_inference": (408.47440818573847, 414.441),
    "op_bert_l-6_inference": (438.0624865649439, 444.020),
    "op_resnet50_inference": (651.1207589921962, 839.5362863359463),
}


@pytest.mark.parametrize("name", LATENCY)
def test_published_problems_are_solved(workloads: Path, name: str) -> None:
    best, others = LATENCY[name]
    placement = place(load(workloads / "latency" / f"{name}.json"), "calls-exact", 120)
    assert placement.status == "optimal"
    assert placement.value == pytest.approx(best, rel=1e-9)
    assert placement.value <= others


def test_greedy_is_no_worse_than_published_on_bert(workloads: Path) -> None:
    problem = load(workloads / "latency" / "layer_bert24_inference.json")
    assert place(problem, "greedy").value == pytest.approx(100.2185)
