"""What a cut costs in OpenVINO: tensors that cross channels last or first, and what ran before.

    python benchmarks/openvino_segments.py inception-v3 resnet-50

Each model is run whole on one core and in several placements on two, every placement cut in both ways, all in turns:
first with a run that does not count before each that does, then without. Medians in ms. Needs both cores of an idle
machine; about a minute per model. Where convolutions are not computed channels last, both ways are the same.
"""

from __future__ import annotations

import argparse
from typing import Any

import placewright as pw
from placewright.cluster_file import load_cluster
from placewright.costs.machine import machine_text
from placewright.costs.measure.campaign import measure
from placewright.costs.measure.journal import Journal
from placewright.costs.measure.sources import open_source
from placewright.execute import openvino as runtime
from placewright.execute.diverse import diverse_placements
from placewright.execute.live import open_live
from placewright.execute.measure import SETTLING_RUNS, measure_in_turns
from placewright.execute.placed import start_placement
from placewright.placement import checked_placement

AS_THEY_LIE, FIRST = "channels last", "channels first"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="zoo models, such as resnet-50")
    parser.add_argument("--placements", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    print(f"{machine_text()}, OpenVINO, one thread per device")
    print(f"| model | segments | {FIRST} | {AS_THEY_LIE} | {FIRST}, unsettled | {AS_THEY_LIE}, unsettled |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in options.models:
        examine(model, options.placements, options.repeats)


def examine(model: str, count: int, repeats: int) -> None:
    live, cluster = open_live(f"zoo:{model}", "openvino"), load_cluster("cores:2")
    source = open_source(f"zoo:{model}", "openvino")
    # Ops that the plugin fuses stay together, as in any placement by a profile.
    found = measure(source.graph, cluster, cluster.kinds, source.make_runner, repeats=3, journal=Journal(None, {}))
    problem = pw.load(f"zoo:{model}", cluster=cluster, profile=found.profile, execution="overlap")
    rows = diverse_placements(problem, count + 2)
    placements = [checked_placement(problem, row, placer="diverse") for row in (rows[0], *rows[2:])]
    executors: dict[tuple[int, str], Any] = {}
    for number, placement in enumerate(placements):
        executors[number, AS_THEY_LIE] = start_placement(live, placement)
        executors[number, FIRST] = _start_channels_first(live, placement)
    variants = {f"{n} {way}": lambda e=executor: e(live.inputs) for (n, way), executor in executors.items()}
    medians = [
        {name: t.median_s * 1e3 for name, t in measure_in_turns(variants, repeats, 3, settling_runs=runs).items()}
        for runs in (SETTLING_RUNS, 0)
    ]
    for number in range(len(placements)):
        figures = [found[f"{number} {way}"] for found in medians for way in (FIRST, AS_THEY_LIE)]
        segments = executors[number, FIRST].n_segments
        print(f"| {model} | {segments} | " + " | ".join(f"{ms:.1f}" for ms in figures) + " |", flush=True)
    for executor in executors.values():
        executor.close()


def _start_channels_first(live: Any, placement: Any) -> Any:
    usual = runtime.Compiler.crossing_channels_last
    runtime.Compiler.crossing_channels_last = lambda self, model: set()  # type: ignore[method-assign]
    try:
        return start_placement(live, placement)
    finally:
        runtime.Compiler.crossing_channels_last = usual  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
