"""The code in README and docs runs: Python blocks as they are, ``$ placewright`` lines with the output they promise."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from placewright.cli.main import app, run
from placewright.errors import MissingExtraError
from placewright.extras import missing_extra

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_page(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    if any("$ " in code and "model.onnx" in code for _, code in blocks):  # the reader's own model
        shutil.copy(request.getfixturevalue("conv_net").onnx, tmp_path / "model.onnx")
    for language, code in blocks:
        try:
            if language == "python":
                exec(compile(code, str(page), "exec"), names)
            else:
                _run_console(code, capsys)
        except MissingExtraError as error:
            pytest.skip(str(error))
        except ImportError as error:
            if (missing := missing_extra(error)) is None:
                raise
            pytest.skip(str(missing))


def _run_console(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, promised = part.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "placewright"
        capsys.readouterr()
        exit_code = run(arguments)
        shown, said = capsys.readouterr()
        if missing := re.search(r"this needs the package '(\w+)': pip install 'placewright\[(\w+)\]'", said):
            raise MissingExtraError(missing[1], missing[2])
        assert exit_code == 0, command
        pattern = ".*".join(re.escape(piece.strip()) for piece in promised.split("..."))
        assert re.search(pattern, shown, re.DOTALL), f"{command} printed:\n{shown}"


def test_commands_that_take_long_are_well_formed() -> None:
    """Commands in indented blocks are not run, but their options exist."""
    from typer.main import get_command

    verbs = get_command(app).commands  # type: ignore[attr-defined]
    seen = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(r"^    (?:\$ )?placewright (.*?)(?:  +#.*)?$", text, re.MULTILINE):
            verb, *arguments = shlex.split(command.partition(" > ")[0])
            verbs[verb].make_context(verb, arguments)
            seen += 1
    assert seen > 5


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", BLOCK.sub("", page.read_text(encoding="utf-8"))):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_links_to_headings_lead_there() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            text = ((page.parent / target) if target else page).read_text(encoding="utf-8")
            anchors = {
                re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
                for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            }
            assert anchor in anchors, f"{page.name}: {target}#{anchor}"


def test_every_placer_and_export_has_a_page() -> None:
    from placewright.export import FORMATS
    from placewright.placers.registry import BUILT_IN

    assert {p.stem for p in (ROOT / "docs" / "placers").glob("*.md")} == set(BUILT_IN)
    assert {p.stem for p in (ROOT / "docs" / "pictures" / "placers").glob("*.svg")} == set(BUILT_IN) - {"expert"}
    exports = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in exports for name in FORMATS)


def test_every_public_name_has_an_example() -> None:
    import placewright

    without = [name for name in placewright.__all__ if ">>> " not in (getattr(placewright, name).__doc__ or "")]
    assert without == []
    assert set(placewright.__all__) <= set(dir(placewright))
