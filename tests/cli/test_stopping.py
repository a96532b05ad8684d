"""Ctrl-C and SIGTERM: whatever a command is doing, it ends with a word or with the best it has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from placewright.budget import Budget, Incumbent
from placewright.cli.main import run
from placewright.placers.base import Found, Placer
from placewright.placers.baselines.random import RandomPlacer
from placewright.problems import Problem

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
UNCOMPILED = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
CHAIN = ["zoo:chain?ops=8", "--cluster", "p100x2"]

# What a solver or a runtime is like: it computes for minutes, holds no lock and hears no signal.
DEAF = "import hashlib\ndef be_deaf(): hashlib.pbkdf2_hmac('sha256', b'', b'', 2_000_000_000)\n"
HINT = "import sys\ndef begin(): print('begun', file=sys.stderr, flush=True)\n"


def ended(code: str, arguments: list[str], number: int) -> tuple[int, str, str]:
    """Run a command line after ``code``, which prints "begun", and send it a signal then."""
    script = (
        f"{DEAF}{HINT}{code}\nfrom placewright.cli.main import main\nsys.argv = ['placewright', *{arguments!r}]\nmain()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=UNCOMPILED
    )
    assert process.stderr is not None
    before = ""
    while "begun" not in before:
        line = process.stderr.readline()
        assert line, before
        before += line
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


SLOW_LOADING = """
import time
from placewright import api
def load(*args, **options):
    begin()
    {wait}
api.load = load
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("wait", ["time.sleep(600)", "be_deaf()"])
def test_loading_is_left_at_once(number: int, code: int, wait: str) -> None:
    returned, out, err = ended(SLOW_LOADING.format(wait=wait), ["place", *CHAIN], number)
    assert (returned, out) == (code, "")
    assert err.splitlines()[-1] == "placewright: stopped while loading zoo:chain?ops=8"


DEAF_SEARCH = """
import numpy as np
from placewright.budget import Incumbent
from placewright.placers.baselines.random import RandomPlacer
def search(self, problem, budget, seed):
    row = np.full(problem.n_ops, 2, dtype=np.int32)
    row[:4] = 1
    budget.knows(lambda: 1 / 0)  # what is asked while it is being changed may fail
    budget.part(5.0).knows(lambda: Incumbent(row, 0.0))
    begin()
    be_deaf()
RandomPlacer.search = search
"""


def test_what_a_library_makes_of_the_interruption_is_not_the_models_fault() -> None:
    """C++ code that calls Python gives an exception of its own back, of which a reader makes an input error."""
    wait = "try: time.sleep(600)\n    except BaseException as error: raise api.InputError('x') from error"
    code, _, err = ended(SLOW_LOADING.format(wait=wait), ["place", *CHAIN], signal.SIGINT)
    assert code == 130, err
    assert "stopped while" in err
    assert "placewright: x" not in err


def test_an_interruption_that_python_ignores_shows_no_traceback() -> None:
    """What is raised in ``__del__`` is lost; the command ends all the same."""
    kept = "class Kept:\n    def __del__(self): time.sleep(600)\n"
    code, _, err = ended(kept + SLOW_LOADING.format(wait="Kept(); time.sleep(600)"), ["place", *CHAIN], signal.SIGINT)
    assert code == 130, err
    assert "Traceback" not in err
    assert "stopped while loading" in err


def test_a_search_that_hears_nothing_ends_with_the_best_it_has_told_of(tmp_path: Path) -> None:
    place = ["place", *CHAIN, "--placer", "random", "-o", str(tmp_path / "p.json"), "--json"]
    code, out, err = ended(DEAF_SEARCH, place, signal.SIGTERM)
    assert code == 0, err
    assert json.loads((tmp_path / "p.json").read_text())["value"] == json.loads(out)["value"]
    assert [device["ops"] for device in json.loads(out)["devices"]] == [0, 4, 4]


def test_compare_ends_with_what_it_has_while_the_next_placer_searches() -> None:
    code, out, err = ended(DEAF_SEARCH, ["compare", *CHAIN, "--placers", "single,random", "--quiet"], signal.SIGINT)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()] == ["single", "random"]


def test_a_second_signal_ends_what_hears_nothing() -> None:
    twice = DEAF_SEARCH.replace("be_deaf()", "import os, signal; os.kill(os.getpid(), signal.SIGINT); be_deaf()")
    code, out, _ = ended(twice, ["place", *CHAIN, "--placer", "random", "--json"], signal.SIGINT)
    assert (code, out) == (130, "")


class Interrupted(Placer):
    """Sends Ctrl-C to its own process while it searches, and goes on until it is heard."""

    name, summary = "interrupted", "a test's"

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        os.kill(os.getpid(), signal.SIGINT)
        while not budget.expired():
            time.sleep(0.01)
        return Found(np.zeros(problem.n_ops, dtype=np.int32))


@pytest.mark.parametrize("verb", [["compare", CHAIN[0], "--json"], ["bench", "--models", CHAIN[0], "--json"]])
def test_no_further_placer_begins(
    verb: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RandomPlacer, "search", Interrupted.search)
    before = signal.getsignal(signal.SIGINT)
    assert run([*verb, "--cluster", "p100x2", "--placers", "random,single", "--budget", "10m"]) == 0
    streams = capsys.readouterr()
    document = json.loads(streams.out)
    assert [r["placer"] for r in document.get("placers", document.get("results"))] == ["random"]
    assert "interrupted, finishing with the best placement so far" in streams.err
    assert signal.getsignal(signal.SIGINT) is before


def test_parts_of_a_budget_end_with_it_and_know_together() -> None:
    whole = Budget(100.0)
    part, apart = whole.part(50.0), whole.apart(50.0, evaluations=7)
    row = np.zeros(1, dtype=np.int32)
    part.part(10.0).knows(lambda: Incumbent(row, 3.0))
    apart.knows(lambda: Incumbent(row, 1.0))
    whole.offer(Incumbent(row, 2.0))
    assert [known.value for known in whole.known()] == [2.0, 3.0]
    assert apart.incumbent is None
    assert apart.evaluations == 7
    whole.interrupt()
    assert part.expired()
    assert apart.expired()
    assert part.remaining_s() == apart.remaining_s() == 0.0
