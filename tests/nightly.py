"""What takes long, for so many hours: all flavours of installs, then new random problems and changed files.

``python tests/nightly.py HOURS`` goes on where the last run stopped: the flavours that this wheel was tried with are
not tried again, and the numbers of random problems (``build/nightly.json``) and of changed files (``build/fuzz``) go
on. A lot that has begun is finished.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from parts import PYTHON, ROOT, run_part, times

STATE = ROOT / "build" / "nightly.json"
FIRST_PROBLEM = 1_000  # below: the problems of make test
LOT = 200  # random problems in one go
FUZZ_S = 600  # seconds of changed files after each


def next_problem(state: Path) -> int:
    """The number of the first problem that is still to be tried."""
    return int(json.loads(state.read_text())["next_problem"]) if state.exists() else FIRST_PROBLEM


def main(hours: float) -> int:
    ends_s = time.monotonic() + 3600 * hours
    results: dict[str, tuple[int, float]] = {}
    try:
        results["wheel"] = run_part((PYTHON, "tests/install/flavours.py", "--wheel"))
        if not results["wheel"][0]:
            flavours = (PYTHON, "tests/install/flavours.py", "--alone", "--read-only", "--resume")
            results["flavours"] = run_part((*flavours, "--minutes", f"{60 * hours:g}"))
        while time.monotonic() < ends_s:
            first = next_problem(STATE)
            command = (PYTHON, "benchmarks/random_problems.py", "--problems", str(LOT), "--first", str(first))
            results[f"problems {first:,}"] = run_part(command)
            STATE.write_text(json.dumps({"next_problem": first + LOT}))
            seconds = min(FUZZ_S, max(60.0, ends_s - time.monotonic()))
            fuzz = (PYTHON, "benchmarks/fuzz_readers.py", "--seconds", f"{seconds:.0f}", "--state", "build/fuzz")
            results[f"files after {first:,}"] = run_part(fuzz)
    except KeyboardInterrupt:
        print("stopped; the next run goes on from here")
    print(times(results, list(results)))
    return next((code for code, _ in results.values() if code), 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))
