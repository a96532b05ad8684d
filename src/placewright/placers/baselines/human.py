"""``human``: the split that people write down: layers in a row over equal accelerators, by the modules' names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.budget import Budget
from placewright.graph import BoolArray, OpGraph
from placewright.placers.base import Found, Placer, best_of
from placewright.placers.units import movable_units
from placewright.problems import Problem


class HumanPlacer(Placer):
    """What the literature calls human expert.

    Unrolled recurrent networks have one layer per device: layer ``i`` of an encoder and of a decoder share one, what
    comes before the layers goes with the first, attention and projection with the last. All other networks are cut
    into stages of equally many layers, in order. Order and memory are not looked at.
    """

    name = "human"
    summary = "layers in a row over the accelerators, as people split models (baseline)"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        units = movable_units(problem)
        devices = _accelerators(problem)
        stage = stages(problem.graph, len(devices))
        first_op = np.full(len(units.allowed), problem.n_ops, dtype=np.int64)
        np.minimum.at(first_op, units.unit_of_op, np.arange(problem.n_ops))
        wished = np.array(devices)[stage[first_op]]
        takes = units.allowed[np.arange(len(wished)), wished]
        placed = np.where(takes, wished, units.time_s.argmin(axis=1)).astype(np.int32)
        return best_of(problem, placed[units.unit_of_op][None], "the layers do not fit where people would put them")


def stages(graph: OpGraph, n_stages: int) -> NDArray[np.int64]:
    """[ops]: number of the stage of each op."""
    if any(part.startswith("step_") for path in graph.module_paths for part in path.split(".")):
        return _by_layer_number(graph, n_stages)
    for depth in (1, 2, 3):
        keys = [_module(path, depth) for path in graph.module_paths]
        if len({k.name for k in keys if k.numbers}) >= n_stages:
            break
    else:
        keys = [Module(path.split(".")[0], ()) for path in graph.module_paths]
    if len({k.name for k in keys}) < n_stages:  # names say nothing: every op is a layer of its own
        keys = [Module(str(v), ()) for v in range(graph.n_ops)]
    return _equal_numbers(graph, [k.name for k in keys], n_stages)


class Module(NamedTuple):
    """The part of a path that names a layer, and the numbers in it."""

    name: str
    numbers: tuple[int, ...]


def _module(path: str, depth: int) -> Module:
    """The path up to its ``depth``-th number; what has no numbers is named by its first part.

    >>> _module("layers.3.step_7.add", 1)
    Module(name='layers.3', numbers=(3,))
    """
    parts = path.split(".")
    at = [i for i, part in enumerate(parts) if part.isdigit()][:depth]
    return Module(".".join(parts[: at[-1] + 1]) if at else parts[0], tuple(int(parts[i]) for i in at))


def _equal_numbers(graph: OpGraph, names: list[str], n_stages: int) -> NDArray[np.int64]:
    """Modules in the order of their first ops, cut where the number of layers (forward ops with weights) says so."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    module = np.array([number[name] for name in names])
    is_layer = ~graph.is_backward & (graph.weight_bytes > 0)
    if not is_layer.any():
        is_layer = ~graph.is_backward
    count = np.bincount(module, is_layer, len(number))
    middle = np.cumsum(count) - count / 2
    return np.minimum(n_stages * middle / max(count.sum(), 1.0), n_stages - 1).astype(np.int64)[module]


def _by_layer_number(graph: OpGraph, n_stages: int) -> NDArray[np.int64]:
    modules = [_module(path, 1) for path in graph.module_paths]
    layers = dict.fromkeys(m for m in modules if m.numbers)
    sizes: dict[str, int] = {}
    for layer in layers:
        stack = layer.name.rpartition(".")[0]
        sizes[stack] = max(sizes.get(stack, 0), layer.numbers[0] + 1)
    if max(sizes.values(), default=0) >= n_stages:
        stage_of = {m.name: m.numbers[0] * n_stages // sizes[m.name.rpartition(".")[0]] for m in layers}
    else:  # more devices than layers in a stack: all stacks in a row
        stage_of = {m.name: i * n_stages // len(layers) for i, m in enumerate(layers)}
    after = _follows_layers(graph, np.array([bool(m.numbers) for m in modules]))
    rest = [_module_without_steps(path) for path in graph.module_paths]
    is_after: dict[str, bool] = {}
    for name, later in zip(rest, after.tolist(), strict=True):
        is_after[name] = is_after.get(name, False) or later
    other = [n_stages - 1 if is_after[name] else 0 for name in rest]
    return np.array([stage_of[m.name] if m.numbers else o for m, o in zip(modules, other, strict=True)], dtype=np.int64)


def _module_without_steps(path: str) -> str:
    """The module that all steps and variables of it share: the first part, and the second of an encoder or decoder."""
    parts = [part for part in path.split(".") if not part.startswith("step_")]
    return ".".join(parts[:2] if parts[0] in ("encoder", "decoder") else parts[:1])


def _follows_layers(graph: OpGraph, is_layered: BoolArray) -> BoolArray:
    """[ops]: some forward op of a numbered layer leads to it, by forward ops only."""
    after = np.zeros(graph.n_ops, dtype=np.bool_)
    forward = ~graph.is_backward
    for u, v in zip(graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True):
        if forward[v] and (is_layered[u] or after[u]):
            after[v] = True
    return after


def _accelerators(problem: Problem) -> list[int]:
    """The devices of the kind that is fastest in all, hosts apart if there are others."""
    total = np.where(problem.allowed, problem.op_device_time_s, 0.0).sum(axis=0)
    unsupported = (~problem.allowed).sum(axis=0)
    others = [d for d in range(problem.n_devices) if not problem.cluster.is_host[d]] or list(range(problem.n_devices))
    best = min(others, key=lambda d: (unsupported[d], total[d], d))
    kind = problem.cluster.device_kind
    return [d for d in others if kind[d] == kind[best]]
