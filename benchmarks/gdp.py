"""GDP's experiments: main table, ablations, generalisation, scale.

    python benchmarks/gdp.py main|ablation|general|batch|auto|scale|tables [--only TEXT] [--stop-after S] [--rows FILE]

Every run appends one line to the rows file and is skipped when it is there already, so a benchmark may be done in
parts. ``--only`` picks runs whose key (part, model, cluster, method, seed) contains one of the texts, joined by "|".

Models are training steps on equal GPUs with 16 GiB each (``p100xK``, modelled). ``human`` is one layer or stage per
device; ``partition`` a balanced hypergraph partition, in the role of METIS; ``hdp`` the learned grouper and placer,
1500 evaluations; "longest way first" gives both the order of ready ops that ``gdp`` has. ``gdp, one`` starts from
random weights, ``gdp, fine-tuned`` from the shipped policy, ``gdp, batch`` was trained on all small models of the table
together. ``untrained, zero-shot`` decodes random weights: what decoding does alone. ``anneal`` has the time that
``gdp, fine-tuned`` took.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from placewright.api import load
from placewright.budget import Budget, Progress
from placewright.evaluate import evaluate, lower_bound
from placewright.placers import get_placer
from placewright.placers.base import Found, Placer, make_ready
from placewright.placers.learned.gdp_curriculum import HELD_OUT_ACCELERATORS, Machine
from placewright.placers.learned.rewards import ways_left
from placewright.problem import Problem

TABLE = (
    ("rnnlm-2", "p100x2"), ("rnnlm-4", "p100x4"), ("rnnlm-8", "p100x8"), ("gnmt-2", "p100x2"), ("gnmt-4", "p100x4"),
    ("gnmt-8", "p100x8"), ("transformer-xl-2", "p100x2"), ("transformer-xl-4", "p100x4"),
    ("transformer-xl-8", "p100x8"), ("inception-v3?training=1&batch=32", "p100x2"),
    ("inception-v3?training=1&batch=64", "p100x2"), ("amoebanet", "p100x4"), ("wavenet-2x18", "p100x2"),
    ("wavenet-4x36", "p100x4"),
)  # fmt: skip
SEEDS = (0, 1, 2)
HDP_EVALUATIONS = 1500
FINE_TUNING = 600
MARKS = (25, 50, 100, 200, 400, 600, 1000, 1500)
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "human": ("human", {}), "etf": ("etf", {}), "sct": ("sct", {}),
}  # fmt: skip
STAGES = ("policy", "list", "samples", "search")
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
    "policy at 3 scales": {"policy_scales": 3},
    "every op alone": {"scales": (0, 2, 1, 8, 32)},
    "every op alone, no mutants, no imitation": {"scales": (0,), "mutants": 0, "imitation": 0.0},
    "no work features": {"work_features": False},
    "first come, first served": {"by_rank": False},
    "as published": {"variant": "paper"},
}
ABLATED = (("transformer-xl-2", "p100x2"), ("inception-v3?training=1&batch=32", "p100x2"))
Row = dict[str, Any]


class Rows:
    """Finished runs, in a file of JSON lines."""

    def __init__(self, path: Path, only: str, stop_after_s: float) -> None:
        self.path, self.only, self._until = path, only, time.monotonic() + stop_after_s
        self.rows: list[Row] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wants(self, **key: Any) -> bool:
        text = " ".join(str(v) for v in key.values())
        known = any(all(row.get(k) == v for k, v in key.items()) for row in self.rows)
        return not known and any(o in text for o in self.only.split("|")) and time.monotonic() < self._until

    def add(self, row: Row) -> None:
        self.rows.append(row)
        with self.path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(json.dumps({k: v for k, v in row.items() if k != "curve"}), flush=True)

    def of(self, **key: Any) -> list[Row]:
        return [row for row in self.rows if all(row.get(k) == v for k, v in key.items())]


class PartitionBaseline(Placer):
    """The partition of the pipeline model's loads, judged as a latency placement."""

    name = "partition"
    summary = "balanced hypergraph partition"

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


OURS: dict[str, type[Placer]] = {"partition": PartitionBaseline, "human, longest way first": OrderedHuman}


def main_table(rows: Rows) -> None:
    for model, cluster in TABLE:
        key = {"part": "main", "model": model, "cluster": cluster}
        runs = [(m, 0) for m in (*PLAIN, "human, longest way first", "partition", "bound")]
        runs += [(m, s) for s in SEEDS for m in ("gdp, zero-shot", "untrained, zero-shot", *LEARNED, "anneal")]
        wanted = [(m, s) for m, s in runs if rows.wants(**key, method=m, seed=s)]
        if not wanted:
            continue
        problem = load(f"zoo:{model}", cluster=cluster)
        for method, seed in wanted:
            run = {**key, "method": method, "seed": seed}
            if not rows.wants(**run):
                continue
            if method == "bound":
                rows.add({**run, "value": lower_bound(problem), "ops": problem.n_ops})
            elif method in OURS:
                rows.add({**run, **one_run(problem, OURS[method](), Budget(60.0), seed)})
            elif method in PLAIN:
                placer, options = PLAIN[method]
                rows.add({**run, **one_run(problem, get_placer(placer, **options), Budget(60.0), seed)})
            elif method == "gdp, zero-shot":
                rows.add({**run, **zero_shot(problem, seed)})
            elif method == "untrained, zero-shot":
                rows.add({**run, **zero_shot(problem, seed, policy="none")})
            elif method == "anneal":
                ours = rows.of(**key, method="gdp, fine-tuned", seed=seed)
                if ours:
                    rows.add({**run, **one_run(problem, get_placer("anneal"), Budget(ours[0]["seconds"]), seed)})
            else:
                placer, options, evaluations = LEARNED[method]
                rows.add({**run, **one_run(problem, get_placer(placer, **options), Budget(1e6, evaluations), seed)})


def ablation_table(rows: Rows) -> None:
    for model, cluster in ABLATED:
        problem = load(f"zoo:{model}", cluster=cluster)
        for method, options in ABLATIONS.items():
            for seed in SEEDS:
                run = {"part": "ablation", "model": model, "cluster": cluster, "method": method, "seed": seed}
                if rows.wants(**run):
                    placer = get_placer("gdp", **{"policy": "none", **options})
                    rows.add({**run, **one_run(problem, placer, Budget(1e6, FINE_TUNING), seed)})


def general_table(rows: Rows) -> None:
    """Zero-shot where the policy was never trained: families, numbers of devices, both; human and etf beside it."""
    families = [("amoebanet", 4), ("wavenet-2x18", 2), ("wavenet-4x36", 4), ("gnmt-2", 2), ("unet?training=1", 2),
                ("unet?training=1&batch=4", 4), ("moe?training=1", 4), ("gnmt-2?steps=30", 4)]  # fmt: skip
    known = ("rnnlm-2", "transformer-xl-4", "inception-v3?training=1&batch=32", "amoebanet", "gnmt-2?steps=30")
    counts = [(model, count) for count in HELD_OUT_ACCELERATORS for model in known]
    for model, count in [*families, *counts]:
        key = {"part": "general", "model": model, "cluster": f"{count} GPUs"}
        methods = ("human", "etf", "gdp, zero-shot")
        if not any(rows.wants(**key, method=m, seed=0) for m in methods):
            continue
        problem = load(f"zoo:{model}", cluster=Machine(count).cluster())
        for method in methods:
            run = {**key, "method": method, "seed": 0}
            if not rows.wants(**run):
                continue
            if method == "gdp, zero-shot":
                rows.add({**run, **zero_shot(problem, 0)})
            else:
                rows.add({**run, **one_run(problem, get_placer(method), Budget(60.0), 0)})


def batch_table(rows: Rows, evaluations: int = 600) -> None:
    """One policy on several models at once, with superposition and without."""
    from placewright.placers.learned.gdp_school import GdpSchool
    from placewright.placers.learned.gdp_settings import settings_for
    from placewright.placers.learned.training import one_thread

    small = [(m, c) for m, c in TABLE if m in ("rnnlm-2", "transformer-xl-2", "wavenet-2x18") or "batch=32" in m]
    for method, options in {"gdp, batch": {}, "gdp, batch, no superposition": {"gate": "none"}}.items():
        keys = [{"part": "batch", "model": m, "cluster": c, "method": method, "seed": 0} for m, c in small]
        if not rows.wants(**keys[0]):
            continue
        problems = [load(f"zoo:{m}", cluster=c) for m, c in small]
        began = time.monotonic()
        school = GdpSchool(problems, settings_for("ours", **options), evaluations, 0)
        with one_thread():
            while school.step() is not None:
                pass
        seconds = (time.monotonic() - began) / len(problems)
        for key, pupil in zip(keys, school.learners, strict=True):
            best, done = pupil.trials.best_value, pupil.trials.evaluations
            own = {"policy": pupil.greedy_value}
            rows.add({**key, "value": best, "valid": True, "stages": own, "seconds": seconds, "evaluations": done})


def auto_table(rows: Rows, seconds: float = 10.0) -> None:
    """Whether annealing does better when the zero-shot policy's placement is among its starts, at equal time."""
    from placewright.budget import Incumbent

    for model, cluster in TABLE:
        key = {"part": "auto", "model": model, "cluster": cluster, "seed": 0}
        if not any(rows.wants(**key, method=m) for m in ("anneal", "zero-shot, then anneal")):
            continue
        problem = load(f"zoo:{model}", cluster=cluster)
        make_ready(get_placer("anneal"), problem)
        make_ready(get_placer("gdp", zero_shot=True), problem)
        if rows.wants(**key, method="anneal"):
            rows.add({**key, "method": "anneal", **one_run(problem, get_placer("anneal"), Budget(seconds), 0)})
        if rows.wants(**key, method="zero-shot, then anneal"):
            budget = Budget(seconds)
            found = get_placer("gdp", zero_shot=True).search(problem, budget, 0)
            first = judged(problem, found)
            if found.device_of_op is not None and first["valid"]:
                budget.offer(Incumbent(found.device_of_op, first["value"], found.priority))
            took = budget.elapsed_s()
            row = judged(problem, get_placer("anneal").search(problem, budget, 0))
            row["value"] = min(row["value"], first["value"])
            rows.add({**key, "method": "zero-shot, then anneal", **row, "zero-shot seconds": took})


def scale_check(rows: Rows) -> None:
    """One pass for gnmt-8, and for 80,000 nodes at width 128 and segments of 256, on each device there is."""
    import torch

    from placewright.placers.learned.features import Vocabulary
    from placewright.placers.learned.gdp_learner import new_policy
    from placewright.placers.learned.gdp_network import GraphTensors, join
    from placewright.placers.learned.gdp_pupil import Pupil
    from placewright.placers.learned.gdp_settings import settings_for
    from placewright.placers.learned.rewards import SimulatedRewards

    problem = load("zoo:gnmt-8", cluster="p100x8")
    for method, options in {"default": {"scales": (0,)}, "width 128": {"width": 128, "inner_width": 512, "segment": 256,
                                                                       "scales": (0,)}}.items():  # fmt: skip
        settings = settings_for("ours", **options)
        vocabulary = Vocabulary.of([problem.graph])
        graph = Pupil(problem, SimulatedRewards(problem), settings, vocabulary).graphs[0]
        times = -(-80_000 // len(graph.node))
        large = GraphTensors(
            graph.node.repeat(times, 1)[:80_000], torch.randint(80_000, (2, 320_000)), graph.device,
            torch.arange(80_000), torch.ones(80_000), graph.block.repeat(times, 1)[:80_000],
            graph.pair.repeat(times, 1, 1)[:80_000], graph.allowed.repeat(times, 1)[:80_000],
            graph.work.repeat(times)[:80_000],
        )  # fmt: skip
        policy = new_policy(settings, vocabulary, problem.n_devices, 0)
        for where in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
            for name, tensors in {"gnmt-8": graph, "80,000 nodes": large}.items():
                run = {"part": "scale", "model": name, "cluster": where, "method": method, "seed": 0}
                if rows.wants(**run):
                    moved = GraphTensors(*(t.to(where) for t in tensors))
                    rows.add({**run, **_timed_pass(policy.to(where), join([moved], settings.segment), where)})


def _timed_pass(policy: Any, joined: Any, where: str) -> Row:
    import torch

    seconds = []
    if where == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        for _ in range(4):
            began = time.perf_counter()
            policy(joined).sum().item()
            seconds.append(time.perf_counter() - began)
    gib = (torch.cuda.max_memory_allocated() if where == "cuda" else 1024 * resource.getrusage(0).ru_maxrss) / 2**30
    return {
        "nodes": len(joined.slot),
        "seconds": statistics.median(seconds[1:]),
        "gib": gib,
        "torch": torch.__version__,
    }


def tables(rows: Rows) -> None:
    main = rows.of(part="main")
    methods = list(dict.fromkeys(r["method"] for r in main))
    print("| model, cluster | " + " | ".join(methods) + " |")
    for model, cluster in TABLE:
        cells = [_cell(rows.of(part="main", model=model, cluster=cluster, method=m)) for m in methods]
        print(f"| {model}, {cluster} | " + " | ".join(cells) + " |")
    values = {(m, c, k): _median(rows.of(part="main", model=m, cluster=c, method=k)) for m, c in TABLE for k in methods}
    for ours in ("gdp, zero-shot", "gdp, fine-tuned", "gdp, one"):
        for theirs in methods:
            ratios = [values[m, c, ours] / values[m, c, theirs] for m, c in TABLE
                      if math.isfinite(values[m, c, ours] / values[m, c, theirs])]  # fmt: skip
            if ratios:
                saved = 1 - math.exp(sum(map(math.log, ratios)) / len(ratios))
                print(f"{ours} against {theirs}: {saved:+.1%} less (geometric mean of {len(ratios)} rows)")
    for model, cluster in TABLE:
        key = {"part": "main", "model": model, "cluster": cluster}
        hdp, tuned = rows.of(**key, method="hdp"), rows.of(**key, method="gdp, fine-tuned")
        if hdp and tuned:
            goal = statistics.median(r["value"] for r in hdp)
            reached = [min((int(m) for m, v in r["curve"].items() if v <= goal), default=10**9) for r in tuned]
            print(f"{model}: hdp's value after {HDP_EVALUATIONS} is reached by gdp, fine-tuned within {max(reached)}")
        for row in rows.of(**key, method="gdp, zero-shot", seed=0):
            text = ", ".join(f"{s} {1e3 * v:.2f}" for s, v in row["stages"].items())
            print(f"{model}: zero-shot stages, ms: {text}; {row['seconds']:.1f} s")
    for part in ("ablation", "general", "batch", "auto", "scale"):
        for model, cluster in dict.fromkeys((r["model"], r["cluster"]) for r in rows.of(part=part)):
            for method in dict.fromkeys(r["method"] for r in rows.of(part=part, model=model, cluster=cluster)):
                chosen = rows.of(part=part, model=model, cluster=cluster, method=method)
                stages = {s: f"{1e3 * v:.2f}" for s, v in chosen[0].get("stages", {}).items()}
                text = _cell(chosen) if part != "scale" else f"{chosen[0]['seconds']:.3f} s, {chosen[0]['gib']:.2f} GiB"
                print(f"{part} | {model}, {cluster} | {method} | {text} | {stages or ''}")


def _median(chosen: list[Row]) -> float:
    usable = [r["value"] for r in chosen if r.get("valid", True)]
    return statistics.median(usable) if usable else math.nan


def _cell(chosen: list[Row]) -> str:
    usable = [1e3 * r["value"] for r in chosen if r.get("valid", True) and np.isfinite(r["value"])]
    if not usable:
        return "not valid" if chosen else ""
    spread = f" ({min(usable):.1f}-{max(usable):.1f})" if len(usable) > 1 else ""
    return f"{statistics.median(usable):.1f}{spread}"


def main() -> None:
    parts = {"main": main_table, "ablation": ablation_table, "general": general_table, "batch": batch_table,
             "auto": auto_table, "scale": scale_check, "tables": tables}  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=tuple(parts))
    parser.add_argument("--only", default="")
    parser.add_argument("--stop-after", type=float, default=1e9)
    parser.add_argument("--rows", type=Path, default=Path(__file__).parent / "results" / "gdp.jsonl")
    arguments = parser.parse_args()
    parts[arguments.part](Rows(arguments.rows, arguments.only, arguments.stop_after))


if __name__ == "__main__":
    main()
