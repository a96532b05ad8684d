"""Published problems: sizes after preprocessing, number of ideals, and the optimum of the original program."""

from __future__ import annotations

from pathlib import Path

import pytest

from placewright.api import load, place
from placewright.placers.pipeline.ideals import solve_ideals
from placewright.placers.pipeline.units import build_units
from placewright.placers.pipeline.view import pipeline_view

# Units after fusing, units after trivial merging, precedence edges, ideals, optimum.
THROUGHPUT = {
    "layer_bert24_inference": (32, 28, 51, 30, 17.78990625),
    "layer_bert24_training": (32, 28, 51, 30, 41.7458125),
    "layer_gnmt_inference": (96, 78, 104, 17_914, 32.910658203124996),
    "layer_inceptionv3_inference": (326, 326, 363, 36_596, 51.55186358642578),
    "layer_resnet50_inference": (177, 177, 193, 242, 33.774666015625),
    "layer_resnet50_training": (177, 177, 193, 242, 78.63181250000001),
    "op_bert_l-3_inference": (128, 128, 143, 1_428, 27.9185676799125),
    "op_bert_l-3_training": (138, 138, 175, 2_774, 65.30314912208605),
    "op_bert_l-6_inference": (227, 227, 257, 1_923, 29.57950580645155),
    "op_bert_l-6_training": (243, 243, 313, 3_776, 72.86496632241122),
    "op_bert_l-12_training": (451, 451, 586, 2_938, 437.9976378578455),
    "op_resnet50_inference": (176, 176, 191, 241, 124.34884977404485),
}
MAX_LOAD_ON_LATENCY_FILES = {
    "layer_bert24_inference": 22.035125,
    "layer_gnmt_inference": 44.896515625,
    "layer_resnet50_inference": 110.014015625,
    "op_bert_l-3_inference": 189.14219086454997,
    "op_bert_l-6_inference": 189.14219086454997,
    "op_resnet50_inference": 107.77826254576507,
}


@pytest.mark.parametrize("name", THROUGHPUT)
def test_sizes_ideals_and_optimum(workloads: Path, name: str) -> None:
    fused_units, n_units, edges, ideals, optimum = THROUGHPUT[name]
    problem = load(workloads / "throughput" / f"{name}.json", objective="throughput")
    fused, _ = build_units(pipeline_view(problem).ops, merge_trivial=False)
    units, _ = build_units(pipeline_view(problem).ops)
    assert (len(fused.memory_bytes), len(units.memory_bytes), len(units.successor)) == (fused_units, n_units, edges)
    assert solve_ideals(units).ideals == ideals
    placement = place(problem, "dp", 60)
    assert placement.status == "optimal"
    assert placement.value == pytest.approx(optimum, rel=1e-6)
    assert place(problem, "dpl", 60).value >= optimum * (1 - 1e-9)


@pytest.mark.parametrize("name", MAX_LOAD_ON_LATENCY_FILES)
def test_optimum_on_latency_files(workloads: Path, name: str) -> None:
    problem = load(workloads / "latency" / f"{name}.json", objective="throughput")
    placement = place(problem, "dp", 60)
    assert placement.is_valid
    # The original merges ops without time into neighbours, which memory limits can make a loss; we need not.
    assert placement.value <= MAX_LOAD_ON_LATENCY_FILES[name] * (1 + 1e-6)
    assert placement.status == "optimal"
