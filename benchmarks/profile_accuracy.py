"""How well a measured profile predicts the latency of the whole model on one device.

    python benchmarks/profile_accuracy.py --threads 1

For each model and runtime: measure a profile, load the model with it, ask the evaluator for the latency on the one
device, and compare with ordinary runs of the whole model: those between the passes of the profile, and others timed
afterwards by a model prepared anew. On a machine that is not idle only the first comparison means anything.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import placewright as pw
from placewright.cluster_file import load_cluster
from placewright.costs.machine import machine_text
from placewright.costs.measure.campaign import measure
from placewright.costs.measure.journal import Journal
from placewright.costs.measure.sources import open_source
from placewright.costs.measure.timing import median_and_spread

MODELS = ("resnet-50", "inception-v3", "bert-base")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--runtimes", default="openvino,torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    base = load_cluster("cores:1")
    kind = replace(base.kinds[0], threads=options.threads)
    cluster = replace(base, kinds=(kind,))
    print(f"{machine_text()}; {options.threads} threads, f32, medians of {options.repeats}")
    print(f"{'model':14} {'runtime':9} {'predicted ms':>12} {'meanwhile ms':>20} {'afterwards ms':>20} {'groups':>6}")
    for model in options.models.split(","):
        for runtime in options.runtimes.split(","):
            source = open_source(f"zoo:{model}", runtime)
            journal = Journal(None, {})
            finding = measure(
                source.graph, cluster, [kind], source.make_runner, repeats=options.repeats, journal=journal
            )
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "profile.json"
                finding.profile.save(path)
                problem = pw.load(f"zoo:{model}", cluster=cluster, profile=path)
            predicted_s = pw.place(problem, placer="single").value
            again = source.make_runner(kind)
            for _ in range(3):
                again.whole_s()
            measured, spread = median_and_spread(np.array([[again.whole_s()] for _ in range(options.repeats)]))
            during = finding.profile.measurements[kind.name]
            columns = [
                f"{whole_s * 1e3:.2f} ± {spread_s * 1e3:.2f} {predicted_s / whole_s - 1:+7.1%}"
                for whole_s, spread_s in ((during.whole_s, during.whole_spread_s), (measured[0], spread[0]))
            ]
            print(
                f"{model:14} {runtime:9} {predicted_s * 1e3:12.2f} {columns[0]:>20} {columns[1]:>20} "
                f"{len(finding.profile.groups):6}",
                flush=True,
            )


if __name__ == "__main__":
    main()
