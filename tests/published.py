"""The fixture ``workloads``, and a count of the tests that use it: none is skipped where problems are named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from placewright.errors import InputError
from placewright.testing.published import WORKLOADS, published_problems

_MARK = "needs published problems"  # among the properties of a test's reports, which xdist brings home


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The published problems, where the environment names them."""
    try:
        return published_problems()
    except InputError as error:
        pytest.skip(str(error))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if "workloads" in getattr(item, "fixturenames", ()):
            item.user_properties.append((_MARK, True))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where the problems are named and a test was skipped nevertheless."""
    _, skipped = _counts(session.config)
    if skipped and WORKLOADS in os.environ and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    ran, skipped = _counts(config)
    if ran or skipped:
        terminalreporter.write_line(f"published problems: {ran} tests ran, {skipped} skipped")


def _counts(config: pytest.Config) -> tuple[int, int]:
    """How many tests that need published problems ran and were skipped; none in the workers of xdist."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats if reporter is not None else {}
    marked = [
        (outcome, report.nodeid)
        for outcome, reports in stats.items()
        for report in reports
        if (_MARK, True) in [tuple(p) for p in getattr(report, "user_properties", ())]
    ]
    skipped = {test for outcome, test in marked if outcome in ("skipped", "xfailed")}
    ran = {test for outcome, test in marked if outcome in ("passed", "failed", "error", "xpassed")}
    return len(ran - skipped), len(skipped)
