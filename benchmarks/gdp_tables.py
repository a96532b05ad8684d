"""The tables of docs/gdp.md, from the rows of benchmarks/gdp.py: medians over seeds, least and most in brackets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from rows import Row, Rows

from placewright.placers.learned.gdp_curriculum import HELD_OUT_FAMILIES

Table = Sequence[tuple[str, str]]
Values = dict[int, float]  # by seed
POLICY_ALONE = "zero-shot: policy alone"
OURS = (POLICY_ALONE, "gdp, zero-shot", "gdp, fine-tuned", "gdp, one", "gdp, batch")
OTHERS = ("human", "human, longest way first", "partition", "etf", "sct", "hdp", "hdp, longest way first", "anneal",
          "untrained, zero-shot")  # fmt: skip
STAGES = ("policy", "list", "samples", "search")


def print_tables(rows: Rows, table: Table) -> None:
    for show in (_main, _against, _evaluations, _general, _batch, _ablation, _pretraining, _auto, _scale):
        show(rows, table)
        print()


def _values(rows: Rows, model: str, cluster: str, method: str) -> Values:
    """Values of a method on a problem of the main table."""
    if method.startswith("gdp, batch"):
        batches = rows.of(part="batch", method=method)
        return {r["seed"]: v["value"] for r in batches for v in r["values"] if v["model"] == model}
    key = {"part": "main", "model": model, "cluster": cluster}
    if method == POLICY_ALONE:
        return {r["seed"]: r["stages"]["policy"] for r in rows.of(**key, method="gdp, zero-shot")}
    return _by_seed(rows.of(**key, method=method))


def _by_seed(chosen: Iterable[Row]) -> Values:
    return {r["seed"]: r["value"] for r in chosen if r.get("valid", True)}


def _cell(values: Iterable[float], shown: Callable[[float], str] = lambda s: f"{1e3 * s:.1f}") -> str:
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return ""
    spread = f" ({shown(min(finite))} to {shown(max(finite))})" if len(finite) > 1 else ""
    return shown(statistics.median(finite)) + (spread if shown(min(finite)) != shown(max(finite)) else "")


def _name(model: str) -> str:
    star = " *" if model.startswith(HELD_OUT_FAMILIES) else ""
    return model.replace("?training=1", "").replace("&batch=", " b").replace("?steps=", ", steps ") + star


def _lines(head: Sequence[str], body: Iterable[Sequence[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for line in body:
        print("| " + " | ".join(line) + " |")


def _main(rows: Rows, table: Table) -> None:
    plain = ("bound", "human", "human, longest way first", "partition", "etf", "sct")
    learned = ("untrained, zero-shot", "hdp", *OURS, "anneal")
    for title, methods in (("Without learning", plain), ("With learning, and annealing", learned)):
        print(f"{title}, ms:\n")
        body = ([f"{_name(m)}, {c[5:]}", *(_cell(_values(rows, m, c, k).values()) for k in methods)] for m, c in table)
        _lines(("model, GPUs", *methods), body)
        print()


def _less(rows: Rows, table: Table, ours: str, theirs: str) -> list[float]:
    """1 - t / t_other in the geometric mean over the problems, for each seed; the median where a seed is missing."""
    pairs = [(_values(rows, m, c, ours), _values(rows, m, c, theirs)) for m, c in table]
    both = [(own, other) for own, other in pairs if own and other]
    seeds = sorted({seed for own, _ in both for seed in own})
    logs = [[math.log(_of(own, s) / _of(other, s)) for own, other in both] for s in seeds]
    return [1 - math.exp(statistics.fmean(one)) for one in logs]


def _of(values: Values, seed: int) -> float:
    return values.get(seed, statistics.median(values.values()))


def _against(rows: Rows, table: Table) -> None:
    held_out = [(m, c) for m, c in table if m.startswith(HELD_OUT_FAMILIES)]
    for title, chosen in (("All rows", table), ("Held-out families", held_out)):
        print(f"{title}, less time than (geometric mean):\n")
        body = []
        for theirs in OTHERS:
            count = sum(bool(_values(rows, m, c, theirs)) for m, c in chosen)
            cells = (_cell(_less(rows, chosen, ours, theirs), lambda s: f"{s:.1%}") for ours in OURS)
            body.append((f"{theirs} ({count} rows)", *cells))
        _lines(("against", *OURS), body)
        print()


def _evaluations(rows: Rows, table: Table) -> None:
    for model, cluster in table:
        goal = _values(rows, model, cluster, "hdp")
        tuned = rows.of(part="main", model=model, cluster=cluster, method="gdp, fine-tuned")
        if goal and tuned:
            reached = [
                min((int(m) for m, v in r["curve"].items() if v <= min(goal.values())), default=-1) for r in tuned
            ]
            print(f"- {_name(model)}: hdp's best value of all seeds is reached within {sorted(reached)} evaluations")


def _general(rows: Rows, _: Table) -> None:
    body = []
    for model, cluster in dict.fromkeys((r["model"], r["cluster"]) for r in rows.of(part="general")):
        key = {"part": "general", "model": model, "cluster": cluster}
        found = rows.of(**key, method="gdp, zero-shot")
        plain = [_cell(_by_seed(rows.of(**key, method=m)).values()) for m in ("human", "etf")]
        stages = [_cell(r["stages"][s] for r in found) for s in STAGES]
        untrained = _cell(_by_seed(rows.of(**key, method="untrained, zero-shot")).values())
        body.append([_name(model), cluster.split()[0], *plain, *stages, untrained])
    _lines(("model", "GPUs", "human", "etf", "policy alone", "+ list", "+ samples", "+ search", "untrained"), body)


def _batch(rows: Rows, table: Table) -> None:
    for theirs in ("gdp, one", "gdp, batch, no superposition", "gdp, batch, no attention"):
        less = _cell(_less(rows, table, "gdp, batch", theirs), lambda s: f"{s:.1%}")
        print(f"- gdp, batch against {theirs}: {less} less")
    for method in dict.fromkeys(r["method"] for r in rows.of(part="batch")):
        alone = [
            [v["stages"]["policy"] / v["value"] for v in r["values"]] for r in rows.of(part="batch", method=method)
        ]
        above = _cell((_mean(ratios) - 1 for ratios in alone), lambda s: f"{s:.0%}")
        print(f"- {method}: the policy's likeliest placements are {above} above the best ones that it met")


def _mean(ratios: Iterable[float]) -> float:
    finite = [math.log(r) for r in ratios if math.isfinite(r)]
    return math.exp(statistics.fmean(finite)) if finite else math.nan


def _ablation(rows: Rows, _: Table) -> None:
    chosen = rows.of(part="ablation")
    models = list(dict.fromkeys(r["model"] for r in chosen))
    full = {(r["model"], r["seed"]): r["value"] for r in chosen if r["method"] == "full"}
    body = []
    for method in dict.fromkeys(r["method"] for r in chosen):
        own = [r for r in chosen if r["method"] == method and r.get("valid", True)]
        by_seed = [_mean(r["value"] / full.get((r["model"], r["seed"]), math.nan) for r in own if r["seed"] == s) - 1
                   for s in sorted({r["seed"] for r in own})]  # fmt: skip
        cells = [_cell(r["value"] for r in own if r["model"] == m) for m in models]
        body.append([method, *cells, _cell(by_seed, lambda s: f"{s:+.1%}")])
    _lines(("from scratch, 600 evaluations", *map(_name, models), "against full"), body)


def _pretraining(rows: Rows, _: Table) -> None:
    chosen = rows.of(part="pretraining")
    full = {(r["seed"], v["model"], s): t for r in chosen if r["method"] == "full" for v in r["values"]
            for s, t in v["stages"].items()}  # fmt: skip
    body = []
    for method in dict.fromkeys(r["method"] for r in chosen):
        own = [r for r in chosen if r["method"] == method]
        longer = [[_mean(v["stages"][s] / full.get((r["seed"], v["model"], s), math.nan) for v in r["values"]) - 1
                   for r in own] for s in ("policy", "search")]  # fmt: skip
        cells = [_cell(values, lambda s: f"{s:+.1%}") for values in longer]
        body.append([method, _cell((r["regret"] for r in own), lambda s: f"{s:.1%}"), *cells])
    _lines(("short pre-training", "above best known, training problems", "held out: policy alone", "decoded"), body)


def _auto(rows: Rows, _: Table) -> None:
    chosen = rows.of(part="auto")
    methods = list(dict.fromkeys(r["method"] for r in chosen))
    body = []
    for model, cluster in dict.fromkeys((r["model"], r["cluster"]) for r in chosen):
        cells = [
            _cell(_by_seed(rows.of(part="auto", model=model, cluster=cluster, method=m)).values()) for m in methods
        ]
        body.append([f"{_name(model)}, {cluster[5:]}", *cells])
    _lines(("model, GPUs", *methods), body)
    alone = {(r["model"], r["seed"]): r["value"] for r in chosen if r["method"] == "anneal"}
    for method in methods:
        less = 1 - _mean(
            r["value"] / alone.get((r["model"], r["seed"]), math.nan) for r in chosen if r["method"] == method
        )
        print(f"- {method}: {less:.1%} less than anneal alone")


def _scale(rows: Rows, _: Table) -> None:
    body = [
        (r["model"], r["method"], r["cluster"], r.get("device", ""), f"{r['seconds']:.3f} s", f"{r['gib']:.2f} GiB")
        for r in rows.of(part="scale")
    ]
    _lines(("graph", "network", "where", "device", "one pass", "most memory"), body)
