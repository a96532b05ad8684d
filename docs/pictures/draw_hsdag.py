"""Draws the curves of docs/hsdag.md: how far above the best known value searches are after so many evaluations.

python docs/pictures/draw_hsdag.py
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from placewright.files import write_whole

HERE = Path(__file__).resolve().parent
ROWS = HERE.parent.parent / "benchmarks" / "results" / "hsdag.jsonl"
SETTINGS, MODEL = ("flex170", "h200-xeon"), "inception-v3"
METHODS = {
    "hsdag": "#c0392b",
    "anneal, equal evaluations": "#2471a3",
    "rnn": "#7d8b99",
    "placeto": "#b7950b",
}
X, Y = (50, 2000), (0.002, 1.0)  # evaluations, share above the best known value
X_TICKS, Y_TICKS = (50, 100, 200, 500, 1000, 2000), (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 230, 48, 26, 56


def on_log_scale(value: float, ends: tuple[float, float]) -> float:
    """0 to 1, the ends included."""
    low, high = (math.log(end) for end in ends)
    return (math.log(min(max(value, ends[0]), ends[1])) - low) / (high - low)


def median_curve(rows: list[dict[str, Any]], known: float) -> list[tuple[int, float]]:
    """Evaluations and the median share above the best known value, where all seeds have one."""
    marks = [mark for mark in X_TICKS if rows and all(str(mark) in row["curve"] for row in rows)]
    return [(mark, statistics.median(row["curve"][str(mark)] for row in rows) / known - 1) for mark in marks]


def panel(rows: list[dict[str, Any]], setting: str, left: float) -> list[str]:
    """Axes and lines of one setting."""
    chosen = [r for r in rows if (r.get("setting"), r.get("execution"), r["model"]) == (setting, "overlap", MODEL)]
    known = min(r["value"] for r in chosen)
    bottom = TOP + HEIGHT
    parts = [f'<text x="{left}" y="{TOP - 10}" font-weight="bold">Inception-V3, {setting}, overlap</text>']
    for share in Y_TICKS:
        y = bottom - HEIGHT * on_log_scale(share, Y)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{share:.1%}</text>'.replace(".0%", "%"))
    for mark in X_TICKS:
        x = left + WIDTH * on_log_scale(mark, X)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{mark}</text>')
    for method, colour in METHODS.items():
        runs = [r for r in chosen if r["part"] == "main" and r.get("method") == method]
        points = " ".join(
            f"{left + WIDTH * on_log_scale(mark, X):.1f},{bottom - HEIGHT * on_log_scale(share, Y):.1f}"
            for mark, share in median_curve(runs, known)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def main() -> None:
    """Write the picture: one panel per setting, one line per method."""
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    width, height = LEFT + len(SETTINGS) * (WIDTH + GAP), TOP + HEIGHT + 52
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="#333333">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, setting in enumerate(SETTINGS):
        parts += panel(rows, setting, LEFT + i * (WIDTH + GAP))
    x = LEFT
    for method, colour in METHODS.items():
        y = height - 12
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 18}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 23}" y="{y + 4}">{method}</text>')
        x += 40 + 7 * len(method)
    write_whole(HERE / "hsdag-curves.svg", "\n".join([*parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
