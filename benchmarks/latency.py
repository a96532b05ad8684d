"""Every placer on generated problems of all four execution models, at one budget: value over bound, seconds, who wins.

    python benchmarks/latency.py [--budget 10] [--execution overlap] [--ops 1000,10000] [--seeds 2] [--json FILE]

Problems are layered random graphs. ``ccr`` is the time of all copies over all edges divided by the time of all ops
(their mean over kinds): 0.4 is compute-bound, 4 communication-bound. Machines are 4 equal devices, and 2, 3 and 4
devices of unlike kinds, each kind fast at other ops, around host memory. Seconds are wall time after warm-up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from placewright.budget import Budget
from placewright.cluster import Cluster, DeviceKind, Link, equal_devices
from placewright.placers import get_placer, get_placer_class, placer_names
from placewright.placers.base import prepare
from placewright.placers.registry import is_installed
from placewright.problem import EXECUTIONS, Problem
from placewright.zoo import zoo_graph

LISTS = ("heft", "peft", "etf", "sct", "cpop")
MACHINES = ("4 equal", "2 kinds", "3 kinds", "4 kinds")
TIE = 1e-3


class Row(NamedTuple):
    """One placer on one instance."""

    execution: str
    instance: str
    placer: str
    value: float
    bound: float
    seconds: float


def machine(name: str) -> Cluster:
    """4 equal accelerators with direct links, or one device each of several kinds around host memory."""
    link = Link("link", 1e10, 1e-5)
    if name == "4 equal":
        devices = equal_devices("gpu", 4)
        pairs = {(a.name, b.name): link for a in devices for b in devices if a is not b}
        return Cluster(
            name=name, kinds=(DeviceKind("gpu"),), devices=tuple(devices), to_host={}, from_host={}, direct=pairs
        )
    kinds = ["cpu", "gpu", "npu", "dsp"][: int(name[0])]
    devices = tuple(d for k in kinds for d in equal_devices(k, 1))
    accelerators = {d.name: link for d in devices if d.kind != "cpu"}
    return Cluster(
        name=name,
        kinds=tuple(DeviceKind(k, is_host=k == "cpu", segment_overhead_s=2e-5) for k in kinds),
        devices=devices,
        to_host=accelerators,
        from_host=accelerators,
    )


def instance(ops: int, ccr: float, machine_name: str, seed: int) -> Problem:
    """A layered graph with op times drawn per op and kind, copies scaled to the ratio asked for."""
    graph = zoo_graph(f"layered?ops={ops}&seed={seed}")
    cluster = machine(machine_name)
    rng = np.random.default_rng(seed)
    base = rng.exponential(1e-4, graph.n_ops) + 1e-5
    speed = rng.lognormal(0.0, 0.8 if len(cluster.kinds) > 1 else 0.0, (graph.n_ops, len(cluster.kinds)))
    times = base[:, None] * speed
    n_links = len(cluster.link_table().links)
    per_edge = float(graph.tensor_bytes[graph.edge_tensor].sum())
    copy_s = graph.tensor_bytes * (ccr * times.mean(axis=1).sum() / per_edge)
    return Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=times,
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=np.repeat(copy_s[:, None], n_links, axis=1),
    )


def instances(execution: str, sizes: list[int], seeds: int) -> Iterator[tuple[str, Problem]]:
    for ops in sizes:
        for ccr in (0.4, 4.0):
            for name in MACHINES:
                for seed in range(1, seeds + 1):
                    problem = instance(ops, ccr, name, seed).for_objective(None, execution)
                    yield f"{ops} ops, ccr {ccr:g}, {name}, seed {seed}", problem
                    if execution == "pipeline" and seed == 1:
                        yield f"{ops} ops, ccr {ccr:g}, {name}, non-contiguous", problem.with_options(contiguous=False)


def usable_placers(problem: Problem) -> list[str]:
    names = [n for n in placer_names() if n not in ("expert",) and is_installed(get_placer_class(n))]
    return [n for n in names if problem.execution in get_placer_class(n).executions]


def run(name: str, problem: Problem, seconds: float) -> tuple[float, float, float]:
    placer = get_placer(name)
    placer.warm_up(problem)
    began = time.perf_counter()
    placement = placer.place(problem, Budget(seconds), 0)
    value = placement.value if placement.is_valid else float("inf")
    return value, placement.bound, time.perf_counter() - began


def show(rows: list[Row]) -> None:
    bound = max(r.bound for r in rows)
    best = min(r.value for r in rows)
    print(f"\n{rows[0].execution}: {rows[0].instance}   proven bound {bound:.6g}, best value {best / bound:.4f} of it")
    for r in sorted(rows, key=lambda r: r.value):
        mark = "  *" if r.value <= best * (1 + TIE) else ""
        print(f"    {r.placer:<14}{r.value / bound:>9.4f}{r.seconds:>9.2f} s{mark}", flush=True)


def summary(rows: list[Row]) -> None:
    groups: dict[tuple[str, str], dict[str, float]] = {}
    for r in rows:
        groups.setdefault((r.execution, r.instance), {})[r.placer] = r.value
    print("\nexecution     instances   auto best or tied   anneal better than the best list scheduler")
    for execution in dict.fromkeys(e for e, _ in groups):
        chosen = [values for (e, _), values in groups.items() if e == execution]
        tied = [v["auto"] <= min(v.values()) * (1 + TIE) for v in chosen if "auto" in v]
        wins = [
            v["anneal"] < min(v[n] for n in LISTS if n in v)
            for v in chosen
            if "anneal" in v and any(n in v for n in LISTS)
        ]
        print(f"{execution:<14}{len(chosen):>9}{_share(tied):>20}{_share(wins):>45}")


def _share(hits: list[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" if hits else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each placer on each instance")
    parser.add_argument("--execution", default=",".join(EXECUTIONS))
    parser.add_argument("--ops", default="1000,10000")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--placers", default="", help="only these (all if not given)")
    parser.add_argument("--json", default="", help="also write all rows to this file")
    options = parser.parse_args()
    rows: list[Row] = []
    for execution in options.execution.split(","):
        for name, problem in instances(execution, [int(n) for n in options.ops.split(",")], options.seeds):
            prepare(problem)
            wanted = options.placers.split(",") if options.placers else usable_placers(problem)
            here = [Row(execution, name, p, *run(p, problem, options.budget)) for p in wanted]
            show(here)
            rows += here
            if options.json:
                document: list[dict[str, Any]] = [r._asdict() for r in rows]
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(document, file, indent=1)
    summary(rows)


if __name__ == "__main__":
    main()
