"""Takes the pictures of docs/report.md: reports written by placewright, seen by Chromium.

python docs/pictures/draw_report.py        (needs the extra 'dev' and Chromium)
"""

from __future__ import annotations

import base64
import shutil
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright import Budget, load, place
from placewright.files import write_whole_bytes
from placewright.reports.contents import report_contents
from placewright.reports.page import page_html

HERE = Path(__file__).resolve().parent
COLOURS = 128


def reports(folder: Path) -> None:
    """Write the pages that are photographed."""
    problem = load("zoo:inception-v3", cluster="flex170")
    heft = place(problem, placer="heft")
    better = place(problem, placer="anneal", budget=Budget(10.0, evaluations=60_000))
    pipeline = place(load("zoo:resnet-50", cluster="p100x4", objective="throughput"), placer="dpl")
    pages = {
        "latency": report_contents([better], ["anneal"]),
        "compare": report_contents([heft, better], ["heft", "anneal"]),
        "pipeline": report_contents([pipeline], ["dpl"]),
    }
    for name, contents in pages.items():
        (folder / f"{name}.html").write_text(page_html(contents))


def take(folder: Path) -> None:
    """Open them in Chromium and keep what it shows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for picture, name, scheme, size, action in (
            ("report-latency", "latency", "light", (1280, 860), _nothing),
            ("report-op", "latency", "dark", (1280, 860), _show_op),
            ("report-compare", "compare", "light", (1280, 860), _nothing),
            ("report-pipeline", "pipeline", "light", (1280, 1040), _nothing),
        ):
            page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
            page.goto((folder / f"{name}.html").as_uri())
            action(page)
            page.wait_for_timeout(400)
            pixels = base64.b64decode(page.evaluate(_PIXELS, base64.b64encode(page.screenshot()).decode()))
            image = np.frombuffer(pixels, dtype=np.uint8).reshape(size[1], size[0], 4)[:, :, :3]
            write_whole_bytes(HERE / f"{picture}.png", palette_png(image))
        browser.close()


def _nothing(page: Any) -> None:
    pass


def _show_op(page: Any) -> None:
    page.fill("#search", "Mixed_6b.branch7x7_2.conv")
    page.keyboard.press("Enter")
    page.evaluate("document.getElementById('graph-heading').scrollIntoView()")
    page.evaluate("scrollBy(0, -80)")


# The browser itself unpacks its picture: no other package is needed.
_PIXELS = """async text => {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const data = context.getImageData(0, 0, image.width, image.height).data;
  let out = "";
  for (let i = 0; i < data.length; i += 32768) out += String.fromCharCode(...data.subarray(i, i + 32768));
  return btoa(out);
}"""


def palette_png(image: NDArray[np.uint8]) -> bytes:
    """A PNG of the ``COLOURS`` commonest colours; every other one becomes the nearest of them."""
    coarse = (image.astype(np.uint16) + 1) // 3 * 3
    values, inverse, counts = np.unique(
        np.minimum(coarse, 255).reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    palette = values[np.argsort(-counts)[:COLOURS]].astype(np.int32)
    nearest = ((values[:, None, :].astype(np.int32) - palette[None]) ** 2).sum(axis=2).argmin(axis=1).astype(np.uint8)
    rows = nearest[inverse.ravel()].reshape(image.shape[:2])
    raw = b"".join(b"\x00" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"PLTE", palette.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(raw, 9)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        reports(Path(temporary))
        take(Path(temporary))
