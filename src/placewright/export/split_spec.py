"""``split_spec`` of torch.distributed.pipelining: the modules before which a new stage begins.

Its tracer cuts the model in the order in which it runs: a stage is a stretch of that order that begins with a module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.documents import Fields
from placewright.errors import InputError
from placewright.evaluate import evaluate
from placewright.export.base import Exported, devices_of, json_bytes, whole
from placewright.files import read_json
from placewright.placement import Placement
from placewright.reading import reading
from placewright.text import shown, shown_list, time_text

FORMAT = "placewright-split-spec/1"


def split_spec(placement: Placement, output: Path) -> Exported:
    """Where each stage but the first begins, and the device of every stage.

    A stage that does not begin with a module is cut at the nearest one that does, and what that changes is said.
    """
    stage = _stages(placement)
    graph, n_stages = placement.problem.graph, int(stage.max()) + 1
    starts = _module_starts(placement)
    if not starts:
        raise InputError("the model does not say which modules its ops came from, so there is no split_spec")
    cuts: list[int] = []
    for s in range(1, n_stages):
        wanted = _cut_position(stage, s)
        possible = [p for p in starts if p > (cuts[-1] if cuts else 0)]
        if not possible:
            first = shown(graph.op_names[int(np.argmax(stage == s))])
            raise InputError(f"stage {s}, from '{first}' on, begins with no module, and no module begins after it")
        cuts.append(min(possible, key=lambda p: (abs(p - wanted), p)))
    made = np.searchsorted(np.array(cuts), np.arange(graph.n_ops), side="right")
    device_of_stage = dict(zip(stage.tolist(), devices_of(placement).tolist(), strict=True))
    names = placement.problem.cluster.device_names
    document = {
        "format": FORMAT,
        "split_spec": {whole(starts[p]): "BEGINNING" for p in cuts},
        "stages": [whole(names[device_of_stage[s]]) for s in range(n_stages)],
    }
    return Exported({output: json_bytes(document)}, _losses(placement, stage, made, device_of_stage))


def read_split_spec(path: str | Path) -> dict[str, Any]:
    """The ``split_spec`` argument of ``torch.distributed.pipelining.pipeline``, out of an exported file."""
    from torch.distributed.pipelining import SplitPoint

    with reading(path, "a split_spec") as where:
        document = read_json(path)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f'{where}: not a split_spec (expected "format": "{FORMAT}")')
        points = Fields(document.get("split_spec"), f"{where}: split_spec")
        return {name: SplitPoint[points.chosen(name, ("BEGINNING", "END"))] for name in points.data}


def _stages(placement: Placement) -> NDArray[np.int32]:
    devices_of(placement)
    if placement.stage is None:
        raise InputError("only a contiguous pipeline has stages; place with --objective throughput")
    if placement.problem.graph.is_backward.any():
        raise InputError("a split_spec cuts the forward pass; place the model without training=1")
    return np.unique(placement.stage, return_inverse=True)[1].astype(np.int32)


def _module_starts(placement: Placement) -> dict[int, str]:
    """By position: the innermost module that begins there and is not entered again.

    Innermost, for a list of modules is never called itself; the module of an op is.
    """
    paths = placement.problem.graph.module_paths
    runs: dict[str, list[int]] = {}
    inside: tuple[str, ...] = ()
    for v, path in enumerate(paths):
        now = tuple(path.split(".")) if path else ()
        for n in range(1, len(now) + 1):
            if now[:n] != inside[:n]:
                runs.setdefault(".".join(now[:n]), []).append(v)
        inside = now
    starts: dict[int, str] = {}
    for name, positions in sorted(runs.items(), key=lambda item: -item[0].count(".")):
        if len(positions) == 1 and positions[0] > 0:
            starts.setdefault(positions[0], name)
    return starts


def _cut_position(stage: NDArray[np.int32], s: int) -> int:
    """The cut of the running order that leaves fewest ops on the wrong side of the beginning of stage ``s``."""
    late = np.concatenate([[0], np.cumsum(stage >= s)])  # before the cut, but in a later stage
    early = np.concatenate([np.cumsum((stage < s)[::-1])[::-1], [0]])  # behind the cut, but in an earlier one
    return int(np.argmin(late + early))


def _losses(
    placement: Placement, stage: NDArray[np.int32], made: NDArray[np.int64], device_of_stage: dict[int, int]
) -> tuple[str, ...]:
    problem = placement.problem
    works = problem.op_time_s.min(axis=1) > 0
    moved = np.flatnonzero((stage != made) & works)
    if not len(moved):
        return ()
    device = np.array([device_of_stage[int(s)] for s in made], dtype=np.int32)
    value = evaluate(problem, device).value
    names = [problem.graph.op_names[v] for v in moved]
    unit = problem.time_unit
    return (
        f"stages begin with modules here, so {len(moved)} ops change stage ({shown_list(names, 3)}): "
        f"{time_text(value, unit)} instead of {time_text(placement.value, unit)}",
    )
