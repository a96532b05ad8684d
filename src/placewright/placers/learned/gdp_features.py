"""What GDP's policy knows about ops, devices and pairs of them. Nothing depends on how many of each there are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import FloatArray, sums_by_index
from placewright.op_classes import OP_CLASSES
from placewright.placers.learned.features import SHAPE_WIDTH, Vocabulary, mean_types, output_shapes, work
from placewright.placers.learned.groups import GroupGraph
from placewright.placers.overlap.list_costs import downward_ranks, list_costs
from placewright.problems import Problem

_CLASSES = Vocabulary(tuple(OP_CLASSES))
_WAVES = (1, 2, 4, 8)
_SLOTS = 8  # devices of a kind that have a column of their own
_MOST_SLOWNESS = 30.0  # logarithm: ten million million times
WORK_WIDTH = 5 + _CLASSES.width + 2 + 4 + 5 + 4 * len(_WAVES)
DEVICE_WIDTH = 8 + 2 * len(_WAVES) + _SLOTS
PAIR_WIDTH = 2


class Features(NamedTuple):
    """Plain arrays, single precision."""

    node: NDArray[np.float32]  # [groups, node_width]
    device: NDArray[np.float32]  # [devices, DEVICE_WIDTH]
    pair: NDArray[np.float32]  # [groups, devices, PAIR_WIDTH], shares of the whole: sums over blocks make sense


def node_width(vocabulary: Vocabulary, *, with_work: bool) -> int:
    """Number of columns of ``Features.node``."""
    return vocabulary.width + SHAPE_WIDTH + (WORK_WIDTH if with_work else 0)


def features(problem: Problem, groups: GroupGraph, vocabulary: Vocabulary, *, with_work: bool) -> Features:
    """All features; without work there are op types and output shapes only, as published."""
    parts = [mean_types(problem.graph.op_types, groups, vocabulary), output_shapes(problem.graph, groups) / 10]
    if with_work:
        parts += [
            work(problem, groups), mean_types(problem.graph.op_classes, groups, _CLASSES), _degrees(groups),
            _shares(problem, groups), _positions(problem, groups),
        ]  # fmt: skip
    node = np.concatenate(parts, axis=1).astype(np.float32)
    return Features(node, _devices(problem, groups).astype(np.float32), _pairs(groups).astype(np.float32))


def _waves(share: FloatArray) -> FloatArray:
    """[n, 2 x waves]: a share of a whole as sines and cosines, so that likeness is a product."""
    angle = np.pi * share[:, None] * np.array(_WAVES)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def _degrees(groups: GroupGraph) -> FloatArray:
    n = groups.n_groups
    return np.log1p(np.stack([np.bincount(groups.edges[:, side], minlength=n) for side in (0, 1)], axis=1)) / 3


def _shares(problem: Problem, groups: GroupGraph) -> FloatArray:
    """Logarithms of a group's time, memory and copies as shares of the whole model's."""
    g, n = problem.graph, groups.n_groups
    copies = list_costs(problem).mean_copy_s
    sent = sums_by_index(groups.group_of_op[g.tensor_producer], copies, n)
    least = groups.time_s.min(axis=1)
    whole = float(least.sum()) or 1.0
    memory = groups.memory_bytes / max(float(groups.memory_bytes.sum()), 1.0)
    ratio = np.log1p(sent / np.maximum(least, 1e-9 * whole)) / 5
    return np.stack([_log_share(least / whole), _log_share(memory), _log_share(sent / whole), ratio], axis=1)


def _log_share(share: FloatArray) -> FloatArray:
    """From 0 (a billionth or nothing) to 1 (all)."""
    return np.clip(1 + np.log10(np.maximum(share, 1e-9)) / 9, 0.0, 1.0)


def _positions(problem: Problem, groups: GroupGraph) -> FloatArray:
    """Where a group lies: in the order, in the work done before it, and on the longest ways from and to the ends."""
    costs, n = list_costs(problem), groups.n_groups
    upward, downward = costs.upward_s, downward_ranks(problem)
    longest = float(upward.max()) or 1.0
    up, down = upward[groups.first_op] / longest, downward[groups.first_op] / longest
    least = groups.time_s.min(axis=1)
    done = (np.cumsum(least) - least / 2) / (float(least.sum()) or 1.0)
    index = (np.arange(n) + 0.5) / n
    plain = np.stack([index, done, up, down, up + down], axis=1)
    return np.concatenate([plain, _waves(index), _waves(done)], axis=1)


def _devices(problem: Problem, groups: GroupGraph) -> FloatArray:
    """Speed, memory, links, and which one it is among its equals; how much copying there is at all."""
    n = problem.n_devices
    cluster, a = problem.cluster, problem.arrays
    finite = np.where(groups.allowed, groups.time_s, 0.0).sum(axis=0)
    least = np.where(groups.allowed, groups.time_s.min(axis=1)[:, None], 0.0).sum(axis=0)
    # Against the best device of each group; there may be one that takes no time at all.
    slowness = np.minimum(np.log(np.maximum(finite, 1e-300)) - np.log(np.maximum(least, 1e-300)), _MOST_SLOWNESS) / 5
    whole_s = float(groups.time_s.min(axis=1).sum()) or 1.0
    needed = max(float(groups.memory_bytes.sum()), 1.0)
    room = np.minimum(a.memory_limit_bytes / needed, 4.0) / 4
    kind = cluster.device_kind
    rank = np.array([int((kind[:d] == kind[d]).sum()) for d in range(n)])
    count = np.array([int((kind == kind[d]).sum()) for d in range(n)])
    copying = np.log1p(float(list_costs(problem).mean_copy_s.sum()) / whole_s) / 3
    plain = np.stack(
        [
            cluster.is_host.astype(float), slowness, 1 - groups.allowed.mean(axis=0), room, (rank + 0.5) / count,
            np.log(count) / 3, np.full(n, np.log(n) / 3), np.full(n, copying),
        ],
        axis=1,
    )  # fmt: skip
    slots = (rank[:, None] == np.arange(_SLOTS)).astype(float)
    return np.concatenate([plain, _waves((rank + 0.5) / count), slots], axis=1)


def _pairs(groups: GroupGraph) -> FloatArray:
    """A group's time and memory on each device as shares of all; what is not allowed is masked elsewhere."""
    least = groups.time_s.min(axis=1)
    time = np.where(groups.allowed, groups.time_s, 0.0) / (float(least.sum()) or 1.0)
    memory = groups.memory_bytes[:, None] / max(float(groups.memory_bytes.sum()), 1.0)
    return np.stack([np.minimum(time, 10.0), np.broadcast_to(memory, time.shape)], axis=2)
