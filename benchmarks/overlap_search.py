"""What search adds to list scheduling under ``overlap``: value over bound, and improvement over the best list schedule.

    python benchmarks/overlap_search.py [--quick] [--seconds 10] [--placers anneal,cross-entropy] [--seeds 3]

Layered graphs of 1000 and 10000 ops on 4 devices of 1 to 4 kinds (each op has a speed of its own on every kind), with
direct links, at two ratios of communication to compute: time of all tensors' copies, once per edge, over the mean time
of all ops. Improvement is ``1 - value / best list scheduler's``. The list schedulers are not timed; every search gets
the same budget, its own list schedules included.
"""

from __future__ import annotations

import argparse
import json
import platform

import numpy as np

from placewright.budget import Budget
from placewright.cluster import Cluster, Device, DeviceKind, Link
from placewright.evaluate import lower_bound
from placewright.placers import get_placer
from placewright.placers.base import prepare
from placewright.placers.overlap.starts import constructive_starts
from placewright.problems import Problem
from placewright.zoo.synthetic import layered

N_DEVICES = 4


def make_problem(n_ops: int, ratio: float, n_kinds: int, seed: int) -> Problem:
    """A layered graph on four devices of ``n_kinds`` kinds, communication ``ratio`` times compute."""
    graph = layered(ops=n_ops, seed=seed)
    rng = np.random.default_rng(seed)
    kinds = tuple(DeviceKind(f"kind{k}") for k in range(n_kinds))
    devices = tuple(Device(f"device{d}", f"kind{d % n_kinds}") for d in range(N_DEVICES))
    times = rng.exponential(60e-6, (n_ops, 1)) * rng.uniform(0.5, 1.5, (n_ops, n_kinds))
    times *= np.linspace(1.0, 1.0 + (n_kinds > 1), n_kinds)
    sent_bytes = float(graph.tensor_bytes[graph.edge_tensor].sum())
    link = Link("link", sent_bytes / (ratio * float(times.mean(axis=1).sum())))
    cluster = Cluster(
        "bench", kinds, devices, {}, {}, {(a.name, b.name): link for a in devices for b in devices if a is not b}
    )
    return Problem(graph, cluster, times, graph.weight_bytes, link.copy_s(graph.tensor_bytes)[:, None])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1000 ops, one seed, 2 s")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--placers", default="anneal,cross-entropy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", default="1000,10000")
    options = parser.parse_args()
    sizes = [1000] if options.quick else [int(n) for n in options.sizes.split(",")]
    seeds, seconds = (1, 2.0) if options.quick else (options.seeds, options.seconds)
    names = options.placers.split(",")
    print(f"machine: {platform.processor() or platform.machine()}, {seconds:g} s per search")
    print(f"{'ops':>6} {'ratio':>5} {'kinds':>5} {'seed':>4} {'list':>6} {'over bound':>10}", end="")
    print("".join(f" {name:>14} {'over bound':>10}" for name in names))
    rows = []
    for n_ops in sizes:
        for ratio in (0.4, 4.0):
            for n_kinds in (1, 2, 4):
                for seed in range(seeds):
                    rows.append(_one(make_problem(n_ops, ratio, n_kinds, seed + 1), names, seconds))
                    row, where = rows[-1], f"{n_ops:>6} {ratio:>5g} {n_kinds:>5} {seed + 1:>4}"
                    print(f"{where} {row['best list scheduler']:>6} {row['list over bound']:>10.3f}", end="")
                    print("".join(f" {row[m]:>13.2%} {row[m + ' over bound']:>11.3f}" for m in names), flush=True)
    for name in names:
        gains = np.array([row[name] for row in rows])
        better = float((gains > 0).mean())
        print(f"{name}: better on {better:.0%} of {len(rows)}, mean improvement {gains.mean():.2%}")
    print(json.dumps(rows))


def _one(problem: Problem, names: list[str], seconds: float) -> dict[str, float | str]:
    prepare(problem)
    start = constructive_starts(problem, Budget(120), 0)[0]
    bound = lower_bound(problem)
    row: dict[str, float | str] = {
        "best list scheduler": start.placer,
        "list over bound": start.value / bound,
    }
    for name in names:
        placer = get_placer(name)
        placer.warm_up(problem)
        placement = placer.place(problem, Budget(seconds), 0)
        row[name] = 1 - placement.value / start.value
        row[f"{name} over bound"] = placement.value / placement.bound
    return row


if __name__ == "__main__":
    main()
