"""Do the exact latency placers find the optimum, and prove it? On random small problems, against looking at everything.

    python benchmarks/exact_against_brute_force.py [--placers mincut,calls-exact,cpsat] [--count 300] [--first-seed 0]

Problems have 1 to 8 ops (1 to 6 under ``overlap``, where all orders are looked at too) on 1 to 4 devices. Now and then
they have memory limits, colocation classes, unsupported and backward ops, direct links, half-duplex devices, costs of
zero, a limit on segments. A problem that is infeasible at first sight is not counted. Status 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter

import numpy as np

from placewright.budget import Budget
from placewright.evaluate import check, prove_infeasible
from placewright.placers import get_placer, get_placer_class
from placewright.placers.registry import is_installed
from placewright.problems import Execution, Problem
from placewright.testing import optimum, random_problem

EXECUTION: dict[str, Execution] = {"mincut": "sequential", "calls-exact": "calls", "cpsat": "overlap"}
MOST_ROWS = 50_000  # placements, times orders under overlap


def small_problem(seed: int, execution: Execution) -> Problem | None:
    """A random problem small enough to look at everything; ``None`` if it is infeasible at first sight."""
    rng = np.random.default_rng(seed)
    n_devices = int(rng.integers(1, 5))
    n_ops = int(rng.integers(1, 9))
    while _rows(n_ops, n_devices, execution) > MOST_ROWS:
        n_ops -= 1
    features = {name: bool(rng.random() < 0.4) for name in ("classes", "limits", "direct", "unsupported", "backward")}
    most = int(rng.integers(1, 5)) if rng.random() < 0.15 else None
    n_kinds = int(rng.integers(1, n_devices + 1))
    problem = random_problem(seed, n_ops, n_devices, n_kinds, execution, max_segments=most, **features)
    return None if prove_infeasible(problem) else problem


def _rows(n_ops: int, n_devices: int, execution: Execution) -> int:
    return n_devices**n_ops * (math.factorial(n_ops) if execution == "overlap" else 1)


def verdict(name: str, problem: Problem, seed: int) -> str:
    """What the placer's answer is worth; wrong ones begin with ``WRONG``."""
    best = optimum(problem)
    placement = get_placer(name).place(problem, Budget(60), seed)
    if math.isinf(best):
        return "infeasible, proven" if placement.status == "infeasible" else f"WRONG: {placement.status}, infeasible"
    if placement.device_of_op is None or check(problem, placement.device_of_op, placement.priority):
        return f"WRONG: no valid placement, optimum {best:g}"
    if abs(placement.value - best) > 1e-9 * max(best, 1e-300):
        return f"WRONG: {placement.value:g}, optimum {best:g}"
    if placement.bound > best * (1 + 1e-9):
        return f"WRONG: bound {placement.bound:g}, optimum {best:g}"
    return "optimal, proven" if placement.status == "optimal" else "optimal, not proven"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placers", default=",".join(n for n in EXECUTION if is_installed(get_placer_class(n))))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    wrong = 0
    for name in options.placers.split(","):
        began, seed, counts = time.perf_counter(), options.first_seed, Counter[str]()
        with_limits = with_classes = 0
        while counts.total() < options.count:
            problem = small_problem(seed, EXECUTION[name])
            if problem is not None:
                answer = verdict(name, problem, seed)
                counts[answer] += 1
                with_limits += bool(np.isfinite(problem.arrays.memory_limit_bytes).any())
                with_classes += len(set(problem.group_of_op.tolist())) < problem.n_ops
                if answer.startswith("WRONG"):
                    wrong += 1
                    print(f"{name}, seed {seed}: {answer}")
            seed += 1
        shares = ", ".join(f"{count} {answer}" for answer, count in sorted(counts.items()))
        print(
            f"{name}: {counts.total()} problems ({with_limits} with memory limits, {with_classes} with classes): "
            f"{shares}; {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
