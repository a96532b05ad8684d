"""Fit the efficiencies of preset flex170 to the single-device latencies that HSDAG published, and compare.

    python benchmarks/calibrate_flex170.py          # the preset against the published figures
    python benchmarks/calibrate_flex170.py --fit    # what a fit would put into it

A fit has four fractions per device and three figures to meet, so it also keeps close to what such devices often reach.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import numpy as np

from placewright.cluster import DeviceKind, Efficiency
from placewright.cluster_file import load_cluster
from placewright.costs.roofline import roofline_time_s
from placewright.zoo import zoo_graph

# Duan et al., NeurIPS 2024, table 2, seconds. BERT was fed one five-word sentence: about 8 tokens.
PUBLISHED_S = {
    "inception-v3": {"cpu": 0.0128, "gpu": 0.0120},
    "resnet-50": {"cpu": 0.0160, "gpu": 0.00781},
    "bert-base?sequence=8": {"cpu": 0.00638, "gpu": 0.00277},
}
# (op class, which rate) that is fitted, and the fraction usual for such a device, where the data leave a choice.
FITTED = (("conv", "flops"), ("conv1x1", "flops"), ("matmul", "bandwidth"), ("elementwise", "bandwidth"))
USUAL = {"cpu": (0.7, 0.6, 0.2, 0.3), "gpu": (0.1, 0.1, 0.5, 0.9)}
TOLERANCE = 0.015  # errors below that cost the fit nothing
LEAST, MOST = 0.02, 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    kinds = {kind.name: kind for kind in load_cluster("flex170").kinds}
    graphs = {model: zoo_graph(model) for model in PUBLISHED_S}
    if options.fit:
        kinds = {name: fitted(kind, graphs) for name, kind in kinds.items()}
        for name, kind in kinds.items():
            for op_class, rate in FITTED:
                print(f"{name}: {op_class} {rate} = {getattr(kind.efficiency[op_class], rate):.3g}")
    print(f"{'model':22} {'device':6} {'published ms':>12} {'modelled ms':>12} {'error':>7}")
    for model, graph in graphs.items():
        for name, published_s in PUBLISHED_S[model].items():
            modelled_s = float(roofline_time_s(graph, kinds[name]).sum())
            error = modelled_s / published_s - 1
            print(f"{model:22} {name:6} {published_s * 1e3:12.2f} {modelled_s * 1e3:12.2f} {error:+7.1%}")


def fitted(kind: DeviceKind, graphs) -> DeviceKind:
    """Random descent from the usual fractions: errors beyond the tolerance count most, then distance from the usual."""
    usual = np.log(USUAL[kind.name])
    rng = np.random.default_rng(0)

    def with_fractions(logs) -> DeviceKind:
        table = dict(kind.efficiency)
        for (op_class, rate), value in zip(FITTED, np.exp(logs), strict=True):
            table[op_class] = table.get(op_class, Efficiency())._replace(**{rate: float(value)})
        return replace(kind, efficiency=table)

    def badness(logs) -> float:
        trial = with_fractions(logs)
        errors = [
            math.log(roofline_time_s(graph, trial).sum() / PUBLISHED_S[model][kind.name])
            for model, graph in graphs.items()
        ]
        beyond = [max(0.0, abs(e) - TOLERANCE) for e in errors]
        return 1e4 * sum(b * b for b in beyond) + 0.01 * float(((logs - usual) ** 2).sum())

    best, best_badness = usual, badness(usual)
    for step in np.geomspace(0.5, 0.002, 2000):
        trial = np.clip(best + rng.normal(0, step, len(best)), math.log(LEAST), math.log(MOST))
        if (value := badness(trial)) < best_badness:
            best, best_badness = trial, value
    return with_fractions(best)


if __name__ == "__main__":
    main()
