"""Sets of device-count vectors as bit sets: which numbers of devices of each kind are in use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright.placers.pipeline.stage_loads import LoadModel
from placewright.placers.pipeline.units import Ints

Words = npt.NDArray[np.uint64]


class Vectors(NamedTuple):
    """Vector `v` uses `used[v, k]` devices of kind `k`; vector 0 uses none.

    Staffing a stage adds the same number to every vector that can afford it, so for a whole set of
    vectors it is a mask and a shift.
    """

    used: Ints  # [V, K]
    remaining: Ints  # [V, K]
    option_shift: Ints  # [O] in bits
    option_allowed: Words  # [O, W] vectors that can still afford the option


def vector_count(model: LoadModel) -> int:
    """Number of device-count vectors, without building them (it may be astronomical)."""
    total = 1
    for count in model.kind_count.tolist():
        total *= count + 1
    return total


def build_vectors(model: LoadModel) -> Vectors:
    """Number all mixes of devices and tabulate which follow from which."""
    sizes = model.kind_count + 1
    stride = np.concatenate([[1], np.cumprod(sizes)[:-1]]).astype(np.int64)
    used = np.arange(int(np.prod(sizes)))[:, None] // stride % sizes
    remaining = model.kind_count - used
    affordable = remaining[:, model.option_kind] >= model.option_replicas
    return Vectors(used, remaining, stride[model.option_kind] * model.option_replicas, _pack(affordable.T))


def sequence_vectors(model: LoadModel) -> Vectors:
    """Vectors that use up one kind after the other, the fastest first: one per number of devices.

    A restriction, for when there are too many mixes of kinds to consider. No device is skipped, so
    searches over these vectors find good pipelines but prove nothing.
    """
    is_finite = np.isfinite(model.time)
    slowness = np.where(is_finite, model.time, 0.0).sum(axis=0) / np.maximum(is_finite.mean(0), 0.01)
    order = np.argsort(slowness, kind="stable")
    sequence = np.repeat(order, model.kind_count[order])
    used = np.zeros((sequence.size + 1, order.size), np.int64)
    used[np.arange(1, sequence.size + 1), sequence] = 1
    used = used.cumsum(axis=0)
    affordable = np.zeros((model.option_kind.size, sequence.size + 1), np.bool_)
    for option, replicas in enumerate(model.option_replicas.tolist()):
        gained = used[replicas:] - used[: used.shape[0] - replicas]
        affordable[option, : gained.shape[0]] = gained[:, model.option_kind[option]] == replicas
    return Vectors(used, model.kind_count - used, model.option_replicas.copy(), _pack(affordable))


def _pack(rows: npt.NDArray[np.bool_]) -> Words:
    """Bit sets of boolean rows, vector `v` in bit `v % 64` of word `v // 64`."""
    words = (rows.shape[1] + 63) // 64
    padded = np.zeros((rows.shape[0], words * 64), np.bool_)
    padded[:, : rows.shape[1]] = rows
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
