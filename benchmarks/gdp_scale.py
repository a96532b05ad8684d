"""One pass of GDP's network at full size, on each device there is: part ``scale`` of benchmarks/gdp.py."""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

from rows import Row, Rows

from placewright.api import load
from placewright.costs.machine import processor


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
    larger = {"width": 128, "inner_width": 512, "segment": 256}
    for method, options in {"default": {}, "width 128": larger}.items():
        settings = settings_for("ours", scales=(0,), **options)
        vocabulary = Vocabulary.of([problem.graph])
        graph = Pupil(problem, SimulatedRewards(problem), settings, vocabulary).graphs[0]
        times = -(-80_000 // len(graph.node))
        large = GraphTensors(
            graph.node.repeat(times, 1)[:80_000], torch.randint(80_000, (2, 320_000)), graph.device,
            torch.arange(80_000), torch.ones(80_000), graph.block.repeat(times, 1)[:80_000],
            graph.pair.repeat(times, 1, 1)[:80_000], graph.allowed.repeat(times, 1)[:80_000],
            graph.work.repeat(times)[:80_000],
        )  # fmt: skip
        for where in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
            policy = new_policy(settings, vocabulary, problem.n_devices, 0).to(where)
            for name, tensors in {"gnmt-8": graph, "80,000 nodes": large}.items():
                run = {"part": "scale", "model": name, "cluster": where, "method": method, "seed": 0}
                if rows.wants(**run):
                    moved = GraphTensors(*(t.to(where) for t in tensors))
                    rows.add({**run, **_timed_pass(policy, join([moved], settings.segment), where)})


def _timed_pass(policy: Any, joined: Any, where: str) -> Row:
    import torch

    seconds = []
    if where == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        for _ in range(6):
            began = time.perf_counter()
            policy(joined).sum().item()  # waits for the GPU
            seconds.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() if where == "cuda" else 1024 * resource.getrusage(0).ru_maxrss
    device = torch.cuda.get_device_name() if where == "cuda" else processor()["name"]
    return {
        "nodes": len(joined.slot), "seconds": statistics.median(seconds[1:]), "first pass": seconds[0],
        "gib": peak / 2**30, "device": device, "threads": torch.get_num_threads(), "torch": torch.__version__,
    }  # fmt: skip
