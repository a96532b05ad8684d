"""Every placer on generated problems of all four execution models, at one budget: value over bound, seconds, who wins.

    python benchmarks/latency.py [--budget 10] [--execution overlap] [--ops 1000,10000] [--seeds 2] [--first-seed 1]
        [--only REGEX] [--placers auto,anneal] [--json FILE] [--stop-after 170]

Problems are layered random graphs. ``ccr`` is the time of all copies over all edges divided by the time of all ops
(their mean over kinds): 0.4 is compute-bound, 4 communication-bound. Machines are 4 equal devices, and 2, 3 and 4
devices of unlike kinds, each kind fast at other ops, around host memory. Seconds are wall time after warm-up.

A long comparison can be made in parts: what ``--json`` holds is not run again, ``--stop-after`` begins nothing after
so many seconds, and the table is that of all rows the file holds. ``--only`` chooses instances by their names.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from placewright.budget import Budget
from placewright.cluster import Cluster, DeviceKind, Link, equal_devices
from placewright.placers import get_placer, get_placer_class, placer_names
from placewright.placers.base import prepare
from placewright.placers.registry import is_installed
from placewright.problems import EXECUTIONS, Execution, Problem
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


def instance(
    ops: int, ccr: float, machine_name: str, seed: int, execution: Execution, contiguous: bool = True
) -> Problem:
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
        contiguous=contiguous,
    ).for_objective(None, execution)


def instances(execution: Execution, sizes: list[int], seeds: range) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Names, and how to make the problem: most parts of a long comparison need few of them."""
    for ops in sizes:
        for ccr in (0.4, 4.0):
            for name in MACHINES:
                for seed in seeds:
                    make = partial(instance, ops, ccr, name, seed, execution)
                    yield f"{ops} ops, ccr {ccr:g}, {name}, seed {seed}", make
                    if execution == "pipeline" and seed == seeds.start:
                        yield f"{ops} ops, ccr {ccr:g}, {name}, seed {seed}, non-contiguous", partial(make, False)


def usable_placers(execution: str) -> list[str]:
    names = [n for n in placer_names() if n != "expert" and is_installed(get_placer_class(n))]
    return [n for n in names if execution in get_placer_class(n).executions]


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
    groups: dict[tuple[str, str], list[Row]] = {}
    for r in rows:
        groups.setdefault((r.execution, r.instance), []).append(r)
    print("\nexecution     instances   auto best or tied   anneal better than the best list scheduler")
    for execution in dict.fromkeys(e for e, _ in groups):
        chosen = [{r.placer: r.value for r in g} for (e, _), g in groups.items() if e == execution]
        tied = [v["auto"] <= min(v.values()) * (1 + TIE) for v in chosen if "auto" in v]
        wins = [
            v["anneal"] < min(v[n] for n in LISTS if n in v)
            for v in chosen
            if "anneal" in v and any(n in v for n in LISTS)
        ]
        print(f"{execution:<14}{len(chosen):>9}{_share(tied):>20}{_share(wins):>45}")
    for (execution, instance_name), group in groups.items():
        best = min(group, key=lambda r: r.value)
        auto = next((r for r in group if r.placer == "auto"), best)
        if auto.value > best.value * (1 + TIE):
            behind = f"auto {auto.value / best.value - 1:.2%} behind {best.placer}"
            print(f"    {execution}: {instance_name}: {behind}")


def _share(hits: list[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" if hits else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each placer on each instance")
    parser.add_argument("--execution", default=",".join(EXECUTIONS))
    parser.add_argument("--ops", default="1000,10000")
    parser.add_argument("--seeds", type=int, default=1, help="how many graphs of each sort")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a regular expression that instances' names must hold")
    parser.add_argument("--placers", default="", help="only these (all if not given)")
    parser.add_argument("--json", default="", help="a file of rows to add to")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="seconds after which nothing is begun")
    options = parser.parse_args()
    file = Path(options.json) if options.json else None
    rows = [Row(**row) for row in json.loads(file.read_text("utf-8"))] if file and file.exists() else []
    known = {(r.execution, r.instance, r.placer) for r in rows}
    sizes = [int(n) for n in options.ops.split(",")]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    until = time.monotonic() + options.stop_after
    for execution in EXECUTIONS:
        if execution not in options.execution.split(","):
            continue
        for name, make in instances(execution, sizes, seeds):
            if not re.search(options.only, name):
                continue
            wanted = [p for p in usable_placers(execution) if not options.placers or p in options.placers.split(",")]
            missing = [p for p in wanted if (execution, name, p) not in known]
            if missing and time.monotonic() < until:
                problem = make()
                prepare(problem)
                for placer in missing:
                    if time.monotonic() < until:
                        rows.append(Row(execution, name, placer, *run(placer, problem, options.budget)))
                        if file:
                            file.write_text(json.dumps([r._asdict() for r in rows], indent=1), "utf-8")
                show([r for r in rows if (r.execution, r.instance) == (execution, name)])
    summary(rows)


if __name__ == "__main__":
    main()
