"""Sequential latency by minimum cuts on generated problems: seconds, value and proven gap.

    python benchmarks/mincut.py [--budget SECONDS] [--ops 1000,10000,50000] [--only TEXT]

Graphs are ``zoo:layered``. Costs are ``modelled`` (rates of unlike devices; the fastest device takes nearly everything)
or ``mixed`` (every op has a random time on every device, as large as the copies: the hard case for cuts). ``memory``
leaves room for 30% of all weights on every device but the host; ``overhead`` charges 5 to 200 microseconds per segment.
Seconds are after warm-up, problem compiled, the best single device beside it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from placewright.api import load
from placewright.budget import Budget
from placewright.cluster import Cluster, Device, DeviceKind, Link
from placewright.placers import get_placer
from placewright.placers.base import prepare, single_device_values
from placewright.problems import Problem

KINDS = (
    DeviceKind("cpu", True, 0.5e12, 90e9, 2e-6, 5e-6),
    DeviceKind("npu", False, 11e12, 70e9, 15e-6, 200e-6),
    DeviceKind("gpu", False, 4e12, 90e9, 10e-6, 50e-6),
    DeviceKind("dsp", False, 1e12, 40e9, 4e-6, 20e-6),
)
LINKS = {"npu": Link("npu", 20e9, 40e-6), "gpu": Link("gpu", 30e9, 10e-6), "dsp": Link("dsp", 10e9, 5e-6)}
MEMORY_SHARE = 0.3
MIXED_S = 1e-4  # mean time of an op; a copy of one megabyte takes about as long


def cluster_of(n_devices: int, *, overhead: bool, memory_bytes: float) -> Cluster:
    kinds = tuple(k if overhead else replace(k, segment_overhead_s=0.0) for k in KINDS[:n_devices])
    devices = tuple(Device(k.name, k.name, np.inf if k.is_host else memory_bytes) for k in kinds)
    links = {k.name: LINKS[k.name] for k in kinds if not k.is_host}
    return Cluster(f"{n_devices} unlike devices", kinds, devices, links, links)


def problem_of(ops: int, n_devices: int, costs: str, *, memory: bool, overhead: bool) -> Problem:
    cluster = cluster_of(n_devices, overhead=overhead, memory_bytes=np.inf)
    problem = load(f"zoo:layered?ops={ops}", cluster=cluster, execution="sequential")
    if memory:
        room = MEMORY_SHARE * float(problem.memory_bytes.sum())
        problem = problem.with_options(cluster=cluster_of(n_devices, overhead=overhead, memory_bytes=room))
    if costs == "mixed":
        rng = np.random.default_rng(0)
        problem = problem.with_options(op_time_s=rng.exponential(MIXED_S, problem.op_time_s.shape))
    prepare(problem)
    return problem


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", type=float, default=30.0)
    parser.add_argument("--ops", default="1000,10000,50000")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    placer = get_placer("mincut")
    placer.warm_up(problem_of(100, 2, "mixed", memory=False, overhead=False))
    print(f"{'problem':<34}{'alone s':>11}{'value s':>11}{'gap %':>9}{'status':>10}{'seconds':>9}{'segments':>10}")
    for ops in map(int, arguments.ops.split(",")):
        for n_devices in (2, 4) if ops <= 10_000 else (2,):
            for costs in ("modelled", "mixed"):
                for limits in ("", " memory", " overhead", " memory overhead"):
                    name = f"{ops} ops, {n_devices} devices, {costs}{limits}"
                    if arguments.only not in name:
                        continue
                    problem = problem_of(
                        ops, n_devices, costs, memory="memory" in limits, overhead="overhead" in limits
                    )
                    began = time.perf_counter()
                    placement = placer.place(problem, Budget(arguments.budget), 0)
                    seconds = time.perf_counter() - began
                    alone = min(single_device_values(problem).values())
                    segments = placement.evaluation.segments if placement.evaluation else 0
                    print(
                        f"{name:<44}{alone:>9.4f}{placement.value:>10.5f}{100 * placement.gap:>9.4f}"
                        f"{placement.status:>10}{seconds:>9.3f}{segments:>9}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
