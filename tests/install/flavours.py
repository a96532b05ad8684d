"""Installs as users have them: each extra alone in an environment of its own, and every first command in it.

``--wheel`` builds what the other runs install. Then, without options, it is tried without extras; ``--alone`` takes
each extra in turn, ``--read-only`` tries the plain install where nothing may be written, as a user without a home.
Kernels run uncompiled (NUMBA_DISABLE_JIT=1), since compiling them takes minutes in every new environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cases import Case, cases_for, compiled, installed_with, quick_start_extras, write_files
from installs import BUILD, Install, build_wheel, built_wheel, fingerprint, nothing_to_write

ALONE = (
    "",
    "openvino",
    "onnx",
    "torch",
    "hf",
    "learn",
    "exact",
    "partition",
    "openvino,onnx",
    quick_start_extras(),
    "all",
)
TIME_LIMIT_S = 300.0
COMPILING_LIMIT_S = 1800.0
PROGRESS = re.compile(r": (\d+ min )?\d+ s( of [\d mins]+)?( · .*)?$")  # "placewright: loading model.onnx: 5 s"


def outcome(case: Case, extras: set[str], answered: bool, said: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What came of a command: its letter, and what is wrong with it.

    A is an answer, E one line, - one line where an earlier command had no answer (``answered`` is false), T a
    traceback, ? anything else.
    """
    lines = said.stderr.strip().splitlines()
    last = lines[-1] if lines else ""
    of_ours = [line for line in lines if line.startswith("placewright: ") and not PROGRESS.search(line)]
    one_line = said.returncode in (2, 3, 4) and len(of_ours) == 1 and last in of_ours
    named = set(re.findall(r"'placewright\[(\w+)\]'|'\.\[(\w+)\]'", last))
    named_extras = {a or b for a, b in named}
    missing = set().union(*(way - extras for way in case.ways))
    should_answer = answered and any(way <= extras for way in case.ways)
    fault = ""
    if "Traceback (most recent call last)" in said.stderr:
        letter, fault = "T", "a traceback"
    elif said.returncode == 0:
        letter = "A"
        if case.exit_code:
            fault = f"exit code 0 instead of {case.exit_code}"
    elif not one_line:
        letter, fault = "?", f"exit code {said.returncode} without one line that says why"
    elif case.exit_code:
        letter = "E"
        if said.returncode != case.exit_code:
            fault = f"exit code {said.returncode} instead of {case.exit_code}"
    elif should_answer:
        letter, fault = "E", "refused, with all that it needs installed"
    elif not answered:
        letter = "-"
    else:
        letter = "E"
        if said.returncode != 2 or not named_extras or not named_extras <= missing:
            fault = f"names {', '.join(sorted(named_extras)) or 'no extra'}; missing: {', '.join(sorted(missing))}"
    return {"letter": letter, "fault": fault, "last_line": last}


def run_case(
    case: Case, python: str, before: Sequence[str], folder: Path, home: str
) -> subprocess.CompletedProcess[str]:
    """Run one command as its own process, with nothing of this one's environment but the path."""
    cwd = folder / case.group if folder != Path("/") else folder
    program = [python] if case.arguments[0] == "-c" else [str(Path(python).with_name("placewright"))]
    environment = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", "NUMBA_DISABLE_JIT": "1"}
    environment.update(case.environment)
    limit_s = COMPILING_LIMIT_S if case.group == "compiled" else TIME_LIMIT_S
    command = [*before, *program, *case.arguments]
    try:
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, "", f"no answer within {limit_s:g} s")


def try_all(
    cases: Sequence[Case], extras: str, python: str, before: Sequence[str], folder: Path, home: str
) -> list[dict[str, Any]]:
    """Run all cases, two at a time; a case waits for those that it counts on."""
    have = installed_with(extras)
    ended = {case.name: threading.Event() for case in cases}
    assert len(ended) == len(cases), "two cases have one name"
    rows: dict[str, dict[str, Any]] = {}

    def one(case: Case) -> None:
        try:
            for name in case.after:
                ended[name].wait()
            began = time.perf_counter()
            answered = all(rows.get(name, {}).get("letter") == "A" for name in case.after)
            found = outcome(case, have, answered, said := run_case(case, python, before, folder, home))
            seconds = round(time.perf_counter() - began, 1)
            rows[case.name] = {"case": case.name, "group": case.group, **found, "seconds": seconds}
            if found["fault"]:
                rows[case.name]["stderr"] = said.stderr[-3000:]
        finally:
            ended[case.name].set()

    with ThreadPoolExecutor(2) as pool:  # in order: what a case waits for has begun
        list(pool.map(one, cases))
    return [rows[case.name] for case in cases]


def try_install(extras: str, install: Install, read_only: bool) -> list[dict[str, Any]]:
    """All cases of one install."""
    cases = [*cases_for(extras), *(compiled() if read_only else ())]
    with tempfile.TemporaryDirectory(prefix="placewright-install-") as name:
        work = Path(name)
        write_files(work, {case.group for case in cases})
        if not read_only:
            return try_all(cases, extras, install.python, (), work, str(work))
        work.chmod(0o755)
        with nothing_to_write(install, work) as before:
            rows = try_all(cases, extras, install.python, before, work, "/nonexistent")
            # What writes no file of its own does so without any folder to write to.
            silent = [case for case in cases if case.group in ("placers", "place") and "-o" not in case.arguments]
            silent.append(compiled()[0])
            without = try_all(silent, extras, install.python, before, Path("/"), "/nonexistent")
        return rows + [{**row, "case": f"no folder: {row['case']}"} for row in without]


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Rows of installs, columns of groups of cases, letters in the order of the cases; a fault has a ``!``."""
    groups = list(dict.fromkeys(row["group"] for rows in results.values() for row in rows))
    lines = ["| extra | " + " | ".join(groups) + " | s |", "| --- |" + " --- |" * (len(groups) + 1)]
    for extras, rows in results.items():
        cells = []
        for group in groups:
            letters = [row["letter"] + ("!" if row["fault"] else "") for row in rows if row["group"] == group]
            if len(letters) > 12:
                letters = [f"{letters.count(letter)} {letter}" for letter in sorted(set(letters))]
            cells.append(" ".join(letters))
        lines.append(f"| {extras} | {' | '.join(cells)} | {sum(row['seconds'] for row in rows):.0f} |")
    return "\n".join(lines)


def faults(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """One line for each wrong outcome."""
    return [
        f"{extras}: {row['case']}: {row['fault']}: {row['last_line']}"
        for extras, rows in results.items()
        for row in rows
        if row["fault"]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", action="store_true", help="build the wheel, and end there")
    parser.add_argument("--install", action="store_true", help="install only: what follows is quick then")
    parser.add_argument("--alone", action="store_true", help="each extra alone, not only none")
    parser.add_argument("--extras", action="append", metavar="A,B", help="these extras; may be given several times")
    parser.add_argument("--read-only", action="store_true", help="the plain install where nothing may be written, too")
    parser.add_argument("--keep", action="store_true", help="keep environments with extras (2 GB where torch is in)")
    parser.add_argument("--resume", action="store_true", help="leave out what this very wheel was tried with before")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no other install after so long")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install into")
    options = parser.parse_args()
    if options.wheel:
        print(build_wheel())
        return 0
    started = time.perf_counter()
    wheel = built_wheel()
    flavours = options.extras or (ALONE if options.alone else ("",))
    wanted = {extras or "none": (extras, False) for extras in flavours}
    if options.read_only:
        wanted["none, read-only"] = ("", True)
    mark = fingerprint(wheel)
    results: dict[str, list[dict[str, Any]]] = {}
    for name, (extras, read_only) in wanted.items():
        install = Install(extras, options.python)
        kept = BUILD / f"flavours-{install.version}.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        known = known["results"] if known.get("wheel") == mark else {}
        if options.resume and name in known:
            results[name] = known[name]
            continue
        if time.perf_counter() - started > 60 * options.minutes:
            continue
        install.make(wheel)
        if options.install:
            continue
        began = time.perf_counter()
        results[name] = try_install(extras, install, read_only)
        print(f"{name}: {len(results[name])} commands, {time.perf_counter() - began:.0f} s", flush=True)
        kept.write_text(json.dumps({"wheel": mark, "results": {**known, **results}}, indent=1))
        if extras and not options.keep:
            install.remove()
    if options.install:
        return 0
    print(table(results), *faults(results), sep="\n")
    left = [name for name in wanted if name not in results]
    if left:
        print(f"not tried within {options.minutes:g} minutes: {'; '.join(left)}")
    return bool(faults(results))


if __name__ == "__main__":
    sys.exit(main())
