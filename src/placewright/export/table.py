"""CSV: one row per op."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from placewright.evaluate import timeline
from placewright.export.base import Exported, devices_of, segments_of
from placewright.graph import sums_by_index
from placewright.placement import Placement
from placewright.text import escaped

COLUMNS = (
    "op", "type", "module", "device", "kind", "segment", "stage", "start_s", "end_s", "time_s", "weight_bytes",
    "output_bytes", "flops", "is_backward",
)  # fmt: skip


_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of a formula


def cell(text: str) -> str:
    """A text cell: control characters and line breaks escaped, and never a formula, by an apostrophe before it.

    >>> cell("=1+1"), cell("conv\\n1"), cell("conv-1")
    ("'=1+1", 'conv\\\\n1', 'conv-1')
    """
    safe = escaped(text)
    return f"'{safe}" if text.startswith(_FORMULA) else safe


def table(placement: Placement, output: Path) -> Exported:
    """Times are seconds, or the unit of a published problem."""
    problem, device, segment = placement.problem, devices_of(placement), segments_of(placement)
    graph, devices = problem.graph, problem.cluster.devices
    starts = {s.op: (s.start_s, s.end_s) for s in timeline(problem, device, placement.priority) if s.op >= 0}
    time = problem.op_time_s[np.arange(problem.n_ops), problem.cluster.device_kind[device]]
    made = sums_by_index(graph.tensor_producer, graph.tensor_bytes, problem.n_ops)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for v, d in enumerate(device.tolist()):
        stage = "" if placement.stage is None else int(placement.stage[v])
        names = [cell(n) for n in (graph.op_names[v], graph.op_types[v], graph.module_paths[v])]
        where = [cell(devices[d].name), cell(devices[d].kind), int(segment[v]), stage]
        sizes = [float(x[v]) for x in (time, graph.weight_bytes, made, graph.flops)]
        writer.writerow([*names, *where, *starts[v], *sizes, int(graph.is_backward[v])])
    return Exported({output: text.getvalue().encode()})
