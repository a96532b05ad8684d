"""Twin of ``core/judge/pipeline``."""

from __future__ import annotations

from itertools import permutations

from placewright.evaluate.reference._copies import consumers, copy_time, direct_link, down_link, op_time, up_link
from placewright.problems import Problem, contiguity_edges


def pipeline_value(problem: Problem, device: list[int], replicas: list[int] | None = None) -> float:
    """The largest load, or largest forward plus largest backward load under ``gpipe``."""
    share = replicas or [1] * problem.n_devices
    sync = [_sync(problem, device, d, share[d]) for d in range(problem.n_devices)]
    forward = [_load(problem, device, d, {False}) / r for d, r in enumerate(share)]
    backward = [_load(problem, device, d, {True}) / r + sync[d] for d, r in enumerate(share)]
    both = [_load(problem, device, d, {False, True}) / r + sync[d] for d, r in enumerate(share)]
    return max(forward) + max(backward) if problem.schedule == "gpipe" else max(both)


def _sync(problem: Problem, device: list[int], d: int, replicas: int) -> float:
    if problem.sync_s is None:
        return 0.0
    kind = int(problem.cluster.device_kind[d])
    total = sum(float(problem.sync_s[v, kind]) for v in range(problem.n_ops) if device[v] == d)
    return 2 * (replicas - 1) / replicas * total


def _load(problem: Problem, device: list[int], d: int, parts: set[bool]) -> float:
    backward = problem.graph.is_backward.tolist()
    compute = sum(op_time(problem, v, d) for v in range(problem.n_ops) if device[v] == d and backward[v] in parts)
    copies = 0.0
    for t, u in enumerate(problem.graph.tensor_producer.tolist()):
        if backward[u] not in parts:
            continue
        source, targets = device[u], {device[v] for v in consumers(problem, t)} - {device[u]}
        direct = {target: direct_link(problem, source, target) for target in targets}
        if d == source:
            if any(link is None for link in direct.values()):
                copies += copy_time(problem, t, up_link(problem, d))
            copies += sum(copy_time(problem, t, k) for k in direct.values() if k and k.busy in ("both", "sender"))
        elif d in targets:
            link = direct[d]
            if link is None:
                copies += copy_time(problem, t, down_link(problem, d))
            elif link.busy in ("both", "receiver"):
                copies += copy_time(problem, t, link)
    return max(compute, copies) if problem.communication == "overlapped" else compute + copies


def chain_exists(problem: Problem, device: list[int]) -> bool:
    """Try every order of the used devices: does one make all edges run forwards? For few devices only."""
    used = sorted(set(device))
    source, target = contiguity_edges(problem)
    edges = {(device[u], device[v]) for u, v in zip(source.tolist(), target.tolist(), strict=True)}
    return any(all(order.index(s) <= order.index(d) for s, d in edges) for order in permutations(used))
