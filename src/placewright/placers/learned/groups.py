"""The graph a policy sees: groups of ops that it places together, and the edges between them."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.errors import InputError, suggestion
from placewright.graph import BoolArray, FloatArray, IntArray, sums_by_index
from placewright.placers.units import movable_units
from placewright.problems import Problem
from placewright.reductions.colocate import colocation_groups, op_pairs
from placewright.text import shown

Rule = Literal["none", "paper", "released"]


class GroupGraph(NamedTuple):
    """Groups, numbered in the order of their first ops."""

    group_of_op: IntArray  # [ops]
    first_op: NDArray[np.int64]  # [groups]
    edges: NDArray[np.int64]  # [edges, 2]: distinct (producer, consumer) pairs
    allowed: BoolArray  # [groups, devices]
    time_s: FloatArray  # [groups, devices], infinite where the group may not be
    memory_bytes: FloatArray  # [groups]

    @property
    def n_groups(self) -> int:
        return len(self.memory_bytes)

    @property
    def n_devices(self) -> int:
        return self.allowed.shape[1]


def group_graph(problem: Problem, rule: Rule = "none") -> GroupGraph:
    """Group a problem's ops: those that must share a device, and what HSDAG's co-location ``rule`` adds to them.

    A group of the rule that no device takes as a whole falls back into the groups that the problem itself asks for.
    """
    if rule not in get_args(Rule):
        raise InputError(f"unknown co-location rule '{shown(rule)}'; {suggestion(rule, get_args(Rule))}")
    unit = movable_units(problem).unit_of_op.astype(np.int64)
    label = unit
    if rule != "none":
        label = _united(unit, colocation_groups(problem.graph, rule).label.astype(np.int64))
        usable: BoolArray = np.asarray(_takes_all(problem, label).any(axis=1))
        label = np.where(usable[label], label, label.max() + 1 + unit)
    _, first, dense = np.unique(label, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    group = rank[dense].astype(np.int32)
    n = len(first)
    pairs = group[op_pairs(problem.graph)].astype(np.int64)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]].reshape(-1, 2), axis=0)
    time = np.zeros((n, problem.n_devices))
    np.add.at(time, group, problem.op_device_time_s)
    memory = sums_by_index(group, problem.memory_bytes, n)
    return GroupGraph(group, np.sort(first), edges, np.isfinite(time), time, memory)


def _united(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Label ops so that those equal by either labelling are equal, closed transitively."""
    label = np.arange(len(a))
    while True:
        before = label
        for classes in (a, b):
            least = np.full(int(classes.max()) + 1, len(a))
            np.minimum.at(least, classes, label)
            label = least[classes]
        if (label == before).all():
            return label


def _takes_all(problem: Problem, label: NDArray[np.int64]) -> BoolArray:
    takes = np.ones((int(label.max()) + 1, problem.n_devices), dtype=np.bool_)
    np.logical_and.at(takes, label, problem.allowed)
    return takes


def repaired(graph: GroupGraph, rows: IntArray, limit_bytes: FloatArray) -> IntArray:
    """Move groups off over-full devices, so that what is resident fits wherever a simple rule can make it fit.

    ``rows`` [batch, groups] are allowed devices. From each over-full device, later groups go first, each to the device
    with the most room among those that take it. Rows that fit already are left as they are.
    """
    if np.isinf(limit_bytes).all() or graph.memory_bytes.sum() <= limit_bytes.min():
        return rows
    fixed = np.array(rows, dtype=np.int32, order="C")
    _core.learned.repair_memory(graph.allowed, graph.memory_bytes, limit_bytes, fixed)
    return fixed
