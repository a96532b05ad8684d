"""The report as one HTML file: style, script and data inside; nothing is fetched, no other script may run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

_SCRIPTS = (
    "base.js", "model.js", "layout.js", "paint.js", "graph.js", "details.js", "timeline.js", "summary.js", "charts.js",
    "tables.js", "search.js", "main.js",
)  # fmt: skip


def page_html(contents: Mapping[str, Any]) -> str:
    """The whole page about :func:`placewright.reports.contents.report_contents`."""
    style, body = _asset("page.css"), _asset("page.html")
    script = '"use strict";\n' + "\n".join(_asset(name) for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; script-src 'sha256-{_sha256(script)}'; style-src 'sha256-{_sha256(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(contents['model']['name'])}: placement</title>",
            f"<style>{style}</style></head><body>",
            body,
            f'<script type="application/json" id="data">{json_for_html(contents)}</script>',
            f"<script>{script}</script>",
            "</body></html>\n",
        ]
    )


def json_for_html(contents: Any) -> str:
    r"""JSON that cannot end the element it stands in: no ``<``, ``>`` or ``&``, and nothing but ASCII.

    >>> json_for_html({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(contents, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files("placewright.reports").joinpath("assets", name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
