"""The speed of two commits beside each other: each built into an environment of its own, measured in turns.

    python benchmarks/before_and_after.py COMMIT [--only list,simulator] [--rounds 5] [--write]

Measures COMMIT and the working tree. Every round runs each case once in either environment, in a process of its own
that warms up first and repeats short work for half a second. The row has the medians of the seconds and before / after
(above 1: faster now); ``--write`` adds it to ``benchmarks/results/before_and_after.jsonl``. Cases on published problems
need PLACEWRIGHT_WORKLOADS. Environments are kept under ``build/before-and-after`` and made again after changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/before-and-after"
RESULTS = ROOT / "benchmarks/results/before_and_after.jsonl"
EXTRAS = "exact,partition"
Work = Callable[[], Any]


def simulator(n_ops: int, n_devices: int) -> Work:
    """Random placements judged under ``overlap``."""
    import numpy as np

    from placewright.evaluate import evaluate_many

    problem = _layered(n_ops, n_devices)
    rows = np.random.default_rng(0).integers(0, n_devices, (max(8, 200_000 // n_ops), n_ops)).astype(np.int32)
    evaluate_many(problem, rows[:4])
    return lambda: evaluate_many(problem, rows)


def placer(name: str, problem: Any, **limits: Any) -> Work:
    """A placer's search, with all that a search needs prepared."""
    from placewright.budget import Budget
    from placewright.placers import get_placer
    from placewright.placers.base import make_ready

    chosen = get_placer(name)
    make_ready(chosen, problem)
    return lambda: chosen.search(problem, Budget(**{"seconds": 120.0, **limits}), 0)


def published(objective: str, part_of_name: str) -> Any:
    from placewright.api import load

    # Not by placewright.testing, which needs pytest.
    found = sorted(Path(os.environ["PLACEWRIGHT_WORKLOADS"], objective).glob(f"*{part_of_name}*.json"))
    return load(found[0], objective=objective)


def _layered(n_ops: int, n_devices: int, execution: str = "overlap") -> Any:
    from placewright.api import load
    from placewright.cluster import Cluster, Device, DeviceKind, Link

    devices = tuple(Device(f"gpu{i}", "gpu") for i in range(n_devices))
    link = Link("link", 1e10)
    pairs = {(a.name, b.name): link for a in devices for b in devices if a is not b}
    kind = DeviceKind("gpu", False, 1e13, 1e30)
    cluster = Cluster("bench", (kind,), devices, {}, {}, pairs)
    return load(f"zoo:layered?ops={n_ops}", cluster=cluster, execution=execution)


def _zoo(model: str, cluster: str, **options: Any) -> Any:
    from placewright.api import load

    return load(f"zoo:{model}", cluster=cluster, **options)


CASES: dict[str, Callable[[], Work]] = {
    **{
        f"simulator, {n:,} ops, {d} devices": lambda n=n, d=d: simulator(n, d)
        for n in (1_000, 10_000, 50_000)
        for d in (2, 4, 8)
    },
    **{
        f"list {name}, {n:,} ops, 8 devices": lambda name=name, n=n: placer(name, _layered(n, 8))
        for name in ("heft", "peft", "etf")
        for n in (1_000, 10_000)
    },
    "dp, layers of Inception-v3": lambda: placer("dp", published("throughput", "layer_inceptionv3")),
    "dp, layers of GNMT": lambda: placer("dp", published("throughput", "layer_gnmt")),
    "mincut, 50,000 ops": lambda: placer("mincut", _layered(50_000, 2, "sequential")),
    "anneal, overlap, inception-v3": lambda: placer("anneal", _zoo("inception-v3", "p100x4"), evaluations=20_000),
    "anneal, overlap, 10,000 ops": lambda: placer("anneal", _layered(10_000, 4), evaluations=5_000),
    "anneal, sequential, inception-v3": lambda: placer(
        "anneal", _zoo("inception-v3", "p100x4", execution="sequential"), evaluations=20_000
    ),
    "anneal, calls, inception-v3": lambda: placer(
        "anneal", _zoo("inception-v3", "p100x4", execution="calls"), evaluations=20_000
    ),
    "labels, calls, layers of GNMT": lambda: placer("calls-exact", published("latency", "layer_gnmt")),
    "columns, layers of GNMT, not contiguous": lambda: placer(
        "milp", published("throughput", "layer_gnmt").with_options(contiguous=False), seconds=60.0
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--only", default="", help="cases whose names begin with one of these words, by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(_seconds(CASES[options.case])))
        return
    if options.commit is None:
        parser.error("which commit is compared with the working tree?")
    before, after = _environment(options.commit), _environment(None)
    commit = _git("rev-parse", "--short", options.commit)
    for name in (n for n in CASES if n.startswith(tuple(options.only.split(",")))):
        pairs = [(_timed(before, name), _timed(after, name)) for _ in range(options.rounds)]
        if any(None in pair for pair in pairs):
            print(f"{name}: left out", flush=True)
            continue
        old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
        row = {"case": name, "before": commit, "before_s": round(old, 5), "after_s": round(new, 5)}
        row |= {"ratio": round(old / new, 3), "rounds": options.rounds, "load": round(os.getloadavg()[0], 1)}
        print(json.dumps(row), flush=True)
        if options.write:
            with RESULTS.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({**row, "after": _git("rev-parse", "--short", "HEAD")}) + "\n")


def _seconds(case: Callable[[], Work]) -> float:
    """The median of runs for half a second, one at least, after one that warms up."""
    work = case()
    work()
    took: list[float] = []
    while sum(took) < 0.5:
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _timed(python: Path, name: str) -> float | None:
    said = subprocess.run([python, __file__, "--case", name], capture_output=True, text=True, check=False)
    if said.returncode:
        print(said.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return None
    return float(json.loads(said.stdout.splitlines()[-1]))


def _environment(commit: str | None) -> Path:
    """The interpreter of an environment with a commit, or with the working tree."""
    name = "now" if commit is None else _git("rev-parse", "--short", commit)
    folder = FOLDER / name
    source, python = folder / "source", folder / "venv/bin/python"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    if commit is None:
        files = _git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        for file in files:
            if (ROOT / file).is_file():
                (source / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, source / file)
    else:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "x", "-C", source], input=archive, check=True)
    content = hashlib.sha256()
    for path in sorted(p for top in ("src", "core") for p in (source / top).rglob("*") if p.is_file()):
        content.update(str(path.relative_to(source)).encode() + path.read_bytes())
    mark = folder / "mark"
    if not mark.exists() or mark.read_text() != content.hexdigest():
        print(f"installing {name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        pins = ["-c", str(ROOT / "constraints.txt")]
        subprocess.run([python, "-m", "pip", "install", "-q", *pins, f"{source}[{EXTRAS}]"], check=True)
        mark.write_text(content.hexdigest())
    return python


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
