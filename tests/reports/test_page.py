"""The page as text: one file, nothing fetched, names that cannot become markup; the same in notebooks."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from hostile import EVIL, evil_placement

from placewright.reports.contents import report_contents
from placewright.reports.page import json_for_html, page_html


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(page)
    return parser.found


def test_names_never_become_markup() -> None:
    page = page_html(report_contents([evil_placement()], ["</script><script>"]))
    tags = [tag for tag, _ in elements(page)]
    assert tags.count("script") == 2
    assert not {"img", "svg", "iframe", "object", "b", "u"} & set(tags)
    assert page.count("</script>") == 2
    assert "evil=" not in re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)


def test_the_data_come_back_whole() -> None:
    placement = evil_placement()
    page = page_html(report_contents([placement], ["x"]))
    match = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    assert match[1].isascii()
    assert not set("<>&") & set(match[1])
    names = json.loads(match[1])["model"]["names"]
    assert names["rest"][0] == EVIL[0]
    assert "n" * 10_000 in names["rest"][-1]


@pytest.mark.parametrize("text", [*EVIL, "\u2028", "]]>", "<!--", "\\u003c"])
def test_json_is_safe_and_exact(text: str) -> None:
    written = json_for_html({"name": text})
    assert json.loads(written) == {"name": text}
    assert written.isascii()
    assert not set("<>&") & set(written)


def test_nothing_is_fetched_and_no_other_script_may_run() -> None:
    page = page_html(report_contents([evil_placement()], ["x"]))
    policy = next(a["content"] for tag, a in elements(page) if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, attributes in elements(page):
        assert tag not in ("link", "iframe", "img"), tag
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert not (attributes.get("href") or "#").startswith("http")
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(", "import("):
        assert forbidden not in script


def test_notebook_tables_are_escaped() -> None:
    placement = evil_placement()
    for html in (placement._repr_html_(), placement.problem._repr_html_()):
        tags = {tag for tag, _ in elements(html)}
        assert tags <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}
        assert "&lt;b&gt;gpu&lt;/b&gt;" in html
