"""Draws the pictures of docs/placers: one small model, placed by every placer, on one time scale per execution model.

python docs/pictures/placers.py
"""

from __future__ import annotations

from pathlib import Path

import placewright as pw
from placewright.evaluate import timeline
from placewright.files import write_whole
from placewright.placement import Placement
from placewright.placers.registry import get_placer_class, placer_names
from placewright.reports.timeline import timeline_svg

HERE = Path(__file__).resolve().parent / "placers"
MODEL, CLUSTER = "zoo:fork-join?blocks=2", "laptop-npu"
SMALLER = {"complete": "zoo:fork-join?blocks=1&branches=2&length=2"}  # for placers that are not for so many ops
NO_CONTIGUITY = ("local-search", "milp", "partition")
LEARNED = ("gdp", "hdp", "hsdag", "placeto", "rnn")


def placed(name: str) -> Placement:
    """What a placer makes of the model, under the first execution model that it is for."""
    execution = get_placer_class(name).executions[0]
    options = {"contiguous": False} if name in NO_CONTIGUITY else {}
    problem = pw.load(SMALLER.get(name, MODEL), cluster=CLUSTER, execution=execution, **options)
    return pw.place(problem, name, pw.Budget(2.0, 100 if name in LEARNED else None))


def main() -> None:
    """Write a picture per placer."""
    HERE.mkdir(exist_ok=True)
    found = {name: placed(name) for name in placer_names() if name != "expert"}
    spans: dict[str, float] = {}
    for p in found.values():
        assert p.device_of_op is not None
        end = max(s.end_s for s in timeline(p.problem, p.device_of_op, p.priority))
        spans[p.problem.execution] = max(end, spans.get(p.problem.execution, 0.0))
    for name, p in found.items():
        assert p.device_of_op is not None
        picture = timeline_svg(p.problem, p.device_of_op, p.priority, span_s=spans[p.problem.execution])
        write_whole(HERE / f"{name}.svg", picture)
        print(f"{name}: {p.value * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
