"""What counts as an answer, as a right refusal, and as a fault; that the cases are those of the pages."""

from __future__ import annotations

import subprocess

import pytest
from cases import Case, cases_for, commands, need, quick_start_extras
from flavours import ALONE, outcome, table

FILE = Case("model.onnx", "profile file", ("profile", "model.onnx"), need("onnx,openvino"))
WRONG = Case("exit codes", "no such file", ("place", "missing.onnx"), exit_code=2)
NO_ONNX = "placewright: this needs the package 'onnx_ir': pip install 'placewright[onnx]'"


@pytest.mark.parametrize(
    ("case", "extras", "answered", "exit_code", "stderr", "letter", "is_fault"),
    [
        (FILE, {"onnx", "openvino"}, True, 0, "compiling: 3 s\n", "A", False),
        (FILE, {"openvino"}, True, 2, NO_ONNX, "E", False),
        (FILE, {"openvino"}, True, 2, f"compiling: 3 s\n{NO_ONNX}", "E", False),
        (FILE, {"openvino"}, True, 2, f"placewright: loading model.onnx: 5 s\n{NO_ONNX}", "E", False),
        (FILE, {"onnx"}, True, 2, NO_ONNX, "E", True),  # names what is there
        (FILE, {"onnx", "openvino"}, True, 2, NO_ONNX, "E", True),  # all is there
        (FILE, set(), True, 2, "placewright: model.onnx: cannot be read", "E", True),  # names no extra
        (FILE, set(), True, 3, NO_ONNX, "E", True),
        (FILE, set(), False, 2, "placewright: placement.json: cannot be read", "-", False),
        (FILE, set(), True, 1, "Traceback (most recent call last):\nModuleNotFoundError: no onnx_ir", "T", True),
        (FILE, set(), True, 2, f"{NO_ONNX}\n{NO_ONNX}", "?", True),
        (FILE, {"onnx", "openvino"}, True, -11, "", "?", True),
        (WRONG, set(), True, 2, "placewright: missing.onnx: cannot be read", "E", False),
        (WRONG, set(), True, 4, "placewright: missing.onnx: cannot be read", "E", True),
        (WRONG, set(), True, 0, "", "A", True),
    ],
)
def test_outcomes(
    case: Case, extras: set[str], answered: bool, exit_code: int, stderr: str, letter: str, is_fault: bool
) -> None:
    found = outcome(case, extras, answered, subprocess.CompletedProcess([], exit_code, "", stderr))
    assert (found["letter"], bool(found["fault"])) == (letter, is_fault), found


def test_a_fault_shows_in_the_table() -> None:
    row = {"case": "place", "group": "place", "letter": "E", "fault": "names torch", "last_line": "", "seconds": 1.0}
    assert table({"onnx": [row]}).splitlines()[-1] == "| onnx | E! | 1 |"


def test_pages_are_tried_as_they_stand() -> None:
    assert quick_start_extras() in ALONE
    named = {case.arguments for case in cases_for(quick_start_extras())}
    for page in ("README.md", "docs/quick-start.md"):
        assert commands(page)
        assert set(commands(page)) <= named


def test_names_are_used_once() -> None:
    for extras in ALONE:
        names = [case.name for case in cases_for(extras)]
        assert len(names) == len(set(names))
