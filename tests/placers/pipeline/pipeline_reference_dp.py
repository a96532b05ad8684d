"""Plain dynamic program over all pairs of nested ideals, without any pruning."""

from __future__ import annotations

from itertools import product

import numpy as np

from placewright import _core
from placewright.placers.pipeline.stage_loads import LoadModel
from placewright.placers.pipeline.units import Units


def optimum(units: Units, model: LoadModel) -> tuple[float, int]:
    """Optimal value and number of ideals."""
    ideals = all_ideals(units)
    vectors = list(product(*(range(count + 1) for count in model.kind_count.tolist())))
    empty: frozenset[int] = frozenset()
    in_core = model.in_core()
    best = {(empty, vector): 0.0 for vector in vectors}
    for ideal in ideals[1:]:
        reachable: dict[tuple[int, ...], float] = dict.fromkeys(vectors, np.inf)
        for smaller in ideals:
            if not smaller < ideal:
                continue
            stage = np.array(sorted(ideal - smaller))
            for kind, replicas in zip(model.option_kind.tolist(), model.option_replicas.tolist(), strict=True):
                load = _core.pipeline.stage_load(in_core, kind, replicas, stage)
                for vector in vectors:
                    rest = tuple(n - replicas * (k == kind) for k, n in enumerate(vector))
                    if min(rest) >= 0:
                        value = max(load, best[smaller, rest])
                        reachable[vector] = min(reachable[vector], value)
        best.update({(ideal, vector): value for vector, value in reachable.items()})
    return best[ideals[-1], vectors[-1]], len(ideals)


def all_ideals(units: Units) -> list[frozenset[int]]:
    count = units.memory_bytes.size
    predecessors: list[set[int]] = [set() for _ in range(count)]
    for unit in range(count):
        for successor in units.successor[units.successor_ptr[unit] : units.successor_ptr[unit + 1]]:
            predecessors[successor].add(unit)
    levels: list[set[frozenset[int]]] = [{frozenset()}]
    for _ in range(count):
        levels.append(
            {
                ideal | {unit}
                for ideal in levels[-1]
                for unit in range(count)
                if unit not in ideal and predecessors[unit] <= ideal
            }
        )
    return [ideal for level in levels for ideal in level]
