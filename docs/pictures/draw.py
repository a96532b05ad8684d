"""Draws the pictures of docs/latency.md: one small model, one placement, three ways to execute it.

python docs/pictures/draw.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from placewright.cluster import Cluster, DeviceKind, Link, equal_devices
from placewright.evaluate import evaluate
from placewright.files import write_whole
from placewright.graph import build_graph
from placewright.problems import Problem
from placewright.reports.timeline import timeline_svg

HERE = Path(__file__).resolve().parent
MS = 1e-3
#        name   reads        cpu   gpu  on the gpu
OPS = (
    ("stem", (), 6.0, 2.0, True),
    ("a1", ("stem",), 6.0, 2.0, True),
    ("a2", ("a1",), 6.0, 2.0, True),
    ("b1", ("stem",), 3.0, 2.5, False),
    ("b2", ("b1",), 3.0, 2.5, False),
    ("c", ("stem",), 4.0, 1.5, True),
    ("join", ("a2", "b2", "c"), 4.0, 1.5, True),
    ("head", ("join",), 2.0, 1.5, False),
)


def example() -> tuple[Problem, np.ndarray]:
    """A fork of three branches on a CPU and a GPU; every copy takes 1 ms, a segment's start 0.4 ms."""
    index = {name: i for i, (name, *_) in enumerate(OPS)}
    readers: dict[str, list[int]] = {name: [] for name in index}
    for name, reads, *_ in OPS:
        for r in reads:
            readers[r].append(index[name])
    graph, _ = build_graph("example", list(index), [(index[n], 1e6, r) for n, r in readers.items() if r])
    link = Link("bus", 1e9, 0.0)
    cluster = Cluster(
        name="pair",
        kinds=(
            DeviceKind("cpu", is_host=True, segment_overhead_s=0.4 * MS),
            DeviceKind("gpu", segment_overhead_s=0.4 * MS),
        ),
        devices=(*equal_devices("cpu", 1), *equal_devices("gpu", 1)),
        to_host={"gpu0": link},
        from_host={"gpu0": link},
    )
    times = np.array([[cpu, gpu] for _, _, cpu, gpu, _ in OPS]) * MS
    problem = Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=times,
        memory_bytes=np.zeros(graph.n_ops),
        tensor_copy_s=np.full((graph.n_tensors, 1), 1.0 * MS),
    )
    return problem, np.array([int(on_gpu) for *_, on_gpu in OPS], dtype=np.int32)


def main() -> None:
    """Write the three pictures on one time scale."""
    problem, device = example()
    judged = {e: problem.with_options(execution=e) for e in ("overlap", "sequential", "calls")}
    values = {e: evaluate(p, device).value for e, p in judged.items()}
    for execution, value in values.items():
        picture = timeline_svg(judged[execution], device, span_s=max(values.values()))
        write_whole(HERE / f"{execution}.svg", picture)
        print(f"{execution}: {value * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
