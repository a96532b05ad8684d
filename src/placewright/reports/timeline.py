"""A placement's timeline as an SVG picture: who computes and who copies when."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from placewright.evaluate import Slice, timeline
from placewright.graph import FloatArray
from placewright.problems import Problem
from placewright.text import shown, time_text

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")
_LEFT, _LANE, _GAP, _TOP = 110, 26, 6, 4
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.in{fill:#fff;font-size:11px}.axis{stroke:#8886}"
    ".copy{fill-opacity:.45}.overhead{fill:#9996}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.in{fill:#fff}}"
)


def timeline_svg(
    problem: Problem,
    device_of_op: NDArray[np.int32],
    priority: FloatArray | None = None,
    *,
    width: int = 760,
    span_s: float | None = None,
) -> str:
    """Draw one lane of compute per device and one of copies where it has any; hover over a slice for its name.

    ``span_s`` is the time that the whole width stands for: give the same to pictures that are to be compared.
    """
    slices = timeline(problem, device_of_op, priority)
    end_s = max((s.end_s for s in slices), default=0.0)
    scale = (width - _LEFT - 12) / max(end_s, span_s or 0.0) if end_s > 0 else 0.0
    lanes = _lanes(problem, slices)
    height = _TOP + len(lanes) * (_LANE + _GAP) + 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="timeline"><style>{_STYLE}</style>'
    ]
    for lane, (device, name) in enumerate(lanes):
        y = _TOP + lane * (_LANE + _GAP)
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 17}" text-anchor="end">{_text(name)}</text>')
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{width - 12}" y1="{y + _LANE}" y2="{y + _LANE}"/>')
        for s in slices:
            if (s.device, s.what in ("copy in", "copy out")) == device:
                parts.append(_slice(problem, s, _LEFT + s.start_s * scale, (s.end_s - s.start_s) * scale, y))
    bottom = height - 6
    parts.append(f'<text x="{_LEFT}" y="{bottom}">0</text>')
    end = time_text(end_s, problem.time_unit)
    parts.append(f'<text x="{_LEFT + end_s * scale:.1f}" y="{bottom}" text-anchor="end">{_text(end)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _lanes(problem: Problem, slices: list[Slice]) -> list[tuple[tuple[int, bool], str]]:
    used = sorted({(s.device, s.what in ("copy in", "copy out")) for s in slices})
    names = problem.cluster.device_names
    return [(lane, f"{names[lane[0]]} copies" if lane[1] else names[lane[0]]) for lane in used]


def _slice(problem: Problem, s: Slice, x: float, width: float, y: int) -> str:
    names, ops = problem.cluster.device_names, problem.graph.op_names
    if s.op >= 0:
        label, css = ops[s.op], "op"
    elif s.tensor >= 0:
        producer = ops[problem.graph.tensor_producer[s.tensor]]
        peer = names[s.peer] if s.peer >= 0 else "host memory"
        label, css = f"{producer} {'from' if s.what == 'copy in' else 'to'} {peer}", "copy"
    else:
        label, css = s.what, "overhead" if s.what == "overhead" else "copy"
    times = f"{time_text(s.start_s, problem.time_unit)} to {time_text(s.end_s, problem.time_unit)}"
    box = (
        f'<rect class="{css}" x="{x:.2f}" y="{y + 2}" width="{max(width - 0.6, 0.4):.2f}" height="{_LANE - 4}" rx="2" '
        f'fill="{_COLOURS[s.device % len(_COLOURS)]}"/>'
    )
    short = problem.graph.op_names[s.op] if s.op >= 0 else ""
    inner = (
        f'<text class="in" x="{x + width / 2:.2f}" y="{y + 17}" text-anchor="middle">{_text(short)}</text>'
        if short and 7 * len(short) < width
        else ""
    )
    return f"<g><title>{_text(label)}: {_text(times)}</title>{box}{inner}</g>"


def _text(name: str) -> str:
    return escape(shown(name))
