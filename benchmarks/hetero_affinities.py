"""HETERO on two real devices: affinities written, read back and compared for every op; outputs against one device.

    python benchmarks/hetero_affinities.py resnet-50 inception-v3 bert-base --json hetero.json

For each model, random valid placements: runs of ops, branches, op classes. Both devices are this processor's plugin
under two names, one thread each, f32. One core will do; about a minute per model.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import placewright as pw
from placewright.cluster_file import load_cluster
from placewright.costs.machine import machine_text
from placewright.execute.diverse import diverse_placements
from placewright.execute.live import open_live
from placewright.execute.openvino import HeteroModel, core_setup
from placewright.execute.openvino_split import whole_placement
from placewright.execute.outputs import difference
from placewright.execute.placed import live_devices
from placewright.placement import checked_placement

RUNTIME_NAMES = {"core0": "CPU", "core1": "CPU2"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="zoo models, such as resnet-50")
    parser.add_argument("--placements", type=int, default=20)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for model in options.models:
        began = time.monotonic()
        results[model] = examined(model, options.placements, options.seed)
        r = results[model]
        print(
            f"{model:14} {r['placements']} placements: {r['affinities']} affinities compared, {r['wrong']} wrong; "
            f"{min(r['submodels'])} to {max(r['submodels'])} sub-models; outputs differ by at most "
            f"{r['max_abs_error']:.2g} ({r['max_rel_error']:.2g} of their range)  ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")


def examined(model: str, placements: int, seed: int) -> dict[str, Any]:
    cluster = load_cluster("cores:2")
    problem = pw.load(f"zoo:{model}", cluster=cluster)
    live = open_live(f"zoo:{model}", "openvino")
    setups = {name: core_setup() for name in cluster.device_names}
    alone = live.start(dict.fromkeys(live.graph.op_names, "core0"), cluster, None)
    expected = alone(live.inputs)
    alone.close()
    compared = wrong = 0
    submodels, absolute, relative = [], [0.0], [0.0]
    for row in diverse_placements(problem, placements + 2, seed)[2:]:
        devices = live_devices(live, checked_placement(problem, row, placer="random"))
        hetero = HeteroModel(live.model, devices, setups)
        wanted = {n: RUNTIME_NAMES[d] for n, d in whole_placement(live.model, devices).items()}
        compared += len(wanted)
        wrong += sum(hetero.affinities.get(n) != device for n, device in wanted.items())
        wrong += sum(wanted[n] != RUNTIME_NAMES[devices[n]] for n in _computing(live.model) & set(devices))
        submodels.append(hetero.n_segments)
        errors = [difference(a, b) for a, b in zip(hetero(live.inputs), expected, strict=True)]
        absolute += [e.max_abs for e in errors]
        relative += [e.max_rel for e in errors]
    return {
        "machine": machine_text(),
        "placements": len(submodels),
        "affinities": compared,
        "wrong": wrong,
        "submodels": submodels,
        "max_abs_error": max(absolute),
        "max_rel_error": max(relative),
    }


def _computing(model: Any) -> set[str]:
    """Ops that the placement itself decides; constants and what they alone make, inputs and results follow others."""
    fixed: set[str] = set()
    found: set[str] = set()
    for op in model.get_ordered_ops():
        name, kind = op.get_friendly_name(), op.get_type_name()
        sources = [v.get_node().get_friendly_name() for v in op.input_values()]
        if kind == "Constant" or (sources and all(s in fixed for s in sources)):
            fixed.add(name)
        elif kind not in ("Parameter", "Result", "ReadValue"):
            found.add(name)
    return found


if __name__ == "__main__":
    main()
