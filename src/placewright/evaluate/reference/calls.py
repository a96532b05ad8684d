"""Twin of ``core/judge/calls``."""

from __future__ import annotations

import math

from placewright.evaluate.reference._copies import (
    consumers,
    copy_time,
    direct_link,
    down_link,
    is_host,
    op_time,
    outputs,
    up_link,
)
from placewright.problems import Problem

Node = tuple[int, int]  # (device, piece) of an accelerator, (-1, op) of the host pool


def calls_value(problem: Problem, device: list[int]) -> float:
    """Finish of the last call or host op; infinite if calls wait for each other in a circle."""
    node_of = _nodes(problem, device)
    members: dict[Node, list[int]] = {}
    for v, node in enumerate(node_of):
        members.setdefault(node, []).append(v)
    reads = {node: _outside_inputs(problem, node_of, ops) for node, ops in members.items()}
    finish: dict[Node, float] = {}
    while len(finish) < len(members):
        ready = [
            n for n in members if n not in finish and all(node_of[_producer(problem, t)] in finish for t in reads[n])
        ]
        if not ready:
            return math.inf
        for node in ready:
            start = max((finish[node_of[_producer(problem, t)]] for t in reads[node]), default=0.0)
            finish[node] = start + _duration(problem, device, node_of, node, members[node], reads[node])
    return max(finish.values())


def _nodes(problem: Problem, device: list[int]) -> list[Node]:
    nodes: list[Node] = [(-1, v) for v in range(problem.n_ops)]
    for d in range(problem.n_devices):
        if is_host(problem, d):
            continue
        times_left: list[int] = []
        for v in range(problem.n_ops):
            inside = device[v] == d
            g = problem.graph
            before = [int(g.tensor_producer[t]) for t in g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]]]
            times_left.append(max([times_left[u] + (inside and device[u] != d) for u in before] + [int(inside)]))
            if inside:
                nodes[v] = (d, times_left[v])
    return nodes


def _producer(problem: Problem, tensor: int) -> int:
    return int(problem.graph.tensor_producer[tensor])


def _outside_inputs(problem: Problem, node_of: list[Node], ops: list[int]) -> set[int]:
    g = problem.graph
    read = {int(t) for v in ops for t in g.input_tensor[g.input_ptr[v] : g.input_ptr[v + 1]]}
    return {t for t in read if node_of[_producer(problem, t)] != node_of[ops[0]]}


def _duration(
    problem: Problem, device: list[int], node_of: list[Node], node: Node, ops: list[int], reads: set[int]
) -> float:
    d = device[ops[0]]
    total = sum(op_time(problem, v, d) for v in ops)
    if is_host(problem, d):
        return total
    for t in reads:
        source = device[_producer(problem, t)]
        link = direct_link(problem, source, d) if source != d else None
        total += copy_time(problem, t, link if link is not None else down_link(problem, d))
    for u in ops:
        for t in outputs(problem, u):
            outside = [v for v in consumers(problem, t) if node_of[v] != node]
            links = {device[v]: direct_link(problem, d, device[v]) if device[v] != d else None for v in outside}
            if any(link is None for link in links.values()):
                total += copy_time(problem, t, up_link(problem, d))
            total += sum(copy_time(problem, t, k) for target, k in links.items() if k and is_host(problem, target))
    return total
