"""Predicted against measured latency of split placements, after calibration.

    python benchmarks/predicted_measured.py resnet-50 --json predicted.json
    python benchmarks/predicted_measured.py inception-v3 --json predicted.json
    python benchmarks/predicted_measured.py bert-base --json predicted.json
    python benchmarks/predicted_measured.py --json predicted.json --svg docs/pictures/predicted-measured.svg

Measures a profile, calibrates it with some placements, and executes others: runs of ops along the graph, branches, op
classes, single devices. Needs both cores of an idle machine; about two minutes per model. Results of several models
gather in one file, which the picture is drawn from.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import placewright as pw
from placewright.cluster_file import load_cluster
from placewright.costs.machine import machine_text
from placewright.costs.measure.campaign import measure
from placewright.costs.measure.journal import Journal
from placewright.costs.measure.sources import open_source
from placewright.evaluate import evaluate_many
from placewright.execute.calibrate import calibrated, execute_placements, median_error, rank_correlation
from placewright.execute.diverse import diverse_placements
from placewright.execute.live import open_live

COLOURS = ("#1b6ca8", "#c8553d", "#3b8e5a", "#8e5aa8")
CALIBRATION_SEED, TEST_SEED = 1, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="zoo models, such as resnet-50")
    parser.add_argument("--cluster", default="cores:f32+bf16")
    parser.add_argument("--runtime", default="openvino")
    parser.add_argument("--placements", type=int, default=32)
    parser.add_argument("--calibrate-with", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for model in options.models:
        began = time.monotonic()
        result = examined(model, options)
        results[f"{model} on {options.cluster}"] = result
        print(f"{model:14} {options.cluster:15} {line(result)}  ({time.monotonic() - began:.0f} s)", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.svg:
        options.svg.write_text(scatter(results))


def examined(model: str, options: argparse.Namespace) -> dict[str, Any]:
    cluster = load_cluster(options.cluster)
    source = open_source(f"zoo:{model}", options.runtime)
    journal = Journal(None, {})
    finding = measure(source.graph, cluster, list(cluster.kinds), source.make_runner, repeats=10, journal=journal)
    live = open_live(f"zoo:{model}", options.runtime)
    before = pw.load(f"zoo:{model}", cluster=cluster, profile=finding.profile)
    profile = calibrated(finding.profile, before, live, placements=options.calibrate_with, seed=CALIBRATION_SEED)
    after = pw.load(f"zoo:{model}", cluster=cluster, profile=profile)
    rows = diverse_placements(before, options.placements, TEST_SEED)
    measured = np.array([t.median_s for t in execute_placements(live, after, rows, repeats=options.repeats)])
    predictions = {"before": evaluate_many(before, rows).value, "after": evaluate_many(after, rows).value}
    fit = profile.calibration
    return {
        "machine": machine_text(),
        "placements": len(rows),
        "measured_s": measured.tolist(),
        "copy_latency_s": fit.copy_latency_s if fit else 0.0,
        "copy_s_per_byte": fit.copy_s_per_byte if fit else 0.0,
        **{f"predicted_{when}_s": p.tolist() for when, p in predictions.items()},
        **{f"median_error_{when}": median_error(p, measured) for when, p in predictions.items()},
        **{f"largest_error_{when}": float(np.abs(p / measured - 1).max()) for when, p in predictions.items()},
        **{f"rank_correlation_{when}": rank_correlation(p, measured) for when, p in predictions.items()},
    }


def line(result: dict[str, Any]) -> str:
    return "; ".join(
        f"{when}: rank correlation {result[f'rank_correlation_{when}']:.3f}, median error "
        f"{result[f'median_error_{when}']:.1%}, largest {result[f'largest_error_{when}']:.1%}"
        for when in ("before", "after")
    )


def scatter(results: dict[str, Any], size: int = 460, edge: int = 54) -> str:
    """One point per placement: predictions with calibration filled, those without as rings."""
    largest_ms = 1.08e3 * max(max(r["measured_s"] + r["predicted_after_s"]) for r in results.values())

    def x(ms: float) -> float:
        return edge + ms / largest_ms * (size - edge - 10)

    def y(ms: float) -> float:
        return size - x(ms)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size + 22 * len(results)}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{size}" height="{size + 22 * len(results)}" fill="white"/>',
        f'<path d="M{x(0)} {y(0)}L{x(largest_ms)} {y(largest_ms)}" stroke="#888"/>',
        f'<path d="M{x(0)} {y(largest_ms)}V{y(0)}H{x(largest_ms)}" stroke="#333" fill="none"/>',
        f'<text x="{size / 2}" y="{size - 12}" text-anchor="middle">measured ms</text>',
        f'<text transform="translate(14 {size / 2}) rotate(-90)" text-anchor="middle">predicted ms</text>',
    ]
    step = next(s for s in (5, 10, 20, 25, 50, 100, 200, 500, 1000, 10**6) if largest_ms / s <= 8)
    for tick in range(0, int(largest_ms) + 1, step):
        parts.append(f'<text x="{x(tick)}" y="{y(0) + 15}" text-anchor="middle">{tick}</text>')
        parts.append(f'<text x="{x(0) - 5}" y="{y(tick) + 4}" text-anchor="end">{tick}</text>')
    for colour, (i, (name, r)) in zip(COLOURS, enumerate(results.items()), strict=False):
        for when, style in (("before", f'fill="none" stroke="{colour}" opacity="0.4"'), ("after", f'fill="{colour}"')):
            for m, p in zip(r["measured_s"], r[f"predicted_{when}_s"], strict=True):
                parts.append(f'<circle cx="{x(m * 1e3):.1f}" cy="{y(p * 1e3):.1f}" r="3" {style}/>')
        text = (
            f"{name}: rank correlation {r['rank_correlation_after']:.2f}, median error {r['median_error_after']:.1%} "
            f"(rings: {r['median_error_before']:.1%})"
        )
        parts.append(f'<circle cx="16" cy="{size + 22 * i + 6}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="26" y="{size + 22 * i + 10}" font-size="10">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
