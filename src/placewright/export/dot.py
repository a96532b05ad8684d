"""Graphviz: a node per op, or per segment where there are too many ops to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placewright.export.base import Exported, colour, devices_of, segments_of
from placewright.placement import Placement
from placewright.text import bytes_text, shown, time_text

MOST_OPS = 400


def dot(placement: Placement, output: Path) -> Exported:
    """Nodes are coloured by device; copies between devices are drawn bold, with their bytes."""
    problem, device = placement.problem, devices_of(placement)
    by_segment = problem.n_ops > MOST_OPS
    node_of = segments_of(placement) if by_segment else np.arange(problem.n_ops, dtype=np.int32)
    lines = ["digraph placement {", "  rankdir=TB;", '  node [shape=box, style="filled,rounded", fontcolor=white];']
    names, times = problem.cluster.device_names, problem.op_time_s[:, problem.cluster.device_kind]
    members = np.split(np.argsort(node_of, kind="stable"), np.cumsum(np.bincount(node_of))[:-1])
    device_of_node = [int(device[ops[0]]) for ops in members]
    for node, (ops, d) in enumerate(zip(members, device_of_node, strict=True)):
        first = shown(problem.graph.op_names[ops[0]])
        what = f"{len(ops)} ops from {first}" if by_segment else first
        took = time_text(float(times[ops, d].sum()), problem.time_unit)
        label = "\n".join((what, f"{shown(names[d])}, {took}"))
        lines.append(f"  n{node} [label={quoted(label)}, fillcolor={quoted(colour(d))}];")
    for (source, target), size in _edges(placement, node_of).items():
        crosses = device_of_node[source] != device_of_node[target]
        style = f" [penwidth=2, label={quoted(bytes_text(size))}]" if crosses else ""
        lines.append(f"  n{source} -> n{target}{style};")
    text = "\n".join([*lines, "}", ""])
    note = f"{problem.n_ops} ops are drawn as their {len(members)} segments" if by_segment else ""
    return Exported({output: text.encode()}, (note,) if note else ())


def quoted(text: str) -> str:
    """A quoted string of DOT, in which nothing is special.

    >>> quoted('a "b"')
    '"a \\\\"b\\\\""'
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _edges(placement: Placement, node_of: NDArray[np.int32]) -> dict[tuple[int, int], float]:
    """Bytes between nodes; a tensor counts once for every node that reads it."""
    graph = placement.problem.graph
    sizes: dict[tuple[int, int], float] = {}
    seen: set[tuple[int, int]] = set()
    for tensor, reader in zip(graph.edge_tensor.tolist(), node_of[graph.consumer_op].tolist(), strict=True):
        maker = int(node_of[graph.tensor_producer[tensor]])
        if maker != reader and (tensor, reader) not in seen:
            seen.add((tensor, reader))
            sizes[maker, reader] = sizes.get((maker, reader), 0.0) + float(graph.tensor_bytes[tensor])
    return sizes
