"""Random problems of every execution model through the placers: no crash, no bound too high, nothing missed.

    python benchmarks/random_problems.py --problems 2000 --build uncompiled --state random_problems.jsonl

Each problem has 1 to 30 ops on 1 to 6 devices of 1 to 4 kinds, with or without unsupported kinds, classes, rules,
memory limits, direct links, segment limits, replicas, backward ops, costs that are zero, equal, whole, unlike or huge.
``auto`` and some other placers get a tiny budget, through public functions and with their preparation, as users call
them. Every answer must be valid by ``check`` and have the value that ``evaluate`` says; no bound may lie above the best
value known, nor, where looking at everything is possible, above the optimum; ``auto`` may not end without a placement
where there is one.

``--build``: ``compiled`` (kernels as shipped), ``checked`` (compiled, every access within its array), or ``uncompiled``
(kernels as plain Python, which checks accesses too; nothing to compile). A crash of a worker process is a finding like
any other. With ``--state`` the results are kept, and a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

BUILDS = {
    "compiled": {},
    "checked": {"NUMBA_BOUNDSCHECK": "1"},
    "uncompiled": {"NUMBA_DISABLE_JIT": "1"},
}
EXECUTIONS = ("overlap", "sequential", "calls", "pipeline")
MOST_PLACEMENTS = 3_000  # looked at one by one for the optimum, times the orders under ``overlap``
SLACK = 1e-6  # relative: bounds of linear programmes are believed to this accuracy
BUDGET_S = 0.05
SLOW = ("gdp", "hdp", "hsdag", "placeto", "rnn")  # learned ones: on every tenth problem


def drawn_problem(seed: int) -> Any:
    """The problem of that number."""
    import numpy as np

    from placewright.problems import Rule
    from placewright.testing import problem_of, random_cluster, random_graph

    rng = np.random.default_rng(seed)
    execution = EXECUTIONS[seed % len(EXECUTIONS)]
    n_ops = int(rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 20, 30]))
    n_devices, n_kinds = int(rng.integers(1, 7)), int(rng.integers(1, 5))

    def often() -> bool:
        return bool(rng.random() < 0.4)

    graph = random_graph(rng, n_ops, classes=often(), backward=often(), several_outputs=not often())
    if often() and n_ops > 1:  # one group only, or nearly
        from dataclasses import replace

        group = np.zeros(n_ops, dtype=np.int32)
        group[: int(rng.integers(0, 2))] = -1
        graph = replace(graph, colocation=group)
    cluster = random_cluster(rng, n_devices, n_kinds, direct=often(), limits=often())
    scale = float(rng.choice([1.0, 1.0, 1e-9, 1e6, 1e20]))

    def costs(*shape: int) -> Any:
        kind = rng.integers(0, 5)
        if kind == 0:
            return np.zeros(shape)
        if kind == 1:
            return np.full(shape, scale)
        if kind == 2:
            return rng.integers(0, 4, shape) * scale
        if kind == 3:
            return rng.exponential(2.0, shape) * scale
        return 10.0 ** rng.uniform(-6, 6, shape) * scale

    times = costs(n_ops, n_kinds)
    if often():
        times[rng.random(times.shape) < 0.25] = np.inf
    options: dict[str, Any] = {}
    if execution == "pipeline":
        options = {
            "contiguous": not often(),
            "schedule": "gpipe" if often() else "1f1b",
            "communication": "overlapped" if often() else "added",
            "max_replicas": int(rng.integers(2, 4)) if rng.random() < 0.2 else 1,
        }
    if rng.random() < 0.2:
        options["max_segments"] = int(rng.integers(1, 5))
    if rng.random() < 0.2:
        names = [d.name for d in cluster.devices]
        pin, forbid = (Rule(a, f"^op{rng.integers(0, n_ops)}$", str(rng.choice(names))) for a in ("pin", "forbid"))
        options["rules"] = (pin,) if often() else (forbid,)
    copies = costs(graph.n_tensors, len(cluster.link_table().links))
    return problem_of(graph, cluster, times, copies, execution, track_activations=not often(), **options)


def optimum_of(problem: Any) -> tuple[float, bool] | None:
    """The least value of all placements, and whether nothing else could beat it; ``None`` where they are too many."""
    import math
    from itertools import product

    import numpy as np

    from placewright.evaluate import evaluate_many
    from placewright.testing import optimum

    n_orders = math.factorial(problem.n_ops) if problem.execution == "overlap" and problem.n_ops < 6 else 1
    if problem.n_devices**problem.n_ops * n_orders > MOST_PLACEMENTS:
        return None
    if problem.execution != "overlap" or n_orders > 1 or problem.n_ops == 1:
        return optimum(problem), problem.max_replicas == 1
    rows = np.array(list(product(range(problem.n_devices), repeat=problem.n_ops)), dtype=np.int32)
    result = evaluate_many(problem, rows)
    return float(np.where(result.is_valid, result.value, np.inf).min()), False


def placers_of(seed: int, problem: Any, only: list[str] | None) -> list[str]:
    """``auto``, and a third of the others that are made for the problem and installed."""
    from placewright.placers.registry import get_placer_class, is_installed, placers_for

    names = [n for n in placers_for(problem.execution) if n != "expert" and is_installed(get_placer_class(n))]
    if only:
        return [n for n in names if n in only]
    others = [n for i, n in enumerate(names) if n != "auto" and (i + seed // len(EXECUTIONS)) % 3 == 0]
    return ["auto", *(n for n in others if n not in SLOW or seed % 10 == 0)]


def findings(seed: int, only: list[str] | None, budget_s: float) -> dict[str, Any]:
    """What is wrong with the answers to one problem."""
    import math

    import placewright as pw
    from placewright.evaluate import check, evaluate
    from placewright.placers.base import make_ready
    from placewright.placers.registry import get_placer

    wrong: list[str] = []
    problem = drawn_problem(seed)
    best = optimum_of(problem)
    values: list[float] = []
    bounds: list[tuple[str, float]] = []
    missed: list[str] = []
    answers: dict[str, str] = {}
    for name in placers_of(seed, problem, only):
        placer = get_placer(name)
        make_ready(placer, problem)
        placement = placer.place(problem, pw.Budget(budget_s), seed)
        answers[name] = placement.status
        if placement.device_of_op is None:
            if placement.status == "infeasible":
                if best is not None and math.isfinite(best[0]):
                    wrong.append(f"{name}: called infeasible, but {best[0]:.6g} exists")
            else:
                missed.append(name)
            continue
        faults = check(problem, placement.device_of_op, placement.priority, placement.replicas)
        if faults:
            wrong.append(f"{name}: {faults[0].message}")
            continue
        judged = evaluate(problem, placement.device_of_op, placement.priority, placement.replicas)
        if not math.isclose(judged.value, placement.value, rel_tol=1e-9):
            wrong.append(f"{name}: says {placement.value!r}, is {judged.value!r}")
        values.append(placement.value)
        bounds.append((name, placement.bound))
        if best is not None and best[1] and placement.value < best[0] * (1 - 1e-9):
            wrong.append(f"{name}: {placement.value!r} beats the optimum {best[0]!r}")
    known = min([*values, *([best[0]] if best else [])], default=math.inf)
    wrong += [f"{name}: bound {bound!r} above {known!r}" for name, bound in bounds if bound > known * (1 + SLACK)]
    exists = math.isfinite(known)
    if "auto" in missed and exists:
        wrong.append(f"auto: no placement, though there is one of {known:.6g}")
    if exists and any(status == "infeasible" for status in answers.values()):
        wrong.append(
            f"called infeasible by {[n for n, s in answers.items() if s == 'infeasible']}, but {known:.6g} exists"
        )
    return {"seed": seed, "execution": problem.execution, "answers": answers, "missed": missed if exists else [],
            "optimum": best is not None, "wrong": wrong}  # fmt: skip


def worker(only: list[str] | None, budget_s: float) -> None:
    """Judge the numbers that come on standard input, a line each; one line of JSON back for each."""
    import traceback
    import warnings

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        seed = int(line)
        try:
            found = findings(seed, only, budget_s)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            found = {"seed": seed, "execution": EXECUTIONS[seed % len(EXECUTIONS)], "answers": {}, "missed": [],
                     "optimum": False, "wrong": [text]}  # fmt: skip
        print(json.dumps(found), flush=True)


class Worker:
    """A process that judges one problem after another; a new one where it died."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.arguments, self.environment = arguments, environment
        self.process: subprocess.Popen[str] | None = None

    def judge(self, seed: int) -> dict[str, Any]:
        if self.process is None:
            command = [sys.executable, __file__, "--worker", *self.arguments]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if answer:
            return dict(json.loads(answer))
        code = self.process.wait()
        self.process = None
        return {"seed": seed, "execution": EXECUTIONS[seed % len(EXECUTIONS)], "answers": {}, "missed": [],
                "optimum": False, "wrong": [f"the process ended with {code}"]}  # fmt: skip

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def main() -> int:
    """Judge them all and say what was found; exit 1 if anything is wrong."""
    from concurrent.futures import ThreadPoolExecutor
    from queue import SimpleQueue

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--build", choices=sorted(BUILDS), default="uncompiled")
    parser.add_argument("--placers", help="names, separated by commas (default: auto and some others)")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for each placer")
    parser.add_argument("--state", type=Path, help="file of the results so far, one line of JSON each")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.placers.split(",") if options.placers else None, options.budget)
        return 0
    began = time.perf_counter()
    lines = options.state.read_text().splitlines() if options.state and options.state.exists() else []
    results = [json.loads(line) for line in lines]
    done = {r["seed"] for r in results}
    todo = [s for s in range(options.first, options.first + options.problems) if s not in done]
    passed_on = ["--budget", str(options.budget), *(["--placers", options.placers] if options.placers else [])]
    environment = {**os.environ, **BUILDS[options.build]}
    workers = [Worker(passed_on, environment) for _ in range(options.processes)]
    free: SimpleQueue[Worker] = SimpleQueue()
    for one in workers:
        free.put(one)

    def judged(seed: int) -> dict[str, Any]:
        mine = free.get()
        try:
            return mine.judge(seed)
        finally:
            free.put(mine)

    with ThreadPoolExecutor(options.processes) as pool:
        for result in pool.map(judged, todo):
            results.append(result)
            if options.state:
                with options.state.open("a") as file:
                    file.write(json.dumps(result) + "\n")
            for text in result["wrong"]:
                print(f"problem {result['seed']} ({result['execution']}): {text}", flush=True)
    for one in workers:
        one.close()
    return report(results, options.build, time.perf_counter() - began)


def report(results: list[dict[str, Any]], build: str, seconds: float) -> int:
    """Print the counts; 1 if anything is wrong."""
    wrong = [r for r in results if r["wrong"]]
    answers = Counter(status for r in results for status in r["answers"].values())
    missed = Counter(name for r in results for name in r["missed"])
    print(
        f"{len(results)} random problems, build {build}, {seconds:.0f} s: {sum(answers.values())} answers "
        f"({', '.join(f'{count} {status}' for status, count in sorted(answers.items()))}), "
        f"{sum(r['optimum'] for r in results)} problems compared with all their placements, {len(wrong)} with a finding"
    )
    if missed:
        print("ended without a placement where there is one:", ", ".join(f"{n} {c}" for n, c in missed.most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
