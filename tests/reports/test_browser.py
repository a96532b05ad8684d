"""The report in a browser: it draws, opens, zooms, finds, changes colour, obeys keys, and has no complaints."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import EVIL, evil_placement

from placewright import load, place
from placewright.placement import checked_placement
from placewright.reports.contents import report_contents
from placewright.reports.page import page_html

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra 'dev')")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    problem = load("zoo:inception-v3", cluster="flex170")
    heft = place(problem, placer="heft")
    moved = heft.device_of_op.copy()  # type: ignore[union-attr]
    moved[-9:] = 1 - moved[-9:]
    reports = {
        "one": report_contents([heft], ["heft"], [_run(heft)]),
        "two": report_contents([heft, checked_placement(problem, moved, placer="hand")], ["heft", "by hand"]),
        "pipeline": report_contents(
            [place(load("zoo:resnet-50", cluster="p100x2", objective="throughput"), placer="topo")], ["topo"]
        ),
        "unlike": report_contents(
            [heft, place(problem.for_objective("throughput", None), placer="topo")], ["latency", "pipeline"]
        ),
        "evil": report_contents([evil_placement()], ["<script>window.evil=9</script>"]),
        "invalid": report_contents([_invalid()], ["invalid"]),
        "links": report_contents([_scattered()], ["scattered"]),
    }
    for name, contents in reports.items():
        (folder / f"{name}.html").write_text(page_html(contents))
    return {name: folder / f"{name}.html" for name in reports}


def _run(placement: Any) -> dict[str, Any]:
    value = placement.value
    return {
        "measured_s": value * 1.1,
        "interval_s": [value, value * 1.2],
        "predicted_s": value,
        "runtime": "openvino",
        "single_device": {"gpu0": {"measured_s": value * 2}},
    }


def _invalid() -> Any:
    from placewright import Rule

    problem = load("zoo:chain?ops=8", cluster="p100x2", rules=(Rule("pin", ".*", "gpu0"),))
    return checked_placement(problem, np.ones(problem.n_ops, dtype=np.int32), placer="hand")


def _scattered() -> Any:
    problem = load("zoo:layered?ops=120", cluster="p100x4")
    return checked_placement(problem, (np.arange(problem.n_ops) * 7 % 5).astype(np.int32), placer="hand")


@pytest.fixture
def show(browser: Any, pages: dict[str, Path]) -> Iterator[Open]:
    complaints: list[str] = []
    opened: list[Any] = []

    def go(name: str, width: int = 1280, height: int = 860, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith("file:") else None)
        page.goto(pages[name].as_uri())
        assert node_count(page) > 0
        opened.append(page)
        return page

    yield go
    for page in opened:
        page.close()
    assert complaints == []


def node_count(page: Any) -> int:
    return page.evaluate("PW.state().graphs[0].nodes().length")


def point_of(page: Any, index: int) -> tuple[float, float]:
    """Where on the screen a node of the graph is drawn."""
    x, y = page.evaluate(
        """i => { const g = PW.state().graphs[0], n = g.nodes()[i], b = g.canvas.getBoundingClientRect();
        return [b.left + g.view.x + (n.x + 12) * g.view.scale, b.top + g.view.y + (n.y + 8) * g.view.scale]; }""",
        index,
    )
    return x, y


def closed_box(page: Any) -> int:
    return page.evaluate(
        """(() => { const g = PW.state().graphs[0];
        return g.nodes().findIndex(n => !n.open && n.key < g.placement.nBoxes); })()"""
    )


def test_summary_and_tables(show: Open) -> None:
    page = show("one")
    assert page.inner_text("#title") == "inception-v3"
    assert "less time than gpu0 alone" in page.inner_text("#summary")
    assert "Measured with openvino" in page.inner_text("#summary")
    assert page.locator("#summary .whisker").count() == 1
    assert page.locator("#segments tbody tr").count() > 3
    assert page.locator("#memory svg").count() == 2
    page.click("#segments th:has-text('compute') button")
    assert page.get_attribute("#segments th:has-text('compute')", "aria-sort") == "descending"
    page.click("#copies tbody tr:first-child")
    assert (
        page.locator("#details h3").inner_text() == page.locator("#copies tbody tr:first-child td").first.inner_text()
    )


def test_click_selects_and_double_click_opens(show: Open) -> None:
    page = show("one")
    page.locator("#graphs").scroll_into_view_if_needed()
    box = closed_box(page)
    page.mouse.click(*point_of(page, box))
    label = page.evaluate("i => PW.nodeLabel(PW.placements[0], PW.state().graphs[0].nodes()[i].key)", box)
    assert page.inner_text("#details h3") == label
    before = node_count(page)
    page.mouse.dblclick(*point_of(page, box))
    assert node_count(page) > before
    page.click("#close-all")
    assert page.evaluate("PW.state().graphs[0].nodes().every(n => !n.open)")
    page.click("#open-more")
    assert page.evaluate("PW.state().graphs[0].nodes().some(n => n.open)")


def test_zoom_pan_and_tooltip(show: Open) -> None:
    page = show("one")
    page.locator("#graphs").scroll_into_view_if_needed()
    scale = page.evaluate("PW.state().graphs[0].view.scale")
    page.click("#zoom-in")
    assert page.evaluate("PW.state().graphs[0].view.scale") == pytest.approx(scale * 1.3)
    page.click("#fit")
    assert page.evaluate("PW.state().graphs[0].view.scale") == pytest.approx(scale)
    x, y = point_of(page, closed_box(page))
    page.mouse.move(x, y)
    assert page.is_visible("#tip")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    for _ in range(
        100
    ):  # the browser hands the wheel on in its own time; the page's policy forbids to poll from inside
        if page.evaluate("PW.state().graphs[0].view.scale") > scale:
            break
        page.wait_for_timeout(20)
    assert page.evaluate("PW.state().graphs[0].view.scale") > scale
    left = page.evaluate("PW.state().graphs[0].view.x")
    page.mouse.down()
    page.mouse.move(x + 60, y + 20, steps=3)
    page.mouse.up()
    assert page.evaluate("PW.state().graphs[0].view.x") == pytest.approx(left + 60)


def test_search_by_keys(show: Open) -> None:
    page = show("one")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("Mixed_7c.branch_pool")
    assert page.locator("#hits li[role=option]").count() >= 2
    page.keyboard.press("ArrowDown")
    wanted = page.locator("#hits li[aria-selected=true] .name").inner_text()
    page.keyboard.press("Enter")
    assert page.inner_text("#details h3") == wanted
    assert page.is_hidden("#hits")
    details = page.inner_text("#details")
    assert "total if here" in details
    assert "Moved alone to" in details or "may run on" in details
    page.keyboard.press("Escape")
    assert "Select a box" in page.inner_text("#details")
    assert page.evaluate("PW.state().current") is None


def test_the_details_are_the_evaluators(show: Open) -> None:
    page = show("one")
    found = page.evaluate(
        """(() => { const p = PW.placements[0], out = [];
        for (let v = 0; v < PW.model.n; v += 17)
          out.push([v, PW.model.names[v], p.device[v], p.costOf(v, 0), p.costOf(v, 1),
                    p.valueIfMoved(v, 1 - p.device[v])]);
        return out; })()"""
    )
    placement = place(load("zoo:inception-v3", cluster="flex170"), placer="heft")
    from placewright.reports.moves import values_if_moved

    moves = values_if_moved(placement)
    for v, name, device, on_first, on_second, moved in found:
        assert name == placement.problem.graph.op_names[v]
        assert device == placement.device_of_op[v]  # type: ignore[index]
        times = placement.problem.op_device_time_s[v]
        assert [on_first, on_second] == pytest.approx(times.tolist(), rel=1e-4)
        assert moved == pytest.approx(moves.value[v, 1 - device], rel=1e-5)


def test_keyboard_walks_opens_and_zooms(show: Open) -> None:
    page = show("one")
    page.focus("#graphs canvas")
    page.keyboard.press("ArrowRight")
    first = page.evaluate("PW.state().graphs[0].selected()")
    assert first >= 0
    page.keyboard.press("ArrowRight")
    assert page.evaluate("PW.state().graphs[0].selected()") != first
    scale = page.evaluate("PW.state().graphs[0].view.scale")
    page.keyboard.press("+")
    assert page.evaluate("PW.state().graphs[0].view.scale") > scale
    page.keyboard.press("0")
    page.evaluate("i => { const g = PW.state().graphs[0]; g.select(g.nodes()[i].key); }", closed_box(page))
    before = node_count(page)
    page.keyboard.press("Enter")
    assert node_count(page) > before
    page.keyboard.press("Enter")
    assert node_count(page) == before
    page.focus("#timelines canvas")
    page.keyboard.press("+")
    low, high = page.evaluate("PW.state().timelines[0].range()")
    assert 0 < low < high < page.evaluate("PW.placements[0].timeline.end")


def test_theme_follows_the_system_and_can_be_changed(show: Open) -> None:
    page = show("one", scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    before = page.locator("#graphs").screenshot()
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.wait_for_timeout(50)
    after = page.locator("#graphs").screenshot()
    assert len(after) > 5_000
    assert before != after


def test_two_placements_side_by_side(show: Open) -> None:
    page = show("two")
    assert page.locator("#graphs canvas").count() == 2
    assert page.locator("#timelines canvas").count() == 2
    assert "What changed: 9 of 314 operators moved" in page.inner_text("#changes-heading")
    assert page.locator("#changes tbody tr").count() > 0
    page.click("#views button:has-text('by hand')")
    assert page.locator("#graphs canvas").count() == 1
    assert page.is_hidden("#changes")


def test_values_of_unlike_objectives_are_not_set_against_each_other(show: Open) -> None:
    assert "time than heft" in show("two").inner_text("#summary")
    text = show("unlike").inner_text("#summary")
    assert "than latency" not in text
    assert "latency, proven bound" in text
    assert "pipeline, proven bound" in text


def test_pipeline_and_invalid(show: Open) -> None:
    page = show("pipeline")
    assert "per second" in page.inner_text("#summary")
    page = show("invalid")
    assert "is not valid" in page.inner_text("#faults")


def test_names_appear_as_text(show: Open) -> None:
    page = show("evil", width=390, height=800)
    assert page.evaluate("window.evil") is None
    assert page.evaluate("PW.model.names[0]") == EVIL[0]
    for word in ("<script>", "onerror", "🚀", "long-"):
        page.fill("#search", word)
        page.keyboard.press("Enter")
        assert word in page.inner_text("#details h3")
    assert page.locator("#details img, #details script, #hits img").count() == 0
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, "a long name must not make the page wider than the screen"
    assert page.evaluate("window.evil") is None


def test_very_many_links_can_all_be_asked_for(show: Open) -> None:
    page = show("links")
    button = page.locator("#timelines button")
    before = page.locator("#timelines canvas").bounding_box()["height"]
    assert "Show all" in button.inner_text()
    button.click()
    assert "busiest" in button.inner_text()
    assert page.locator("#timelines canvas").bounding_box()["height"] > before
