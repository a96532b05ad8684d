"""Twin of ``core/judge/sequential``."""

from __future__ import annotations

from placewright.evaluate.reference._copies import consumers, copy_time, direct_link, down_link, op_time, up_link
from placewright.problems import Problem


def sequential_value_and_segments(problem: Problem, device: list[int]) -> tuple[float, int]:
    """The sum of all times, copies and overheads, and the number of segments."""
    total = sum(op_time(problem, v, d) for v, d in enumerate(device))
    for t, u in enumerate(problem.graph.tensor_producer.tolist()):
        targets = {device[v] for v in consumers(problem, t)} - {device[u]}
        direct = {target: direct_link(problem, device[u], target) for target in targets}
        if any(link is None for link in direct.values()):
            total += copy_time(problem, t, up_link(problem, device[u]))
        for target, link in direct.items():
            total += copy_time(problem, t, link if link is not None else down_link(problem, target))
    sequence = min((_segments_from(problem, device, first) for first in range(problem.n_devices)), key=len)
    kinds = [problem.cluster.kind_of(d) for d in problem.cluster.devices]
    return total + sum(kinds[d].segment_overhead_s for d in sequence), len(sequence)


def _segments_from(problem: Problem, device: list[int], first: int) -> list[int]:
    """Devices in the order in which they run segments, starting with ``first`` if it has anything to run."""
    g = problem.graph
    inputs = {
        v: {int(g.tensor_producer[t]) for t in g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]]}
        for v in range(problem.n_ops)
    }
    done: set[int] = set()
    sequence: list[int] = []

    def ready_on(d: int) -> list[int]:
        return [v for v in inputs if v not in done and device[v] == d and inputs[v] <= done]

    current = first
    if not ready_on(first):
        return [0] * (problem.n_ops + 1)  # not a way to start: longer than any real sequence
    while len(done) < problem.n_ops:
        while ready := ready_on(current):
            done.update(ready)
        sequence.append(current)
        counts = [len(ready_on(d)) for d in range(problem.n_devices)]
        current = counts.index(max(counts))
    return sequence
