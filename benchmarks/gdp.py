"""GDP's experiments: main table, ablations, generalisation, batch, use in ``auto``, scale.

    python benchmarks/gdp.py PART... [--jobs N] [--only TEXT] [--stop-after S] [--rows FILE]

PART is main, ablation, general, batch, pretraining, auto, scale or tables.

Every run appends one line to the rows file and is skipped when it is there already, so a benchmark may be done in
parts. ``--only`` picks runs whose key (part, model, cluster, method, seed) contains one of the texts, joined by "|".
``--jobs`` runs them side by side, each in a process of its own on one core, after this one has compiled the kernels.
Runs that need a package that is not installed say so in their row and are done when it is.

Models are training steps on equal GPUs with 16 GiB each (``p100xK``, modelled). ``human`` is one layer or stage per
device; ``partition`` a balanced hypergraph partition, in the role of METIS; ``hdp`` the learned grouper and placer,
1500 evaluations; "longest way first" gives both the order of ready ops that ``gdp`` has. ``gdp, one`` starts from
random weights, ``gdp, fine-tuned`` from the shipped policy, ``gdp, batch`` is trained on all models of the table
but the two largest together. ``untrained, zero-shot`` decodes random weights: what decoding does alone. ``anneal`` has
the time that ``gdp, fine-tuned`` took, in the same process.
"""

from __future__ import annotations

import argparse
import functools
import math
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from gdp_scale import scale_check
from gdp_tables import print_tables
from rows import Row, Rows, side_by_side

from placewright.api import load
from placewright.budget import Budget, Incumbent, Progress
from placewright.costs.machine import processor
from placewright.errors import MissingExtraError
from placewright.evaluate import evaluate, lower_bound
from placewright.placers import get_placer
from placewright.placers.base import Found, Placer, make_ready
from placewright.placers.learned.gdp_curriculum import HELD_OUT_ACCELERATORS, Machine, lessons, load_lessons
from placewright.placers.learned.rewards import ways_left
from placewright.problems import Problem

TABLE = (
    ("rnnlm-2", "p100x2"), ("rnnlm-4", "p100x4"), ("rnnlm-8", "p100x8"), ("gnmt-2", "p100x2"), ("gnmt-4", "p100x4"),
    ("gnmt-8", "p100x8"), ("transformer-xl-2", "p100x2"), ("transformer-xl-4", "p100x4"),
    ("transformer-xl-8", "p100x8"), ("inception-v3?training=1&batch=32", "p100x2"),
    ("inception-v3?training=1&batch=64", "p100x2"), ("amoebanet", "p100x4"), ("wavenet-2x18", "p100x2"),
    ("wavenet-4x36", "p100x4"),
)  # fmt: skip
SECONDS = {"gnmt-8": 57, "gnmt-4": 29, "gnmt-2": 17, "rnnlm-8": 10, "rnnlm-4": 6}  # 600 evaluations on a core; others 3
SEEDS = (0, 1, 2)
HDP_EVALUATIONS = 1500
FINE_TUNING = 600
MARKS = (25, 50, 100, 200, 400, 600, 1000, 1500)
AUTO_S = 10.0
STAGES = ("policy", "list", "samples", "search")
ONCE = ("human", "human, longest way first", "etf", "sct", "partition", "bound")  # no seed changes them
LEARNED: dict[str, tuple[str, dict[str, Any], int]] = {
    "gdp, fine-tuned": ("gdp", {}, FINE_TUNING),
    "gdp, one": ("gdp", {"policy": "none"}, FINE_TUNING),
    "hdp": ("hdp", {}, HDP_EVALUATIONS),
    "hdp, longest way first": ("hdp", {"by_rank": True}, HDP_EVALUATIONS),
}
ABLATIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "no superposition": {"gate": "none"},
    "superposition per node": {"gate": "node"},
    "no attention": {"attention_layers": 0},
    "refinement in 3 rounds": {"rounds": 3},
    "no mutants": {"mutants": 0},
    "no mutants, no imitation": {"mutants": 0, "imitation": 0.0},
    "no learning": {"learning_rate": 0.0},
    "policy at 3 scales": {"policy_scales": 3},
    "every op alone": {"scales": (0, 2, 1, 8, 32)},
    "every op alone, no mutants, no imitation": {"scales": (0,), "mutants": 0, "imitation": 0.0},
    "no work features": {"work_features": False},
    "first come, first served": {"by_rank": False},
    "as published": {"variant": "paper"},
}
ABLATED = ("rnnlm-2", "transformer-xl-2", "inception-v3?training=1&batch=32", "amoebanet", "wavenet-2x18")
BATCHES: dict[str, dict[str, Any]] = {
    "gdp, batch": {},
    "gdp, batch, no superposition": {"gate": "none"},
    "gdp, batch, no attention": {"attention_layers": 0},
}
PRETRAINED = ("full", "no superposition", "no attention")
PRETRAINING, EVERY = 2500, 4  # evaluations per problem, on one of so many problems of the curriculum
JUDGED = tuple((m, c) for m, c in TABLE if m in ("amoebanet", "wavenet-2x18", "wavenet-4x36", "gnmt-2"))  # held out
BATCHED = tuple((m, c) for m, c in TABLE if m not in ("gnmt-4", "gnmt-8"))
ALL_MODELS = f"{len(BATCHED)} models"
FAMILIES = (
    ("amoebanet", 4), ("wavenet-2x18", 2), ("wavenet-4x36", 4), ("gnmt-2", 2), ("unet?training=1", 2),
    ("unet?training=1&batch=4", 4), ("moe?training=1", 4), ("gnmt-2?steps=30", 4),
)  # fmt: skip
ELSEWHERE = ("rnnlm-2", "transformer-xl-4", "inception-v3?training=1&batch=32", "amoebanet", "gnmt-2?steps=30")


class Task(NamedTuple):
    """Runs on one problem that belong together, in their order; ``seconds`` is about how long they take."""

    part: str
    model: str
    cluster: str
    methods: tuple[str, ...]
    seed: int
    seconds: float

    def key(self, method: str) -> Row:
        return {"part": self.part, "model": self.model, "cluster": self.cluster, "method": method, "seed": self.seed}


class PartitionBaseline(Placer):
    """The partition of the pipeline model's loads, judged as a latency placement."""

    name = "partition"
    summary = "balanced hypergraph partition"
    requires, extra = ("mtkahypar",), "partition"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        loads = problem.with_options(execution="pipeline", objective="throughput", contiguous=False)
        return get_placer("partition").search(loads, budget, seed)


class OrderedHuman(Placer):
    """People's split, ready ops by the longest way left as for ``gdp``: what the order alone is worth."""

    name = "human"
    summary = "layers in a row, longest way first"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        found = get_placer("human").search(problem, budget, seed)
        assert found.device_of_op is not None
        return found._replace(priority=-ways_left(problem, found.device_of_op[None])[0])


def tasks_of(part: str) -> Iterator[Task]:
    """Everything that a part of the benchmark has."""
    if part == "main":
        for model, cluster in TABLE:
            tuning_s = SECONDS.get(model, 3)
            yield Task(part, model, cluster, ONCE, 0, 1)
            for seed in SEEDS:
                yield Task(part, model, cluster, ("gdp, fine-tuned", "anneal"), seed, 2 * tuning_s)
                yield Task(part, model, cluster, ("gdp, zero-shot", "untrained, zero-shot"), seed, 0.2 * tuning_s)
                yield Task(part, model, cluster, ("gdp, one",), seed, tuning_s)
                for method in ("hdp", "hdp, longest way first"):
                    yield Task(part, model, cluster, (method,), seed, 10 + 2 * tuning_s)
    elif part == "general":
        for model, count in (*FAMILIES, *((m, count) for count in HELD_OUT_ACCELERATORS for m in ELSEWHERE)):
            for seed in SEEDS:
                methods = ("gdp, zero-shot", "untrained, zero-shot")
                yield Task(part, model, f"{count} GPUs", ("human", "etf", *methods) if seed == 0 else methods, seed, 2)
    elif part == "ablation":
        for model, cluster in TABLE:
            for method in ABLATIONS if model in ABLATED else ():
                slow = 5 if "alone" in method or "published" in method else 1
                yield from (Task(part, model, cluster, (method,), seed, 3 * slow) for seed in SEEDS)
    elif part == "batch":
        for method in BATCHES:
            yield from (Task(part, ALL_MODELS, "", (method,), seed, 60) for seed in SEEDS)
    elif part == "pretraining":
        for method in PRETRAINED:
            yield from (Task(part, f"one of {EVERY} problems", "", (method,), seed, 45) for seed in SEEDS)
    elif part == "auto":
        for model, cluster in TABLE:
            methods = ("anneal", "zero-shot, then anneal", "untrained zero-shot, then anneal")
            yield from (Task(part, model, cluster, methods, seed, 3 * AUTO_S) for seed in SEEDS)


def do(task: Task, path: Path, only: str) -> None:
    """Add the rows of a task that are wanted and not there yet."""
    rows = Rows(path, only, math.inf)
    wanted = [m for m in task.methods if rows.wants(**task.key(m))]
    try:
        if task.part in ("batch", "pretraining"):
            for method in wanted:
                (_batch if task.part == "batch" else _pretraining)(task, method, rows)
        elif wanted:
            machine = Machine(int(task.cluster.split()[0])).cluster() if task.part == "general" else task.cluster
            problem = load(f"zoo:{task.model}", cluster=machine)
            for method in wanted:
                rows.add({**task.key(method), **_row(task, method, problem, rows), "cpu": processor()["name"]})
    except Exception:
        print(f"failed: {task}\n{traceback.format_exc()}", flush=True)


def _row(task: Task, method: str, problem: Problem, rows: Rows) -> Row:
    try:
        return _run_of(task, method, problem, rows)
    except MissingExtraError as error:
        return {"valid": False, "left out": str(error)}


def _run_of(task: Task, method: str, problem: Problem, rows: Rows) -> Row:
    seed = task.seed
    if task.part == "ablation":
        placer = get_placer("gdp", **{"policy": "none", **ABLATIONS[method]})
        return one_run(problem, placer, Budget(1e6, FINE_TUNING), seed)
    if task.part == "auto":
        return _within(problem, method, seed)
    if method == "bound":
        return {"value": lower_bound(problem), "ops": problem.n_ops}
    if method == "gdp, zero-shot":
        return zero_shot(problem, seed)
    if method == "untrained, zero-shot":
        return zero_shot(problem, seed, policy="none")
    if method == "anneal":
        ours = rows.of(**task.key("gdp, fine-tuned"))
        if not ours:
            return {"valid": False, "left out": "gdp, fine-tuned has not run: its time is not known"}
        without = "" if find_spec("highspy") else "does not start from sct: highspy is not installed"
        return {**one_run(problem, get_placer("anneal"), Budget(ours[-1]["seconds"]), seed), "note": without}
    if method in LEARNED:
        name, options, evaluations = LEARNED[method]
        return one_run(problem, get_placer(name, **options), Budget(1e6, evaluations), seed)
    ours_only: dict[str, type[Placer]] = {"partition": PartitionBaseline, "human, longest way first": OrderedHuman}
    placer = ours_only[method]() if method in ours_only else get_placer(method)
    return one_run(problem, placer, Budget(60.0), seed)


def judged(problem: Problem, found: Found) -> Row:
    """A found placement as it is: no floor by a single device."""
    if found.device_of_op is None:
        return {"value": math.inf, "valid": False}
    result = evaluate(problem, found.device_of_op, found.priority)
    fits = bool((result.memory_bytes <= problem.arrays.memory_limit_bytes).all())
    return {"value": result.value, "valid": fits}


def one_run(problem: Problem, placer: Placer, budget: Budget, seed: int) -> Row:
    seen: list[Progress] = []
    budget._on_progress = seen.append
    make_ready(placer, problem)
    budget._start = time.monotonic()
    found = placer.search(problem, budget, seed)
    seconds = budget.elapsed_s()
    best_at = {m: [p.value for p in seen if p.evaluations <= m] for m in MARKS}
    curve = {str(m): min(values) for m, values in best_at.items() if values}
    row = judged(problem, found)
    return {**row, "evaluations": found.evaluations, "seconds": seconds, "note": found.note, "curve": curve}


def zero_shot(problem: Problem, seed: int, **options: Any) -> Row:
    """One pass and all stages of decoding; the value after each stage."""
    row = one_run(problem, get_placer("gdp", zero_shot=True, **options), Budget(120.0), seed)
    parts = (part.rpartition(" ") for part in row["note"].split(", "))
    return {**row, "stages": {stage: float(value) for stage, _, value in parts if stage in STAGES}}


def _within(problem: Problem, method: str, seed: int) -> Row:
    """Annealing, alone or with a zero-shot placement among its starts, at equal time: the main step of ``auto``."""
    anneal = get_placer("anneal")
    if method == "anneal":
        return one_run(problem, anneal, Budget(AUTO_S), seed)
    first = get_placer("gdp", zero_shot=True, **({"policy": "none"} if method.startswith("untrained") else {}))
    make_ready(anneal, problem)
    make_ready(first, problem)
    budget = Budget(AUTO_S)
    found = first.search(problem, budget, seed)
    start = judged(problem, found)
    if found.device_of_op is not None and start["valid"]:
        budget.offer(Incumbent(found.device_of_op, start["value"], found.priority))
    took = budget.elapsed_s()
    row = judged(problem, anneal.search(problem, budget, seed))
    return {**row, "value": min(row["value"], start["value"]), "start": start["value"], "zero-shot seconds": took}


def _batch(task: Task, method: str, rows: Rows, evaluations: int = FINE_TUNING) -> None:
    """One policy on several models at once."""
    from placewright.placers.learned.gdp_school import GdpSchool
    from placewright.placers.learned.gdp_settings import settings_for
    from placewright.placers.learned.training import one_thread

    problems = [load(f"zoo:{m}", cluster=c) for m, c in BATCHED]
    began = time.monotonic()
    school = GdpSchool(problems, settings_for("ours", **BATCHES[method]), evaluations, task.seed)
    with one_thread():
        while school.step() is not None:
            pass
    results = [
        {"model": m, "value": pupil.trials.best_value, "stages": {"policy": pupil.greedy_value}}
        for (m, _), pupil in zip(BATCHED, school.learners, strict=True)
    ]
    done = sum(pupil.trials.evaluations for pupil in school.learners)
    rows.add({**task.key(method), "values": results, "seconds": time.monotonic() - began, "evaluations": done,
              "cpu": processor()["name"]})  # fmt: skip


def _pretraining(task: Task, method: str, rows: Rows) -> None:
    """A shorter pre-training with a part of the policy missing; what it learnt, and what held-out families get."""
    from placewright.placers.learned.gdp_school import GdpSchool
    from placewright.placers.learned.gdp_settings import settings_for
    from placewright.placers.learned.policy_file import save_policy
    from placewright.placers.learned.training import one_thread

    settings = settings_for("ours", mutants=24, learning_rate=2e-3, **ABLATIONS[method])
    began = time.monotonic()
    school = GdpSchool(load_lessons(lessons()[::EVERY]), settings, PRETRAINING, task.seed)
    with one_thread():
        while school.step() is not None:
            pass
    seconds = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.safetensors"
        save_policy(path, school.as_policy())
        problems = {m: load(f"zoo:{m}", cluster=c) for m, c in JUDGED}
        found = [
            {"model": m, "stages": zero_shot(problem, task.seed, policy=str(path))["stages"]}
            for m, problem in problems.items()
        ]
    rows.add({**task.key(method), "regret": school.regret(), "values": found, "seconds": seconds,
              "cpu": processor()["name"]})  # fmt: skip


def compile_kernels(tasks: list[Task]) -> None:
    """Run each kind of placer once on a tiny problem, so that processes find all kernels compiled."""
    problem = load("zoo:fork-join?blocks=2", cluster="p100x2")
    methods = {m for task in tasks if task.part in ("main", "general") for m in task.methods}
    methods |= {"gdp, zero-shot", "gdp, fine-tuned"} | ({"anneal"} if any(t.part == "auto" for t in tasks) else set())
    for name in sorted({_placer_name(m) for m in methods - {"bound"}}):
        placer = get_placer(name)
        try:
            make_ready(placer, problem)
            judged(problem, placer.search(problem, Budget(60.0 if name != "anneal" else 0.5, evaluations=60), 0))
        except MissingExtraError as error:
            print(f"{name}: {error}", flush=True)


def _placer_name(method: str) -> str:
    return "gdp" if method.startswith(("gdp", "untrained")) else method.split(",")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "part", nargs="+", choices=("main", "ablation", "general", "batch", "pretraining", "auto", "scale", "tables")
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--stop-after", type=float, default=1e6)
    parser.add_argument("--rows", type=Path, default=Path(__file__).parent / "results" / "gdp.jsonl")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.stop_after
    rows = Rows(arguments.rows, arguments.only, arguments.stop_after)
    special: dict[str, Callable[[Rows], None]] = {"scale": scale_check, "tables": lambda r: print_tables(r, TABLE)}
    for part in arguments.part:
        if part in special:
            special[part](rows)
    tasks = [t for part in arguments.part for t in tasks_of(part) if any(rows.wants(**t.key(m)) for m in t.methods)]
    tasks.sort(key=lambda t: t.seconds, reverse=arguments.jobs > 1)  # alone the short ones first: more rows in a time
    work = functools.partial(do, path=arguments.rows, only=arguments.only)
    if arguments.jobs == 1:
        for task in tasks:
            if time.monotonic() < until:
                work(task)
    elif tasks:
        compile_kernels(tasks)
        print(f"compiled, {time.monotonic() - until + arguments.stop_after:.0f} s; {len(tasks)} tasks", flush=True)
        side_by_side(work, tasks, arguments.jobs, until)


if __name__ == "__main__":
    main()
