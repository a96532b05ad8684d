"""The timeline picture: well-formed, complete, names escaped."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from placewright.evaluate import timeline
from placewright.problems import EXECUTIONS, Execution
from placewright.reports.timeline import timeline_svg
from placewright.testing.drawn_problems import random_problem

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_every_slice_is_drawn_inside_the_picture(execution: Execution) -> None:
    problem = random_problem(3, 9, 3, 2, execution)
    device = np.zeros(problem.n_ops, dtype=np.int32)
    device[::2] = 1
    if execution == "calls":
        device[:] = 0
    picture = ElementTree.fromstring(timeline_svg(problem, device))
    boxes = list(picture.iter(f"{SVG}rect"))
    assert len(boxes) == len(timeline(problem, device))
    right = max(float(b.attrib["x"]) + float(b.attrib["width"]) for b in boxes)
    assert right <= float(picture.attrib["width"])


def test_names_are_escaped() -> None:
    from dataclasses import replace

    problem = random_problem(3, 4, 2, 1, "overlap")
    names = ("<script>alert(1)</script>", *problem.graph.op_names[1:])
    problem = problem.with_options(graph=replace(problem.graph, op_names=names))
    assert "<script" not in timeline_svg(problem, np.zeros(4, dtype=np.int32))
