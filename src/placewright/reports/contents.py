"""What the report page shows, as plain data: columns that the page's script unpacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from placewright.documents import finite
from placewright.errors import InputError
from placewright.explain import idle_reasons
from placewright.placement import Placement
from placewright.placers.base import single_device_values
from placewright.problems import Problem
from placewright.reports.blocks import find_boxes
from placewright.reports.changes import find_changes
from placewright.reports.moves import values_if_moved
from placewright.reports.packing import number, numbers, packed_names, packed_words
from placewright.reports.schedule import copies_table, memory_columns, segments_table, timeline_columns
from placewright.text import shown

FORMAT = "placewright-report/1"
_FAULTS_SHOWN, _GROUPS_SHOWN = 50, 200


def report_contents(
    placements: Sequence[Placement],
    labels: Sequence[str],
    runs: Sequence[Mapping[str, Any] | None] = (),
    move_cells: int | None = None,
) -> dict[str, Any]:
    """All data of a page about placements of one model; every further one is compared with the first.

    ``runs`` holds what ``placewright run --json`` printed, in the order of the placements; ``move_cells`` bounds
    the work of "what if this op were moved" (ops times moves).
    """
    if not placements:
        raise InputError("nothing to report on: give at least one placement")
    for placement in placements:
        if placement.device_of_op is None:
            raise InputError("there is no placement to report on: " + (placement.note or placement.status))
    first = placements[0].problem
    changes = [find_changes(placements[0], p) for p in placements[1:]]
    costs: list[dict[str, Any]] = []
    shown_placements = []
    for i, placement in enumerate(placements):
        cost = _costs(placement.problem)
        if cost not in costs:
            costs.append(cost)
        run = runs[i] if i < len(runs) else None
        document = _placement(placement, shown(labels[i], 60), run, move_cells)
        shown_placements.append(document | {"cost": costs.index(cost)})
    return {
        "format": FORMAT,
        "model": _model(first),
        "costs": costs,
        "placements": shown_placements,
        "changes": [
            {
                "ops": np.flatnonzero(c.moved).tolist(),
                "groups": [
                    {
                        "path": g.path,
                        "ops": len(g.ops),
                        "from_device": shown(g.from_device, 60),
                        "to_device": shown(g.to_device, 60),
                        "from_s": number(g.from_s),
                        "to_s": number(g.to_s),
                    }
                    for g in c.groups[:_GROUPS_SHOWN]
                ],
                "more_groups": max(0, len(c.groups) - _GROUPS_SHOWN),
            }
            for c in changes
        ],
    }


def _model(problem: Problem) -> dict[str, Any]:
    g = problem.graph
    shapes = [
        "; ".join(_shapes(g.tensor_shapes[lo:hi])) for lo, hi in zip(g.tensor_ptr, g.tensor_ptr[1:], strict=False)
    ]
    return {
        "name": shown(g.name, 100),
        "unit": problem.time_unit,
        "names": packed_names(g.op_names),
        "types": packed_words(g.op_types),
        "paths": packed_words(g.module_paths),
        "shapes": packed_words(shapes),
        "backward": np.flatnonzero(g.is_backward).tolist(),
        "weight_bytes": numbers(g.weight_bytes, 5),
        "flops": numbers(g.flops, 4),
        "tensor_producer": np.diff(g.tensor_producer, prepend=0).tolist(),
        "tensor_bytes": numbers(g.tensor_bytes, 5),
        "readers": np.diff(g.consumer_ptr).tolist(),
        "reader": (g.consumer_op - g.edge_producer).tolist(),
    }


def _shapes(shapes: Sequence[tuple[int, ...]]) -> list[str]:
    return ["×".join(map(str, shape)) for shape in shapes[:8] if shape]


def _costs(problem: Problem) -> dict[str, Any]:
    times = [numbers(problem.op_time_s[:, k], 5) for k in range(len(problem.cluster.kinds))]
    return {"kinds": [shown(k.name, 60) for k in problem.cluster.kinds], "op_time": times}


def _placement(p: Placement, label: str, run: Mapping[str, Any] | None, move_cells: int | None) -> dict[str, Any]:
    assert p.device_of_op is not None
    problem, device = p.problem, p.device_of_op
    boxes = find_boxes(problem, device)
    moves = values_if_moved(p) if move_cells is None else values_if_moved(p, move_cells)
    return {
        "label": label,
        "placer": shown(p.placer, 60),
        "status": p.status,
        "objective": problem.objective,
        "execution": problem.execution,
        "value": number(p.value, 9),
        "bound": number(p.bound, 9),
        "gap": number(p.gap),
        "seconds": number(p.seconds, 4),
        "seed": p.seed,
        "evaluations": p.evaluations,
        "note": shown(p.note, 300),
        "segments": boxes.n_segments,
        "bytes_moved": number(p.evaluation.bytes_moved if p.evaluation else None, 9),
        "faults": [shown(f.message, 400) for f in p.faults[:_FAULTS_SHOWN]],
        "more_faults": max(0, len(p.faults) - _FAULTS_SHOWN),
        "devices": _devices(p),
        "device": device.tolist(),
        "segment": boxes.segment_of_op.tolist(),
        "order": boxes.order.tolist(),
        "boxes": {
            "kind": [b.kind for b in boxes.boxes],
            "start": [b.start for b in boxes.boxes],
            "end": [b.end for b in boxes.boxes],
            "parent": [b.parent for b in boxes.boxes],
            "label": [b.label for b in boxes.boxes],
        },
        "moves": {"op": moves.op.tolist(), "value": numbers(moves.value.ravel(), 6)},
        "timeline": timeline_columns(p),
        "memory": memory_columns(p),
        "segment_rows": segments_table(p, boxes.segment_of_op, boxes.n_segments),
        "copy_rows": copies_table(p),
        "measured": measured_figures(p.measured),
        "run": measured_figures(run),
        "curve": None if p.curve is None else {k: numbers(p.curve[k], 6) for k in ("evaluations", "best", "mean")},
    }


def _devices(p: Placement) -> list[dict[str, Any]]:
    problem, e = p.problem, p.evaluation
    assert e is not None
    alone, idle = single_device_values(problem), idle_reasons(p) if not p.faults else {}
    replica_of = p.replica_of
    return [
        {
            "name": shown(device.name, 60),
            "kind": int(problem.cluster.device_kind[d]),
            "load": number(e.load[replica_of.get(d, d)], 9),
            "memory": number(e.memory_bytes[replica_of.get(d, d)], 12),
            "limit": number(device.memory_bytes, 12),
            "ops": int(e.ops[d]),
            "alone": number(alone[device.name], 9),
            "idle": shown(idle.get(device.name, ""), 300),
            "replica_of": replica_of.get(d, -1),
        }
        for d, device in enumerate(problem.cluster.devices)
    ]


def measured_figures(figures: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The measured figures that the page shows, from a placement or from ``run --json``; nothing else gets in."""
    if figures is None:
        return None
    value = _positive(figures.get("measured_s"))
    if value is None:
        raise InputError("'measured_s' is missing: expected what 'placewright run --json' prints")
    interval = figures.get("interval_s")
    ends = [_positive(x) for x in interval] if isinstance(interval, list) else []
    alone = figures.get("single_device")
    singles = {}
    for name, entry in alone.items() if isinstance(alone, Mapping) else ():
        time_s = _positive(entry.get("measured_s") if isinstance(entry, Mapping) else entry)
        if time_s is not None:
            singles[shown(str(name), 60)] = time_s
    return {
        "runtime": shown(str(figures.get("runtime", "")), 60),
        "value": value,
        "interval": ends if len(ends) == 2 and None not in ends else None,
        "predicted": _positive(figures.get("predicted_s")),
        "single": singles,
    }


def _positive(value: Any) -> float | None:
    found = finite(value)
    return found if found is not None and found > 0 else None
