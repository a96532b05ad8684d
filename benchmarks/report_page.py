"""Size of report pages and how soon Chromium paints them.

python benchmarks/report_page.py        (needs the extra 'dev' and Chromium)
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from placewright import load, place
from placewright.reports.contents import report_contents
from placewright.reports.page import page_html
from placewright.text import bytes_text

REPORTS = (
    ("zoo:inception-v3", "flex170"),
    ("zoo:moe", "p100x4"),
    ("zoo:rnnlm-8", "p100x4"),
    ("zoo:gnmt-8", "p100x8"),
)
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# One whole drawing of the graph with everything on screen, after opening all that the button opens.
FRAME = """async () => {
  document.getElementById('open-more').click();
  const g = PW.state().graphs[0], began = performance.now();
  for (let i = 0; i < 10; i += 1) { g.zoom(i % 2 ? 1.02 : 1 / 1.02); await new Promise(requestAnimationFrame); }
  return [g.nodes().length, (performance.now() - began) / 10];
}"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    print(f"{'model':18} {'ops':>7} {'file':>10} {'written':>8} {'paint':>8} {'ready':>8} {'boxes':>6} {'frame':>8}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for model, cluster in REPORTS:
            placement = place(load(model, cluster=cluster), placer="heft")
            began = time.perf_counter()
            page = page_html(report_contents([placement], ["heft"]))
            written_s = time.perf_counter() - began
            file = Path(folder) / "report.html"
            file.write_text(page)
            paint_ms, ready_ms, boxes, frame_ms = _seen(browser, file)
            print(
                f"{model:18} {placement.problem.n_ops:7,} {bytes_text(len(page)):>10} {written_s:6.1f} s "
                f"{paint_ms:5.0f} ms {ready_ms:5.0f} ms {boxes:6} {frame_ms:5.0f} ms"
            )
        browser.close()


def _seen(browser: Any, file: Path) -> tuple[float, float, int, float]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(file.as_uri())
    page.wait_for_timeout(500)
    ready_ms = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    while (paint_ms := page.evaluate(PAINT)) is None:  # the page's policy forbids to wait inside it
        page.wait_for_timeout(50)
    boxes, frame_ms = page.evaluate(FRAME)
    page.close()
    return paint_ms, ready_ms, boxes, frame_ms


if __name__ == "__main__":
    main()
