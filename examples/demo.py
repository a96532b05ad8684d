"""The whole way on this machine: profile Inception-V3, place it twice, run both, write a report and the exports.

python examples/demo.py [--folder demo] [--model zoo:inception-v3] [--quick]
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from placewright.costs.machine import core_count

OBJECTIVES = ("latency", "throughput")
TO_RUN = {"openvino-affinity": "affinity.json", "device-map": "device-map.json", "split-spec": "split-spec.json"}
TO_LOOK_AT = {"trace": "trace.json", "model-explorer": "explorer.json", "dot": "graph.dot", "csv": "ops.csv"}
MOST_DEVICES = 4
HINT = re.compile(r"(next:|     ) placewright ")


def main() -> None:
    """Run every step as a command that can be typed; what cannot be done here is said and left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("demo"))
    parser.add_argument("--model", default="zoo:inception-v3")
    parser.add_argument("--quick", action="store_true", help="smallest budgets, to see that it works")
    given = parser.parse_args()
    began = time.monotonic()
    given.folder.mkdir(parents=True, exist_ok=True)
    cores = core_count()
    passes, budget, rounds, samples = ("3", "1s", "2", "4") if given.quick else ("12", "8s", "5", "12")
    profile, cluster = f"{given.folder}/profile.json", f"cores:{min(max(cores, 2), MOST_DEVICES)}"
    measured_on = cluster if cores > 1 else "cores:1"
    if cores == 1:
        say("This machine has one core: two are planned for with its measured costs, but nothing can be run on two.")
    effort = ["--runtime", "openvino", "--repeats", passes]
    placewright(["profile", given.model, "--cluster", measured_on, *effort, "-o", profile])
    gains: list[str] = []
    for objective in OBJECTIVES:
        placement = f"{given.folder}/{objective}.json"
        costs = ["--cluster", cluster, "--profile", profile]
        placewright(["place", given.model, *costs, "--objective", objective, "--budget", budget, "-o", placement])
        if cores > 1:
            effort = ["--repeats", rounds, "--samples", samples]
            run = json.loads(placewright(["run", given.model, placement, *effort, "--json"], keep=True))
            Path(f"{given.folder}/{objective}-run.json").write_text(json.dumps(run), encoding="utf-8")
            gains.append(gained(objective, run))
        else:
            gains.append(planned(objective, json.loads(Path(placement).read_text(encoding="utf-8"))))
    write_report(given.folder, with_runs=cores > 1)
    for objective, formats in (("throughput", TO_RUN), ("latency", TO_LOOK_AT)):
        for to, name in formats.items():
            command = ["export", f"{given.folder}/{objective}.json", "--to", to, "-o", f"{given.folder}/{name}"]
            placewright(command, may_fail=True)
    say(f"Left out: the exports 'onnx' and 'ort-settings', which need a model in an .onnx file. {given.model} is not.")
    say("\n".join(["", *gains, f"Open {given.folder}/report.html. All of it took {time.monotonic() - began:.0f} s."]))


def write_report(folder: Path, *, with_runs: bool) -> None:
    """One page with both placements, and what was measured."""
    files = [f"{folder}/{objective}.json" for objective in OBJECTIVES]
    runs = [word for o in OBJECTIVES for word in ("--run", f"{folder}/{o}-run.json")] if with_runs else []
    placewright(["report", *files, *runs, "-o", f"{folder}/report.html"])


def gained(objective: str, run: dict[str, Any]) -> str:
    """Measured against the best single core."""
    alone = min(d["measured_s"] for d in run["single_device"].values() if d is not None)
    ours, low, high = run["measured_s"], *run["interval_s"]
    if objective == "latency":
        text = f"{ours * 1e3:.1f} ms for one sample instead of {alone * 1e3:.1f} ms"
    else:
        text = f"{1 / ours:.1f} samples a second instead of {1 / alone:.1f}"
    spread = f"95% interval {alone / high:.2f}x to {alone / low:.2f}x"
    return f"{objective}: {text} on the best single core, {alone / ours:.2f}x ({spread}), measured in turns"


def planned(objective: str, placement: dict[str, Any]) -> str:
    """Predicted against the best single core, where nothing could be run."""
    alone = min(v for v in placement["single_device"].values() if v is not None)
    return f"{objective}: {alone / placement['value']:.2f}x of one core is predicted for two; nothing was run"


def placewright(words: list[str], *, keep: bool = False, may_fail: bool = False) -> str:
    """Show a command, run it, and return what it printed if that is kept."""
    say(f"\n$ placewright {shlex.join(words)}")
    command = [sys.executable, "-m", "placewright", *words]
    done = subprocess.run(
        command, stdout=subprocess.PIPE if keep else None, stderr=subprocess.PIPE, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if not HINT.match(line)]  # here the next step comes by itself
    if told:
        say("\n".join(told))
    if done.returncode and not may_fail:
        raise SystemExit(done.returncode)
    return done.stdout or ""


def say(text: str) -> None:
    """Print at once, so that it stands before what commands print."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
