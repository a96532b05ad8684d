"""The graph as boxes in boxes: segments hold modules, modules hold ops.

Every box is an interval of one order, first by segment, then by op number, along which no tensor runs backwards.
So boxes that lie side by side never depend on each other in a circle, however they are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate.judging import find_segments
from placewright.problems import Problem
from placewright.reports.packing import shared_start
from placewright.text import shown

MOST_CHILDREN = 40
_LABEL = 60


class Box(NamedTuple):
    """Ops ``order[start:end]``; ``parent`` is the number of the box around it, -1 for the whole."""

    kind: Literal["whole", "segments", "segment", "module", "part"]
    start: int
    end: int
    parent: int
    label: str


class Boxes(NamedTuple):
    """Boxes, outer before inner. Those of equal parent share it out; one with no box inside holds single ops."""

    order: NDArray[np.int32]  # [ops]
    segment_of_op: NDArray[np.int32]  # [ops], in running order
    n_segments: int
    boxes: list[Box]


def find_boxes(problem: Problem, device_of_op: NDArray[np.int32]) -> Boxes:
    """Cut a placed graph into segments, segments into modules, modules into ops."""
    n_segments, segment = find_segments(problem, device_of_op)
    order = np.lexsort((np.arange(problem.n_ops), segment)).astype(np.int32)
    names = [problem.graph.op_names[v] for v in order.tolist()]
    paths = [problem.graph.module_paths[v].replace("/", ".") for v in order.tolist()]
    boxes = [Box("whole", 0, problem.n_ops, -1, "")]
    starts = np.concatenate([np.flatnonzero(np.diff(segment[order], prepend=-1)), [problem.n_ops]]).tolist()
    _cut_segments(boxes, 0, starts, 0, paths, names)
    return Boxes(order, segment, n_segments, boxes)


def _cut_segments(
    boxes: list[Box], parent: int, starts: list[int], first: int, paths: Sequence[str], names: Sequence[str]
) -> None:
    """Put the segments that begin at ``starts`` (the last entry ends them) into a box, many of them in packs."""
    count = len(starts) - 1
    if count <= MOST_CHILDREN:
        for i in range(count):
            what = _content_label(paths, names, starts[i], starts[i + 1])
            boxes.append(Box("segment", starts[i], starts[i + 1], parent, f"{first + i + 1} · {what}"))
            _cut_modules(boxes, len(boxes) - 1, paths, names)
        return
    for lo, hi in _packs(0, count):
        what = _content_label(paths, names, starts[lo], starts[hi])
        boxes.append(Box("segments", starts[lo], starts[hi], parent, f"{first + lo + 1}–{first + hi} · {what}"))
        _cut_segments(boxes, len(boxes) - 1, starts[lo : hi + 1], first + lo, paths, names)


def _cut_modules(boxes: list[Box], parent: int, paths: Sequence[str], names: Sequence[str]) -> None:
    _, start, end, _, _ = boxes[parent]
    if end - start <= 12:
        return
    cuts = _module_cuts(paths, start, end)
    by_module = cuts is not None and len(cuts) <= 2 * MOST_CHILDREN
    if not by_module and end - start <= MOST_CHILDREN:
        return
    spans = list(zip(cuts, [*cuts[1:], end], strict=True)) if cuts and by_module else _packs(start, end)
    for lo, hi in spans:
        label = _module_label(paths, lo, hi) if by_module else ""
        boxes.append(Box("module" if label else "part", lo, hi, parent, label or _span_label(names, lo, hi)))
        _cut_modules(boxes, len(boxes) - 1, paths, names)


def _packs(start: int, end: int) -> list[tuple[int, int]]:
    size = max(10, -(-(end - start) // 24))
    return [(lo, min(lo + size, end)) for lo in range(start, end, size)]


def _module_cuts(paths: Sequence[str], start: int, end: int) -> list[int] | None:
    """Where the path changes at the least depth at which it changes at all; ``None`` if it never does."""
    parts = [p.split(".") for p in paths[start:end]]
    deepest = max(len(p) for p in parts)
    for depth in range(1, deepest + 1):
        heads = [p[:depth] for p in parts]
        cuts = [start + i for i in range(len(heads)) if i == 0 or heads[i] != heads[i - 1]]
        if len(cuts) > 1:
            return cuts if len(cuts) < end - start else None
    return None


def _module_label(paths: Sequence[str], start: int, end: int) -> str:
    parts = [p.split(".") for p in paths[start:end]]
    return shown(".".join(parts[0][: shared_start(parts)]), _LABEL)


def _content_label(paths: Sequence[str], names: Sequence[str], start: int, end: int) -> str:
    ends = [paths[i].split(".")[0] or names[i] for i in (start, end - 1)]
    label = _module_label(paths, start, end) or (ends[0] if ends[0] == ends[1] else " … ".join(ends))
    return shown(label, _LABEL)


def _span_label(names: Sequence[str], start: int, end: int) -> str:
    if end - start == 1:
        return shown(names[start], _LABEL)
    return f"{shown(names[start], _LABEL // 2)} … {shown(names[end - 1], _LABEL // 2)}"
