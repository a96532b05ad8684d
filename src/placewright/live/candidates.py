"""Placements that people write by hand, as candidates next to what a placer finds."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placewright.live import METADATA
from placewright.live.dispatch import DISK, STREAMED
from placewright.live.module_graph import LiveModel
from placewright.problems import Problem


def by_hand(problem: Problem) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Name and device of every op: single devices; so many layers, or so many of one block of them, off the GPU."""
    names = problem.cluster.device_names
    whole = [n for n in names if not n.endswith(STREAMED) and n != DISK]
    for name in whole:
        yield f"all on {name}", everything_on(problem, name)
    away = [n for n in names if n == "cpu" or n.endswith(STREAMED)]
    for gpu in [n for n in whole if n != "cpu"]:
        for other in [n for n in away if n == "cpu" or n.removesuffix(STREAMED) == gpu]:
            for what, groups in [("whole layers", layers(problem)), *blocks(problem).items()]:
                for is_last in (True, False):
                    device = fewest_away(problem, gpu, other, groups if is_last else groups[::-1])
                    if device is not None:
                        yield f"{what} of the {'last' if is_last else 'first'} layers on {other}", device


def everything_on(problem: Problem, name: str) -> NDArray[np.int32]:
    """All ops on one device, as far as rules allow."""
    at = problem.cluster.device_names.index(name)
    return np.where(problem.allowed[:, at], at, problem.allowed.argmax(axis=1)).astype(np.int32)


def layers(problem: Problem) -> list[list[int]]:
    """Ops of each repeated layer, in order."""
    live: LiveModel = problem.graph.metadata[METADATA]
    found: dict[str, list[int]] = {}
    for v, path in enumerate(problem.graph.module_paths):
        stem = _layer(path)
        if stem and path in {*live.units.paths, *live.units.home_of.values()}:
            found.setdefault(stem, []).append(v)
    return list(found.values())


def blocks(problem: Problem) -> dict[str, list[list[int]]]:
    """The heaviest blocks of layers (experts, feed-forward): by what follows the layer's number, each layer's ops."""
    weights: dict[str, float] = {}
    found: dict[str, dict[str, list[int]]] = {}
    for v, path in enumerate(problem.graph.module_paths):
        stem = _layer(path)
        inner = path[len(stem) + 1 :]
        if stem and inner:
            weights[inner] = weights.get(inner, 0.0) + float(problem.graph.weight_bytes[v])
            found.setdefault(inner, {}).setdefault(stem, []).append(v)
    heaviest = sorted(weights, key=lambda b: -weights[b])[:2]
    return {b: list(found[b].values()) for b in heaviest if weights[b] > 0}


def fewest_away(problem: Problem, gpu: str, other: str, groups: list[list[int]]) -> NDArray[np.int32] | None:
    """Everything on ``gpu`` but as few of the groups, from the end, as it takes to fit; ``None`` if none are enough."""
    names = problem.cluster.device_names
    device, target = everything_on(problem, gpu), names.index(other)
    limit = problem.cluster.devices[names.index(gpu)].memory_bytes
    for count in range(len(groups) + 1):
        used = problem.memory_bytes[device == names.index(gpu)].sum()
        if used <= limit:
            return device if count else None
        if count < len(groups):
            group = groups[-1 - count]
            if not problem.allowed[group, target].any():
                return None
            for v in group:
                same = problem.group_of_op == problem.group_of_op[v]
                if problem.allowed[same, target].all():
                    device[same] = target
    return None


def _layer(path: str) -> str:
    match = re.match(r"(.*?\.\d+)(?:\.|$)", path)
    return match[1] if match else ""
