"""List schedulers on random layered graphs: value over the proven bound, and seconds after warm-up.

    python benchmarks/list_schedulers.py [--large]

Graphs of 1,000 and 10,000 ops with a ratio of communication to compute of 0.4 and 4 (all edges copied once over the
link, over all arithmetic on the fastest device), on four equal devices and on four devices of two and of four kinds.
Every pair of devices has a direct link of 10 GB/s that keeps both ends busy. ``random`` draws 50 placements.
``--large`` adds 50,000 ops on eight equal devices.
"""

from __future__ import annotations

import argparse
import time
from itertools import permutations

from placewright.api import load
from placewright.budget import Budget
from placewright.cluster import Cluster, Device, DeviceKind, Link
from placewright.placers import get_placer
from placewright.placers.base import prepare
from placewright.zoo.synthetic import REFERENCE_FLOPS_PER_S, REFERENCE_LINK_BYTES_PER_S

PLACERS = ("single", "topo", "random", "heft", "peft", "cpop", "etf", "sct")
SLOWNESS = {"4 equal": (1, 1, 1, 1), "2 kinds": (1, 1, 2, 2), "4 kinds": (1, 1.5, 2, 3)}


def cluster_of(slowness: tuple[float, ...]) -> Cluster:
    """Devices slower than the reference rate by the given factors; arithmetic is all that takes time on them."""
    kinds = {s: DeviceKind(f"x{s:g}", False, REFERENCE_FLOPS_PER_S / s, 1e30) for s in slowness}
    devices = tuple(Device(f"d{i}", kinds[s].name) for i, s in enumerate(slowness))
    link = Link("link", REFERENCE_LINK_BYTES_PER_S)
    return Cluster(
        "bench", tuple(kinds.values()), devices, {}, {}, {(a.name, b.name): link for a, b in permutations(devices, 2)}
    )


def rows(ops: int, ratio: float, label: str, slowness: tuple[float, ...], seed: int) -> None:
    cells = []
    for name in PLACERS:
        problem = load(f"zoo:layered?ops={ops}&ccr={ratio}&seed={seed}", cluster=cluster_of(slowness))
        prepare(problem)
        placer = get_placer(name)
        placer.warm_up(problem)
        began = time.perf_counter()
        placement = placer.place(problem, Budget(60.0, evaluations=50), seed)
        cells.append(f"{placement.value / placement.bound:6.2f} {time.perf_counter() - began:5.2f}s")
    print(f"{ops:>6}{ratio:>5}  {label:<8}{seed:>2} " + " ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also 50,000 ops on 8 devices")
    parser.add_argument("--seeds", type=int, default=1, help="graphs per row (1)")
    options = parser.parse_args()
    print(f"{'ops':>6}{'ccr':>5}  {'devices':<7}{'seed':>3} " + " ".join(f"{p:>13}" for p in PLACERS))
    for ops in (1000, 10_000):
        for ratio in (0.4, 4.0):
            for label, slowness in SLOWNESS.items():
                for seed in range(options.seeds):
                    rows(ops, ratio, label, slowness, seed)
    if options.large:
        for ratio in (0.4, 4.0):
            rows(50_000, ratio, "8 equal", (1,) * 8, 0)


if __name__ == "__main__":
    main()
