"""HSDAG's experiments: main table, ablations, search time, and a search by real execution.

    python benchmarks/hsdag.py main|ablation|time|execution|tables [--only TEXT] [--stop-after SECONDS] [--rows FILE]

Every run appends one line to the rows file and is skipped when it is there already, so a benchmark may be done in
parts. ``--only`` picks runs whose key (setting, execution model, model, method, seed) contains the text.

Settings: ``flex170`` (i9-12900K + Flex 170, modelled) and ``h200-xeon`` (measured profile). ``best known`` is the least
value of all rows of a problem, the reference's included; the bound is proven. Learned placers get 2000 evaluations.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rows import Row, Rows

from placewright.api import load
from placewright.budget import Budget, Progress
from placewright.placement import checked_placement
from placewright.placers import get_placer
from placewright.placers.base import make_ready, single_device_values
from placewright.problems import Problem

MODELS = ("inception-v3", "resnet-50", "bert-base")
SETTINGS = ("flex170", "h200-xeon")
EXECUTIONS = ("sequential", "overlap")
SEEDS = (0, 1, 2)
EVALUATIONS = 2000
MARKS = (50, 100, 200, 500, 1000, 2000)
REFERENCE_S = 10.0
PUBLISHED = {"inception-v3": 17.9, "resnet-50": 52.1, "bert-base": 58.2}  # per cent over CPU-only
LEARNED: dict[str, tuple[str, dict[str, Any]]] = {
    "hsdag": ("hsdag", {}),
    "hsdag, no starts": ("hsdag", {"starts": False}),
    "placeto": ("placeto", {}),
    "rnn": ("rnn", {}),
}
PUBLISHED_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "hsdag, paper": ("hsdag", {"variant": "paper"}),
    "hsdag, released": ("hsdag", {"variant": "released"}),
}
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "runtime's choice, cpu first": ("runtime-choice", {"first": "cpu"}),
    "runtime's choice, gpu first": ("runtime-choice", {"first": "gpu"}),
    "heft": ("heft", {}),
    "peft": ("peft", {}),
}
ABLATIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "no shape": {"without": "shape"},
    "no node id": {"without": "position"},
    "no structure": {"without": "structure"},
    "no work": {"without": "work"},
    "levels 1": {"levels": 1},
    "levels 2": {"levels": 2},
    "levels to the fixpoint": {"levels": 0},
    "undirected": {"directed": False},
    "no learning": {"learning_rate": 0.0},
    "no starts": {"starts": False},
    "no sections": {"sections": False},
    "first come, first served": {"by_rank": False},
    "all clusters anew, our update": {"decide": "all", "starts": False},
    "all clusters anew, eq. 14": {"decide": "all", "starts": False, "update": "eq14"},
    "all clusters anew, released update": {"decide": "all", "starts": False, "update": "released"},
}


class RowsAndVariants(Rows):
    """``with_variants``: whether the published variants are wanted too."""

    with_variants = False


def problem_of(model: str, setting: str, execution: str) -> Problem:
    profile = setting if setting == "h200-xeon" else None
    return load(f"zoo:{model}", cluster=setting, execution=execution, profile=profile)


def one_run(problem: Problem, placer: str, options: dict[str, Any], budget: Budget, seed: int) -> Row:
    """Place once; the curve is the best value after so many evaluations."""
    seen: list[Progress] = []
    budget._on_progress = seen.append
    chosen = get_placer(placer, **options)
    make_ready(chosen, problem)
    began = time.perf_counter()
    budget._start = time.monotonic()
    placement = chosen.place(problem, budget, seed)
    seconds = time.perf_counter() - began
    if placer == "runtime-choice":  # as it is, even where a single device is better
        device_of_op = chosen.search(problem, budget, seed).device_of_op
        placement = checked_placement(problem, device_of_op, placer=placer)
    best_at = {m: [p.value for p in seen if p.evaluations <= m] for m in MARKS}
    curve = {str(m): min(values) for m, values in best_at.items() if values}
    return {
        "value": placement.value,
        "bound": placement.bound,
        "evaluations": placement.evaluations,
        "seconds": seconds,
        "segments": placement.evaluation.segments if placement.evaluation else 0,
        "curve": curve,
    }


def problems(rows: Rows) -> Iterator[tuple[Row, Problem]]:
    for setting in SETTINGS:
        for execution in EXECUTIONS:
            for model in MODELS:
                key = {"setting": setting, "execution": execution, "model": model}
                yield key, problem_of(model, setting, execution)


def main_table(rows: RowsAndVariants) -> None:
    for key, problem in problems(rows):
        first = {"part": "main", **key, "method": "reference", "seed": 0}
        if rows.wants(**first):
            found = one_run(problem, "auto", {}, Budget(REFERENCE_S), 0)
            alone = single_device_values(problem)
            rows.add({**first, **found, "single": alone})
        for method, (placer, options) in PLAIN.items():
            run = {"part": "main", **key, "method": method, "seed": 0}
            if rows.wants(**run):
                rows.add({**run, **one_run(problem, placer, options, Budget(10.0), 0)})
        for seed in SEEDS:
            learned = LEARNED | (PUBLISHED_VARIANTS if rows.with_variants else {})
            for method, (placer, options) in learned.items():
                run = {"part": "main", **key, "method": method, "seed": seed}
                if rows.wants(**run):
                    rows.add({**run, **one_run(problem, placer, options, Budget(600.0, EVALUATIONS), seed)})
            longer = {"part": "main", **key, "method": f"hsdag, {4 * EVALUATIONS} evaluations", "seed": seed}
            if key["execution"] == "overlap" and rows.wants(**longer):
                rows.add({**longer, **one_run(problem, "hsdag", {}, Budget(600.0, 4 * EVALUATIONS), seed)})
            ours = rows.of(part="main", **key, method="hsdag", seed=seed)
            equal_time = (
                {"anneal": "anneal", "mincut": "mincut"} if key["execution"] == "sequential" else {"anneal": "anneal"}
            )
            for name in equal_time if ours else ():
                run = {"part": "main", **key, "method": f"{name}, equal time", "seed": seed}
                if rows.wants(**run):
                    rows.add({**run, **one_run(problem, name, {}, Budget(ours[0]["seconds"]), seed)})
            run = {"part": "main", **key, "method": "anneal, equal evaluations", "seed": seed}
            if rows.wants(**run):
                rows.add({**run, **one_run(problem, "anneal", {}, Budget(600.0, EVALUATIONS), seed)})


def ablation_table(rows: Rows) -> None:
    for setting in SETTINGS:
        problem = problem_of("inception-v3", setting, "overlap")
        for method, options in ABLATIONS.items():
            for seed in SEEDS:
                run = {"part": "ablation", "setting": setting, "execution": "overlap", "model": "inception-v3"}
                run |= {"method": method, "seed": seed}
                if rows.wants(**run):
                    rows.add({**run, **one_run(problem, "hsdag", options, Budget(600.0, EVALUATIONS), seed)})


def time_table(rows: Rows) -> None:
    """Seconds per evaluation on BERT, by trials per step."""
    problem = problem_of("bert-base", "flex170", "overlap")
    for batch, evaluations in ((1, 300), (8, 2000), (32, 2000)):
        for seed in SEEDS:
            run = {"part": "time", "model": "bert-base", "method": f"{batch} trials per step", "seed": seed}
            if rows.wants(**run):
                rows.add({**run, **one_run(problem, "hsdag", {"batch": batch}, Budget(600.0, evaluations), seed)})


def execution_search(rows: Rows, evaluations: int = 300) -> None:
    """Search by real execution on a core in f32 and one in bf16; go on after a stop by running the same command."""
    from placewright.execute.live import open_live
    from placewright.execute.measured import measurement_context
    from placewright.execute.memo import Memo
    from placewright.execute.run import run_placement
    from placewright.placers.learned.rewards import MeasuredRewards

    model, cluster = f"zoo:{rows.only or 'resnet-50'}", "cores:f32+bf16"
    live = open_live(model, "openvino")
    problem = load(live.graph, cluster=cluster, execution="overlap")
    if not rows.wants(part="execution", model=model):
        return
    memo = Memo(rows.path.with_suffix(".sqlite"), measurement_context(live, problem))
    rewards = MeasuredRewards(problem, live, memo, should_stop=lambda: time.monotonic() > rows._until)
    began = time.perf_counter()
    placement = get_placer("hsdag", rewards=lambda _: rewards).place(problem, Budget(3600.0, evaluations), 0)
    print(f"{len(memo)} placements measured in all, {rewards.measured} now, {time.perf_counter() - began:.0f} s")
    if time.monotonic() > rows._until:
        return
    result = run_placement(live, placement, repeats=20)
    measured = {name: [t.median_s, t.low_s, t.high_s] for name, t in result.timings.items()}
    against = {name: str(result.against(name)) for name in problem.cluster.device_names}
    found = {"measured": measured, "against": against, "segments": result.segments, "note": placement.note}
    rows.add({"part": "execution", "model": model, "cluster": cluster, "evaluations": rewards.evaluations, **found})


def median_and_spread(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.4f}" + (f" ({min(values):.4f}-{max(values):.4f})" if len(values) > 1 else "")


def tables(rows: Rows) -> None:
    for setting in SETTINGS:
        for execution in EXECUTIONS:
            for model in MODELS:
                key = {"part": "main", "setting": setting, "execution": execution, "model": model}
                _main_rows(rows, key)
    for setting in SETTINGS:
        chosen = rows.of(part="ablation", setting=setting)
        if chosen:
            known = best_known(rows, setting, "overlap", "inception-v3")
            print(f"\nablation, inception-v3, {setting}, overlap: ms after 2000 evaluations, above best known")
            for method in ABLATIONS:
                values = [1e3 * r["value"] for r in chosen if r["method"] == method]
                if values:
                    above = statistics.median(values) / (1e3 * known) - 1
                    print(f"| {method} | {median_and_spread(values)} | {above:+.1%} |")
    for row in rows.of(part="time") + rows.of(part="execution"):
        print({k: v for k, v in row.items() if k != "curve"})


def best_known(rows: Rows, setting: str, execution: str, model: str) -> float:
    return min(
        r["value"]
        for r in rows.rows
        if (r.get("setting"), r.get("execution"), r["model"]) == (setting, execution, model)
    )


def _main_rows(rows: Rows, key: Row) -> None:
    reference = rows.of(**key, method="reference")
    if not reference:
        return
    known = best_known(rows, key["setting"], key["execution"], key["model"])
    bound = max(r["bound"] for r in rows.of(**key))
    alone = reference[0]["single"]
    cpu = alone["cpu0"]
    title = f"{key['model']}, {key['setting']}, {key['execution']}"
    print(f"\n{title}: best known {1e3 * known:.4f} ms, bound {1e3 * bound:.4f}")
    print("| method | ms: median (least-most) | above best known | less than CPU-only | seconds |")
    lines = [(f"{name} only", [value], []) for name, value in alone.items()]
    for method in dict.fromkeys(r["method"] for r in rows.of(**key)):
        chosen = rows.of(**key, method=method)
        lines.append((method, [r["value"] for r in chosen], [r["seconds"] for r in chosen]))
    for method, values, seconds in lines:
        middle = statistics.median(values)
        took = f"{statistics.median(seconds):.2f}" if seconds else ""
        print(f"| {method} | {median_and_spread([1e3 * v for v in values])} | {middle / known - 1:+.2%} "
              f"| {1 - middle / cpu:.1%} | {took} |")  # fmt: skip
    print(f"published improvement over CPU-only: {PUBLISHED[key['model']]}%")
    for method in ("hsdag", "hsdag, no starts", "placeto", "rnn"):
        curves = [r["curve"] for r in rows.of(**key, method=method)]
        points = [(m, [c[str(m)] for c in curves if str(m) in c]) for m in MARKS]
        text = ", ".join(f"{m}: {statistics.median(v) / known - 1:+.1%}" for m, v in points if v)
        print(f"curve of {method}, above best known after so many evaluations: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("main", "ablation", "time", "execution", "tables"))
    parser.add_argument("--only", default="")
    parser.add_argument("--stop-after", type=float, default=1e9)
    parser.add_argument(
        "--variants", action="store_true", help="main table: the published variants too, which are slow"
    )
    parser.add_argument("--rows", type=Path, default=Path(__file__).parent / "results" / "hsdag.jsonl")
    arguments = parser.parse_args()
    rows = RowsAndVariants(arguments.rows, arguments.only, arguments.stop_after)
    rows.with_variants = arguments.variants
    parts = {"main": main_table, "ablation": ablation_table, "time": time_table, "execution": execution_search}
    parts.get(arguments.part, tables)(rows)


if __name__ == "__main__":
    main()
