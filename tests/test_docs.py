"""The code in README and docs runs: Python blocks as they are, ``$ placewright`` lines with the output they promise."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from placewright.cli.main import run

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(code, str(page), "exec"), names)
        else:
            _run_console(code, capsys)


def _run_console(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, promised = part.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "placewright"
        capsys.readouterr()
        assert run(arguments) == 0, command
        shown = capsys.readouterr().out
        pattern = ".*".join(re.escape(piece.strip()) for piece in promised.split("..."))
        assert re.search(pattern, shown, re.DOTALL), f"{command} printed:\n{shown}"


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
