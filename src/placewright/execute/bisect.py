"""Which segment of a placement makes the outputs differ: parts run in step with the same parts on one device."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placewright.execute.live import LiveModel
from placewright.execute.outputs import difference
from placewright.execute.placed import live_devices
from placewright.execute.stages import Bag, Source, StagedModel, find_segments
from placewright.graph import OpGraph
from placewright.placement import Placement


class SegmentError(NamedTuple):
    """How far a segment is off, relative to the largest magnitude of each of its outputs; the worst one counts.

    ``own`` is with the reference's inputs, ``total`` with what the segments before really gave.
    """

    number: int
    device: str
    first_op: str
    n_ops: int
    own: float
    total: float


class Bisection(NamedTuple):
    """All segments in the order in which they ran; ``first`` is the first that is off by more than allowed."""

    segments: tuple[SegmentError, ...]
    tolerance: float
    reference: str

    @property
    def first(self) -> SegmentError | None:
        return next((s for s in self.segments if not s.total <= self.tolerance), None)


def bisect_placement(
    live: LiveModel, placement: Placement, reference: str | None = None, tolerance: float = 1e-4
) -> Bisection:
    """Run every segment on its device and on the reference device, the first one of the cluster unless named.

    Both are cut in the same way, so only the device can make a difference.
    """
    cluster = placement.problem.cluster
    reference = reference or cluster.device_names[0]
    devices = live_devices(live, placement)
    segment_of = _segments(live.graph, devices)
    ours = live.staged(devices, segment_of, cluster)
    theirs = live.staged(dict.fromkeys(devices, reference), segment_of, cluster)
    return Bisection(tuple(_in_step(live, ours, theirs)), tolerance, reference)


def _in_step(live: LiveModel, ours: StagedModel, theirs: StagedModel) -> list[SegmentError]:
    mine, right = ours.bag(live.inputs), theirs.bag(live.inputs)
    found = []
    for number, (part, twin) in enumerate(zip(ours.parts, theirs.parts, strict=True)):
        run, run_twin = part.make(), twin.make()
        expected = run_twin([right[source] for source in twin.sources])
        own = run([right[source] for source in part.sources])
        total = run([mine[source] for source in part.sources])
        first_op = part.op_names[0] if part.op_names else ""
        errors = _worst(own, expected), _worst(total, expected)
        found.append(SegmentError(number, part.device, first_op, len(part.op_names), *errors))
        _keep(mine, number, total)
        _keep(right, number, expected)
    return found


def _segments(graph: OpGraph, devices: dict[str, str]) -> dict[str, int]:
    """Segments of the ops that compute; constants and inputs follow their first reader, results their producer."""
    names = graph.op_names
    producers = [
        [names[p] for p in graph.tensor_producer[graph.input_tensor[graph.input_ptr[v] : graph.input_ptr[v + 1]]]]
        for v in range(graph.n_ops)
    ]
    readers: list[list[str]] = [[] for _ in names]
    for v, made_by in enumerate(producers):
        for p in made_by:
            readers[graph.index_of[p]].append(names[v])
    is_result = [t == "Result" for t in graph.op_types]
    computes = [bool(made_by) and not is_result[v] for v, made_by in enumerate(producers)]
    segment_of = find_segments(
        ((names[v], producers[v], readers[v]) for v in range(graph.n_ops) if computes[v]), devices
    )
    for v in range(graph.n_ops):
        if not computes[v]:
            neighbours = producers[v] if is_result[v] else readers[v]
            segment_of[names[v]] = min((segment_of[n] for n in neighbours if n in segment_of), default=0)
    return segment_of


def _keep(bag: Bag, number: int, values: list[Any]) -> None:
    bag.update((Source(number, i), value) for i, value in enumerate(values))


def _worst(ours: list[Any], expected: list[Any]) -> float:
    errors = [difference(a, b).max_rel for a, b in zip(ours, expected, strict=True)]
    return float(np.max(errors)) if errors else 0.0
