"""``make test`` in parts: each runs whatever came of those before it, and the time of each is printed at the end.

``python tests/parts.py`` runs all, ``python tests/parts.py lint types`` some of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
_FLAVOURS = (PYTHON, "tests/install/flavours.py")
_CORE = sorted(str(path.relative_to(ROOT)) for kind in ("*.h", "*.cpp") for path in (ROOT / "core").rglob(kind))
PARTS: dict[str, tuple[str, ...]] = {
    "format": (PYTHON, "-m", "ruff", "format", "--check", "."),
    "format of the core": (str(Path(PYTHON).with_name("clang-format")), "--dry-run", "-Werror", *_CORE),
    "lint": (PYTHON, "-m", "ruff", "check", "."),
    "types": (PYTHON, "-m", "mypy"),
    "wheel": (*_FLAVOURS, "--wheel"),
    "installation": (*_FLAVOURS, "--install"),
    "plain install": _FLAVOURS,
    "random problems": (PYTHON, "benchmarks/random_problems.py", "--problems", "300"),
    "changed files": (PYTHON, "benchmarks/fuzz_readers.py", "--inputs", "100"),
    "sanitized core": (PYTHON, "tests/sanitized.py", "--problems", "300"),
    "tests": (PYTHON, "-m", "pytest", "-n", "2", "-q", "tests", "src"),
}
NOT_COUNTED = {"installation"}  # it takes what the network gives


def run_part(command: tuple[str, ...]) -> tuple[int, float]:
    """Run a command at the root; return its exit code and its time in seconds."""
    began = time.perf_counter()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return code if code >= 0 else 128 - code, time.perf_counter() - began


def times(results: dict[str, tuple[int, float]], wanted: list[str]) -> str:
    """A table of the parts: what came of each, and how long it took.

    >>> print(times({"lint": (0, 2.4), "tests": (1, 600.0)}, ["lint", "tests", "docs"]))
    part                 result      time
    lint                 passed      0:02
    tests                exit 1     10:00
    docs                 not run        -
    together             exit 1     10:02
    """
    lines = [_line("part", "result", "time")]
    for name in wanted:
        if name not in results:
            lines.append(_line(name, "not run", "-"))
            continue
        code, seconds = results[name]
        shown = _clock(seconds) + (" (not counted)" if name in NOT_COUNTED else "")
        lines.append(_line(name, f"exit {code}" if code else "passed", shown))
    counted = sum(seconds for name, (_, seconds) in results.items() if name not in NOT_COUNTED)
    code = exit_code(results)
    return "\n".join([*lines, _line("together", f"exit {code}" if code else "passed", _clock(counted))])


def exit_code(results: dict[str, tuple[int, float]]) -> int:
    """That of the first part that failed.

    >>> exit_code({"lint": (0, 1.0), "tests": (5, 1.0), "docs": (1, 1.0)})
    5
    """
    return next((code for code, _ in results.values() if code), 0)


def _line(name: str, result: str, time_shown: str) -> str:
    return f"{name:<20} {result:<8} {time_shown:>7}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def main() -> int:
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    results: dict[str, tuple[int, float]] = {}
    try:
        for name in wanted:
            print(f"== {name}", flush=True)
            results[name] = run_part(PARTS[name])
    except KeyboardInterrupt:
        print(times(results, wanted))
        return 130
    print(times(results, wanted), flush=True)
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
