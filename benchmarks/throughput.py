"""Pipelined throughput on the published problems: exact placers, baselines, and the original's figures beside them.

    python benchmarks/throughput.py [--non-contiguous SECONDS] [--only NAME] [--large]

PLACEWRIGHT_WORKLOADS names the folder of published problems, PLACEWRIGHT_REFERENCE a table of the original's figures
(CSV: kind, workload, granularity, mode, objective, seconds); without it their columns are empty. Seconds are after
warm-up, the least of several runs, preprocessing included. ``--large`` adds a generated problem of 50,000 ops on 8
devices, and needs no other.
"""

from __future__ import annotations

import argparse
import csv
import resource
import sys
import time
from pathlib import Path

from placewright.api import load, place
from placewright.budget import Budget
from placewright.errors import InputError
from placewright.placement import Placement
from placewright.placers import get_placer
from placewright.placers.base import prepare
from placewright.problems import Problem
from placewright.testing.published import published_files, reference_table

BASELINES = ("dpl", "pipedream", "partition", "local-search", "topo", "single")


def original(path: Path, mode: str) -> dict[str, str]:
    """The original program's row for a file and a mode."""
    table = reference_table()
    if table is None:
        return {}
    prefix, name = path.stem.lower().split("_", 1)
    granularity = "operator" if prefix == "op" else "layer"
    with table.open() as file:
        for row in csv.DictReader(file):
            key = (row["kind"], row["workload"].lower(), row["granularity"], row["mode"])
            if key == ("throughput", name, granularity, mode):
                return row
    return {}


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fresh(path: Path, **options: object) -> Problem:
    """Load anew, so that nothing computed for an earlier run is reused."""
    problem = load(path, objective="throughput", **options)
    prepare(problem)
    return problem


def contiguous_table(files: list[Path]) -> None:
    print("contiguous: dp beside the original's dynamic programme")
    print(f"{'file':<30}{'value':>14}{'status':>9}{'seconds':>9}{'MiB+':>6}{'original s':>12}{'times':>8}")
    for path in files:
        before = peak_mib()
        runs: list[tuple[float, Placement]] = []
        for _ in range(5):
            problem = fresh(path)
            began = time.perf_counter()
            placement = get_placer("dp").place(problem, Budget(600), 0)
            runs.append((time.perf_counter() - began, placement))
        seconds, placement = min(runs, key=lambda run: run[0])
        row = original(path, "dp")
        theirs = float(row["seconds"]) if row else float("nan")
        remark = "" if row.get("objective") else " (none)"
        print(
            f"{path.stem:<30}{placement.value:>14.6f}{placement.status:>9}{seconds:>9.3f}{peak_mib() - before:>6.0f}"
            f"{theirs:>9.3f}{remark:>3}{theirs / seconds:>8.1f}   {placement.note}"
        )


def baseline_table(files: list[Path], seconds: float) -> None:
    print(f"\nbaselines, contiguous unless the placer cannot be: value ({seconds:.0f} s budget each)")
    print(f"{'file':<30}{'dp':>12}" + "".join(f"{b:>14}" for b in BASELINES))
    for path in files:
        values = [place(fresh(path), "dp", 60).value]
        for name in BASELINES:
            problem = fresh(path, contiguous=name not in ("partition", "local-search"))
            values.append(place(problem, name, seconds).value)
        print(f"{path.stem:<30}" + "".join(f"{v:>13.4f} " for v in values))


def non_contiguous_table(files: list[Path], seconds: float) -> None:
    print(f"\nnon-contiguous: milp, at most {seconds:.0f} s each")
    header = ("value", "bound", "gap", "seconds", "dp", "plain model")
    print(f"{'file':<30}" + "".join(f"{h:>13}" for h in header))
    for path in files:
        chain = place(fresh(path), "dp", 60).value
        began = time.perf_counter()
        placement = place(fresh(path, contiguous=False), "milp", seconds)
        took = time.perf_counter() - began
        plain = original(path, "ip-noncontiguous-highs").get("objective") or original(
            path, "ip-noncontiguous-cpsat"
        ).get("objective", "")
        print(
            f"{path.stem:<30}{placement.value:>13.6f}{placement.bound:>13.6f}{placement.gap:>13.3%}{took:>13.1f}"
            f"{chain:>13.6f}{float(plain) if plain else float('nan'):>13.6f}",
            flush=True,
        )


def large_problem() -> None:
    print("\ngenerated: 50,000 ops, 8 devices")
    for name in ("dpl", "auto"):
        problem = load("zoo:layered?ops=50000", cluster="p100x8", objective="throughput")
        began = time.perf_counter()
        placement = place(problem, name, 20)
        print(
            f"{name}: value {placement.value:.6f} s, bound {placement.bound:.6f} s, gap {placement.gap:.2%}, "
            f"{time.perf_counter() - began:.1f} s, peak {peak_mib():.0f} MiB, valid: {placement.is_valid}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--non-contiguous", type=float, metavar="SECONDS", help="also milp, this long on each file")
    parser.add_argument("--baselines", type=float, metavar="SECONDS", help="also the baselines, this long each")
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--large", action="store_true", help="also a generated problem of 50,000 ops")
    options = parser.parse_args()
    try:
        reference_table()
        files = published_files("throughput", options.only)
    except InputError as error:
        if not options.large:
            sys.exit(str(error))
        print(error)
        files = []
    if files:
        get_placer("dp").warm_up(fresh(files[0]))
        contiguous_table(files)
    if files and options.baselines:
        baseline_table(files, options.baselines)
    if files and options.non_contiguous:
        non_contiguous_table(files, options.non_contiguous)
    if options.large:
        large_problem()


if __name__ == "__main__":
    main()
