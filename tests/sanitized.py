"""Random problems through the core, built with address and undefined-behaviour sanitizers.

    python tests/sanitized.py --problems 300

Builds into build/sanitize, then starts itself again with the sanitizers' libraries. What they report ends the run with
their report. Kernels that are numba's run uncompiled.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placewright.problems import Problem

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/sanitize"
PLACERS = {
    "overlap": ("heft", "peft", "cpop", "etf", "sct"),
    "sequential": ("mincut", "chain"),
    "calls": ("greedy",),
    "pipeline": ("dp", "dpl", "pipedream"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--core", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.core is None:
        core = _built()
        if core is None:
            print("sanitized core: skipped, cmake, ninja or the compiler's sanitizers are not there")
            return 0
        command = [sys.executable, __file__, "--core", str(core), *sys.argv[1:]]
        return subprocess.run(command, env=_environment(), check=False).returncode
    _use(options.core)
    _run(options.first, options.problems)
    return 0


def _built() -> Path | None:
    cmake, library = shutil.which("cmake"), _library("libasan.so")
    if cmake is None or shutil.which("ninja") is None or library is None:
        return None
    for command in (
        [cmake, "-G", "Ninja", "-S", str(ROOT / "core"), "-B", str(BUILD), f"-DPython_EXECUTABLE={sys.executable}",
         "-DPLACEWRIGHT_SANITIZE=ON", "-DPLACEWRIGHT_STRICT=ON"],
        [cmake, "--build", str(BUILD)],
    ):  # fmt: skip
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode:
            raise SystemExit(said.stdout + said.stderr)
    return next(BUILD.glob("_core*.so"))


def _library(name: str) -> str | None:
    compiler = shutil.which("c++")
    if compiler is None:
        return None
    said = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    found = said.stdout.strip()
    return found if Path(found).is_absolute() else None


def _environment() -> dict[str, str]:
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(library for library in libraries if library),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",  # the interpreter leaks by design
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "NUMBA_DISABLE_JIT": "1",
    }


def _use(path: Path) -> None:
    """Take this build in the place of the installed one."""
    spec = importlib.util.spec_from_file_location("placewright._core", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["placewright._core"] = module


def _run(first: int, count: int) -> None:
    import numpy as np

    from placewright.budget import Budget
    from placewright.evaluate import evaluate, evaluate_many, prove_infeasible
    from placewright.placers import get_placer
    from placewright.testing import random_problem

    began, solved = time.monotonic(), 0
    for seed in range(first, first + count):
        for execution, placers in PLACERS.items():
            rng = np.random.default_rng(seed)
            n_ops, n_devices, n_kinds = (int(rng.integers(1, most)) for most in (15, 7, 5))
            switches = ("classes", "backward", "direct", "limits", "unsupported", "track_activations")
            options: dict[str, Any] = {switch: bool(rng.random() < 0.5) for switch in switches}
            if execution == "pipeline":
                communication = "overlapped" if rng.random() < 0.5 else "added"
                options |= {"communication": communication, "max_replicas": int(rng.integers(1, 4))}
            problem = random_problem(seed, n_ops, n_devices, n_kinds, execution, **options)
            rows = rng.integers(0, n_devices, (4, n_ops)).astype(np.int32)
            evaluate_many(problem, rows, rng.random(n_ops))
            evaluate(problem, rows[0])
            if prove_infeasible(problem):
                continue
            solved += 1
            for name in placers:
                get_placer(name).search(problem, Budget(10.0), seed)
            if execution == "overlap":
                _learned(problem, seed)
            elif execution == "calls" and n_ops < 12:
                _bounds(problem, seed)
    print(f"sanitized core: {solved} problems, {time.monotonic() - began:.0f} s, no report")


def _bounds(problem: Problem, seed: int) -> None:
    """Bounds under ``calls``."""
    import numpy as np

    from placewright.placers.calls.groups import groups_of
    from placewright.placers.calls.ladder import bounding_steps

    cutoff = float(np.random.default_rng([seed, 1]).choice([np.inf, 3.0]))
    for _ in bounding_steps(problem, groups_of(problem), lambda: cutoff, lambda: False, seed, (1, 3, 100)):
        pass


def _learned(problem: Problem, seed: int) -> None:
    """What learned policies ask of a problem."""
    import numpy as np

    from placewright.placers.learned.features import fractal_dimensions
    from placewright.placers.learned.gdp_blocks import make_blocks, mutated, side_by_side
    from placewright.placers.learned.groups import group_graph, repaired
    from placewright.placers.learned.rewards import ways_left

    groups, rng = group_graph(problem), np.random.default_rng(seed)
    fractal_dimensions(groups)
    scales = side_by_side(tuple(make_blocks(problem, groups, per_device) for per_device in (0, 1, 4)))
    rows = rng.integers(0, problem.n_devices, (3, groups.n_groups)).astype(np.int32)
    rows = mutated(rows, groups, scales, 20, seed)
    ways_left(problem, repaired(groups, rows, problem.arrays.memory_limit_bytes)[:, groups.group_of_op])


if __name__ == "__main__":
    sys.exit(main())
