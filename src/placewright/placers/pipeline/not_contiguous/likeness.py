"""Units that look alike: the repeated layers of a network, found by refining colours along the tensors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from placewright.placers.pipeline.not_contiguous.units import FloatArray, IntArray, Units

DIGITS = 6  # costs that differ less than this, relatively, count as equal


def like_units(units: Units, rounds: int) -> IntArray:
    """[U] class of every unit: alike in costs, and in their surroundings up to `rounds` tensors away."""
    own = np.concatenate([units.forward_time, units.backward_time, units.memory_bytes[:, None]], axis=1)
    size_of_tensor = _rounded(np.concatenate([units.tensor_in, units.tensor_out], axis=1))
    members = [
        units.tensor_unit[a:b].tolist() for a, b in zip(units.tensor_ptr[:-1], units.tensor_ptr[1:], strict=True)
    ]
    colour = _numbered(map(tuple, _rounded(own).tolist()))
    sizes = _numbered(map(tuple, size_of_tensor.tolist()))
    for _ in range(rounds):
        around: list[list[tuple[int, int, int]]] = [[] for _ in colour]
        for size, (producer, *consumers) in zip(sizes, members, strict=True):
            for consumer in consumers:
                around[consumer].append((0, size, colour[producer]))
                around[producer].append((1, size, colour[consumer]))
        refined = _numbered((own, *sorted(near)) for own, near in zip(colour, around, strict=True))
        if max(refined, default=0) == max(colour, default=0):
            break  # nothing tells more of them apart
        colour = refined
    return np.array(colour, dtype=np.int32)


def _rounded(values: FloatArray) -> FloatArray:
    finite = np.where(np.isfinite(values), values, 0.0)
    scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(finite), 1e-300))))
    return np.where(np.isfinite(values), np.round(finite * scale) / scale, values)


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]
