"""Latency under the model ``calls`` on the published problems: ``calls-exact`` beside greedy, max-load split, expert.

    python benchmarks/latency_calls.py [--budget SECONDS] [--only NAME]

PLACEWRIGHT_WORKLOADS names the folder of published problems. Seconds are after warm-up. A dash marks what is not valid:
an expert split that exceeds a memory or the number of accelerators.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from placewright.api import load, place
from placewright.budget import Budget
from placewright.errors import InputError
from placewright.evaluate import check, evaluate
from placewright.placers import get_placer
from placewright.placers.base import prepare, single_device_values
from placewright.problems import Problem
from placewright.testing.published import published_files, published_problems


def fresh(path: Path) -> Problem:
    """Load anew, so that nothing computed for an earlier run is reused."""
    problem = load(path, objective="latency", execution="calls")
    prepare(problem)
    return problem


def max_load_split(path: Path, seconds: float) -> float:
    """Latency of the split with the least largest load."""
    split = place(load(path, objective="throughput"), "dp", seconds)
    problem = fresh(path)
    if split.device_of_op is None or check(problem, split.device_of_op):
        return math.nan
    return evaluate(problem, split.device_of_op).value


def expert(path: Path) -> float:
    """Latency of the hand-written split, if there is one and it is valid."""
    file = published_problems() / "experts" / f"{path.stem.removeprefix('layer_')}_expert.json"
    if not file.is_file() or not path.stem.startswith("layer_"):
        return math.nan
    placement = get_placer("expert", split=file).place(fresh(path))
    return placement.value if placement.is_valid else math.nan


def shown(value: float) -> str:
    return f"{value:>12.4f}" if math.isfinite(value) else f"{'-':>12}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=600.0, metavar="SECONDS", help="for each file")
    parser.add_argument("--only", default="", help="files whose name contains this")
    options = parser.parse_args()
    try:
        files = published_files("latency", options.only)
    except InputError as error:
        sys.exit(str(error))
    placer = get_placer("calls-exact")
    placer.warm_up(fresh(files[0]))
    header = ("value", "bound", "gap", "seconds", "greedy", "max-load", "expert", "all on cpu")
    print(f"{'file':<28}" + "".join(f"{h:>12}" for h in header))
    for path in files:
        problem = fresh(path)
        began = time.perf_counter()
        placement = placer.place(problem, Budget(options.budget), 0)
        took = time.perf_counter() - began
        alone = single_device_values(problem)
        on_cpu = min(
            alone[d.name] for d, host in zip(problem.cluster.devices, problem.cluster.is_host, strict=True) if host
        )
        others = (place(fresh(path), "greedy").value, max_load_split(path, options.budget), expert(path), on_cpu)
        print(
            f"{path.stem:<28}{shown(placement.value)}{shown(placement.bound)}{placement.gap:>12.1e}{took:>12.2f}"
            + "".join(shown(v) for v in others),
            flush=True,
        )


if __name__ == "__main__":
    main()
