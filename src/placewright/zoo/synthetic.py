"""Generated graphs with the shapes that placers meet. No weights are allocated.

``megabytes`` is the mean size of a tensor. ``ccr`` (0: leave sizes alone) scales all tensors so that copying every
edge over a link of 10 GB/s takes ``ccr`` times as long as all arithmetic at 10 Tflop/s.
"""

from __future__ import annotations

import numpy as np

from placewright.errors import InputError
from placewright.graph import OpGraph, build_graph

REFERENCE_FLOPS_PER_S = 1e13
REFERENCE_LINK_BYTES_PER_S = 1e10
_OP_TYPES = ("MatMul", "Convolution", "Add", "Relu", "Softmax")
_OP_CLASSES = ("matmul", "conv", "elementwise", "elementwise", "softmax")


def layered(
    ops: int = 1000, width: int = 0, fan_in: int = 2, megabytes: float = 1.0, seed: int = 0, ccr: float = 0.0
) -> OpGraph:
    """Layers of ``width`` ops (the square root of ``ops`` if 0), each reading ``fan_in`` ops, mostly of the last layer.

    A tenth of the edges reach further back.
    """
    _at_least(
        ops=(ops, 1), width=(width, 0), fan_in=(fan_in, 1), megabytes=(megabytes, 0), seed=(seed, 0), ccr=(ccr, 0)
    )
    rng = np.random.default_rng(seed)
    width = min(ops, width or max(1, round(ops**0.5)))
    consumers: list[list[int]] = [[] for _ in range(ops)]
    starts = (np.arange(ops) // width - 1) * width
    near = starts[:, None] + rng.integers(0, width, (ops, fan_in))
    far = (rng.random((ops, fan_in)) * np.maximum(starts, 1)[:, None]).astype(np.int64)
    inputs = np.where(rng.random((ops, fan_in)) < 0.1, far, near)
    for v in range(width, ops):
        for u in {int(u) for u in inputs[v]}:
            consumers[u].append(v)
    return _finished("layered", consumers, rng, megabytes, ccr)


def fork_join(
    blocks: int = 20, branches: int = 4, length: int = 3, megabytes: float = 1.0, seed: int = 0, ccr: float = 0.0
) -> OpGraph:
    """``blocks`` in a row, each a fork into ``branches`` chains of ``length`` ops and a join (Inception's shape)."""
    _at_least(blocks=(blocks, 1), branches=(branches, 1), length=(length, 1))
    _at_least(megabytes=(megabytes, 0), seed=(seed, 0), ccr=(ccr, 0))
    consumers: list[list[int]] = [[]]
    for _ in range(blocks):
        fork = len(consumers) - 1
        ends = []
        for _ in range(branches):
            last = fork
            for _ in range(length):
                consumers[last].append(len(consumers))
                last = len(consumers)
                consumers.append([])
            ends.append(last)
        join = len(consumers)
        for end in ends:
            consumers[end].append(join)
        consumers.append([])
    return _finished("fork-join", consumers, np.random.default_rng(seed), megabytes, ccr)


def series_parallel(
    ops: int = 200, parallel: float = 0.5, megabytes: float = 1.0, seed: int = 0, ccr: float = 0.0
) -> OpGraph:
    """Between one source and one sink: ops put on a random edge in series, or beside one with chance ``parallel``."""
    _at_least(ops=(ops, 2), parallel=(parallel, 0), megabytes=(megabytes, 0), seed=(seed, 0), ccr=(ccr, 0))
    if parallel > 1:
        raise InputError(f"'parallel' is {parallel}, expected a chance from 0 to 1")
    rng = np.random.default_rng(seed)
    edges = [(0, 1)]
    for v in range(2, ops):
        place = int(rng.integers(len(edges)))
        source, target = edges[place]
        if rng.random() < parallel:
            edges.append((source, v))
        else:
            edges[place] = (source, v)
        edges.append((v, target))
    consumers: list[list[int]] = [[] for _ in range(ops)]
    for source, target in edges:
        consumers[source].append(target)
    return _finished("series-parallel", consumers, rng, megabytes, ccr)


def chain(ops: int = 100, megabytes: float = 1.0, seed: int = 0, ccr: float = 0.0) -> OpGraph:
    """One op after another."""
    _at_least(ops=(ops, 1), megabytes=(megabytes, 0), seed=(seed, 0), ccr=(ccr, 0))
    consumers = [[v + 1] if v + 1 < ops else [] for v in range(ops)]
    return _finished("chain", consumers, np.random.default_rng(seed), megabytes, ccr)


def _finished(name: str, consumers: list[list[int]], rng: np.random.Generator, megabytes: float, ccr: float) -> OpGraph:
    n = len(consumers)
    kinds = rng.integers(0, len(_OP_TYPES), n)
    heavy = kinds < 2
    sizes = np.maximum(1.0, np.round(rng.exponential(megabytes * 1e6, n)))
    weights = np.where(heavy, np.round(rng.exponential(4e6, n)), 0.0)
    flops = np.where(heavy, rng.exponential(2e9, n), sizes / 4)
    edge_bytes = float(sizes @ np.array([len(c) for c in consumers]))
    if ccr > 0 and edge_bytes > 0:
        wanted_bytes = ccr * float(flops.sum()) / REFERENCE_FLOPS_PER_S * REFERENCE_LINK_BYTES_PER_S
        sizes = np.maximum(1.0, np.round(sizes * (wanted_bytes / edge_bytes)))
    graph, _ = build_graph(
        name=name,
        op_names=[f"{_OP_TYPES[k].lower()}_{v}" for v, k in enumerate(kinds.tolist())],
        tensors=[(v, float(sizes[v]), c) for v, c in enumerate(consumers) if c],
        op_types=[_OP_TYPES[k] for k in kinds.tolist()],
        op_classes=[_OP_CLASSES[k] for k in kinds.tolist()],
        weight_bytes=weights,
        flops=flops,
    )
    return graph


def _at_least(**limits: tuple[float, float]) -> None:
    for name, (value, least) in limits.items():
        if not value >= least or value > 10_000_000:
            raise InputError(f"'{name}' is {value}, expected a number from {least:g} to 10000000")
