"""The exact programmes for free assignments against each other: HiGHS and CP-SAT, each alone on one core.

    python benchmarks/exact_solvers.py [--seconds 100] [--only NAME] [--solver highs]

CP-SAT starts from a few seconds of annealing; HiGHS does better without. Printed: that start's value, then each
solver's own value, bound and gap after 30 %, 60 % and all of the time. PLACEWRIGHT_WORKLOADS names the folder of
published problems.
"""

from __future__ import annotations

import argparse
import sys
import time

from placewright.api import load
from placewright.errors import InputError
from placewright.placers.pipeline.not_contiguous.exact_process import MODULES, ExactProcess, Settings, Solver
from placewright.placers.pipeline.not_contiguous.search import local_search
from placewright.placers.pipeline.not_contiguous.units import Units, evaluate
from placewright.placers.pipeline.not_contiguous.view import assignment_view
from placewright.testing.published import published_files

MARKS = (0.3, 0.6, 1.0)


def run_solver(units: Units, settings: Settings, solver: Solver) -> list[tuple[float, float]]:
    """(value, bound) at each mark."""
    value, bound, marks = float("inf"), 0.0, []
    process = ExactProcess(units, settings, solver)
    began = time.perf_counter()
    try:
        for mark in MARKS:
            while time.perf_counter() - began < mark * settings.seconds and not process.finished:
                time.sleep(0.05)
                for message in process.messages():
                    if message.solution is not None:
                        value = min(value, evaluate(units, message.solution))
                    bound = max(bound, message.bound)
            marks.append((value, bound))
    finally:
        process.close()
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--solver", choices=sorted(MODULES), help="this one alone")
    options = parser.parse_args()
    try:
        files = published_files("throughput", options.only)
    except InputError as error:
        sys.exit(str(error))
    solvers: list[Solver] = [options.solver] if options.solver else ["highs", "cpsat"]
    columns = "".join(f"{f'{mark * options.seconds:.0f} s':>30}" for mark in MARKS)
    print(f"{'file':<30}{'solver':<8}{'start':>11}{columns}")
    for path in files:
        units = assignment_view(load(path, objective="throughput", contiguous=False)).units
        start = local_search(units, seconds=3.0, threads=1)
        settings = Settings("1f1b", "added", "none", options.seconds, 1, 0, start.value, start.device_of_unit)
        for solver in solvers:
            marks = run_solver(units, settings, solver)
            cells = "".join(f"{v:>12.4f}{b:>10.4f}{v / b - 1 if b else float('inf'):>8.2%}" for v, b in marks)
            print(f"{path.stem:<30}{solver:<8}{start.value:>11.4f}{cells}", flush=True)


if __name__ == "__main__":
    main()
