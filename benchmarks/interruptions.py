"""Ends verbs at random moments by KILL, TERM or INT and looks at what they leave behind.

    python benchmarks/interruptions.py --signal KILL --times 34 --folder /tmp/interruptions
    python benchmarks/interruptions.py --signal INT --times 6 --folder /tmp/interruptions --verbs place,compare

After KILL: every output is whole or absent, a memo is an intact database that has every measurement seen in it
before, the side file of a profile and the checkpoint of a training can be gone on with, and no process is left. After
TERM and INT the command also has to end within ``--limit`` seconds, in one line or with an answer.

Trials are kept in FOLDER/trials.jsonl: a run that is ended goes on where it stood. One row per verb and signal is
printed, and written with ``--rows FILE``. NUMBA_DISABLE_JIT=1 in the environment makes small problems start without
compiling.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "PLACEWRIGHT_INTERRUPTION"
CHAIN, LAYERED, NET = "zoo:chain?ops=12", "zoo:layered?ops=40", "zoo:mobilenet?image=32"
LONGEST_S = 30.0  # of a first, whole run; moments are drawn from what it took
ORPHAN_LIMIT_S = 8.0  # a worker may take so long to notice that its parent is gone


@dataclass(frozen=True)
class Verb:
    """A command line, the files it makes, and what is counted in them while it runs."""

    words: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    goes_on_with: tuple[str, ...] = ()
    count: Callable[[Path], int] = lambda folder: 0
    is_whole: Callable[[Path], bool] = lambda folder: True


def _memo_rows(folder: Path) -> int:
    if not (folder / "memo.db").exists():
        return 0
    try:
        with sqlite3.connect(f"file:{folder / 'memo.db'}?mode=ro", uri=True, timeout=10) as database:
            return int(database.execute("select count(*) from measurement").fetchone()[0])
    except sqlite3.OperationalError:  # the table is not made yet
        return 0


def _memo_is_whole(folder: Path) -> bool:
    if not (folder / "memo.db").exists():
        return True
    with sqlite3.connect(folder / "memo.db", timeout=10) as database:
        return database.execute("pragma integrity_check").fetchone()[0] == "ok"


def _journal_lines(folder: Path) -> int:
    path = folder / "profile.json.partial"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _journal_is_whole(folder: Path) -> bool:
    path = folder / "profile.json.partial"
    if not path.exists():
        return True
    content = path.read_bytes()
    return all(json.loads(line) is not None for line in content[: content.rfind(b"\n") + 1].splitlines())


def _training_is_whole(folder: Path) -> bool:
    import torch
    from safetensors import safe_open

    checkpoint, policy = folder / "policy.safetensors.checkpoint", folder / "policy.safetensors"
    if policy.exists():
        with safe_open(policy, framework="numpy") as weights:
            assert weights.keys()
    return not checkpoint.exists() or "state" in torch.load(checkpoint, map_location="cpu", weights_only=True)


def _trainings(folder: Path) -> int:
    """A checkpoint, or the policy that takes its place when the training is over."""
    return int(any(folder.glob("policy.safetensors*")))


VERBS = {
    "place --measure": Verb(
        ("place", NET, "--cluster", "cores:2", "--placer", "random", "--budget", "1s", "--measure", "openvino",
         "--memo", "memo.db", "-o", "placed.json", "--json"),
        ("placed.json",), ("memo.db*",), _memo_rows, _memo_is_whole,
    ),
    "profile": Verb(
        ("profile", NET, "--cluster", "cores:2", "--repeats", "200", "--resume", "-o", "profile.json", "--json"),
        ("profile.json",), ("profile.json*",), _journal_lines, _journal_is_whole,
    ),
    "train": Verb(
        ("train", "hsdag", LAYERED, "--cluster", "p100x4", "--evaluations", "100000", "--resume", "-o",
         "policy.safetensors", "--json"),
        (), ("policy.safetensors*",), _trainings, _training_is_whole,
    ),
    "report": Verb(("report", "given.json", "-o", "report.html"), ("report.html",)),
    "export": Verb(("export", "given.json", "--to", "trace", "-o", "trace.json"), ("trace.json",)),
    "run": Verb(
        ("run", NET, "given.json", "--runtime", "openvino", "--samples", "200", "--repeats", "5", "--json"),
    ),
    "place": Verb(("place", CHAIN, "--cluster", "p100x4", "--placer", "random", "--evaluations", "1000000", "-o",
                   "plain.json", "--json"), ("plain.json",)),
    "compare": Verb(("compare", CHAIN, "--cluster", "p100x4", "--placers", "random,anneal,topo", "--json")),
    "evaluate": Verb(("evaluate", NET, "given.json", "--json")),
    "bench": Verb(("bench", "--models", CHAIN, "--json")),
}  # fmt: skip
KILLED = ("place --measure", "profile", "train", "report", "export", "run")


def main() -> None:
    """Run the trials that are missing, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signal", choices=("KILL", "TERM", "INT"), default="KILL")
    parser.add_argument("--times", type=int, default=34, help="trials of each verb")
    parser.add_argument(
        "--verbs", help="comma-separated; those that write something if not given, all for TERM and INT"
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=2.0, help="seconds from TERM or INT to the end")
    parser.add_argument("--earliest", type=float, default=0.3, help="the earliest moment, in seconds")
    parser.add_argument("--longest", type=float, default=LONGEST_S, help="the latest moment, in seconds")
    parser.add_argument("--rows", type=Path, help="write one row per verb and signal here")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    names = given.verbs.split(",") if given.verbs else KILLED if given.signal == "KILL" else tuple(VERBS)
    log = given.folder / "trials.jsonl"
    _make_given(given.folder)
    for name in names:
        done = [t for t in _trials(log) if t["verb"] == name]
        longest_s = next((t["whole_run_s"] for t in done), None) or _whole_run_s(name, given.folder, given.longest)
        for number in range(sum(t["signal"] == given.signal for t in done), given.times):
            delay_s = random.Random(f"{given.seed} {name} {given.signal} {number}").uniform(
                min(given.earliest, longest_s), longest_s
            )
            trial = _trial(name, given.folder, getattr(signal, f"SIG{given.signal}"), delay_s)
            trial |= {"verb": name, "signal": given.signal, "number": number, "whole_run_s": longest_s}
            with log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(trial) + "\n")
            if trial["faults"]:
                print(json.dumps(trial), flush=True)
    rows = _rows(_trials(log), given.limit)
    for row in rows:
        print(json.dumps(row))
    if given.rows is not None:
        given.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _trials(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def _make_given(folder: Path) -> None:
    """A pipeline that the verbs which read one are given."""
    if not (folder / "given.json").exists():
        words = ("place", NET, "--cluster", "cores:2", "--objective", "throughput", "--placer", "topo", "--quiet")
        subprocess.run([*_command(words), "-o", "given.json"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "placewright", *words]


def _start(words: tuple[str, ...], folder: Path, mark: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(_command(words), cwd=folder, env={**os.environ, MARK: mark}, **pipes)  # type: ignore[call-overload,no-any-return]


def _whole_run_s(name: str, folder: Path, longest_s: float) -> float:
    """How long a run takes that nobody ends, at most ``longest_s``."""
    began = time.monotonic()
    process = _start(VERBS[name].words, folder, "whole run")
    try:
        process.communicate(timeout=longest_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    return time.monotonic() - began


def _trial(name: str, folder: Path, number: int, delay_s: float) -> dict[str, Any]:
    verb, mark = VERBS[name], uuid.uuid4().hex
    before = verb.count(folder)
    stamps = {path: _stamp(folder / path) for path in verb.outputs}
    process = _start(verb.words, folder, mark)
    try:
        process.wait(delay_s)
        has_ended = True
    except subprocess.TimeoutExpired:
        has_ended = False
    seen = verb.count(folder)  # is on file now, so it has to be there afterwards
    process.send_signal(number)
    began = time.monotonic()
    try:
        stdout, stderr = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
    ended_s = time.monotonic() - began
    faults = []
    for path in verb.outputs:
        if (folder / path).exists() and not _reads(folder / path):
            faults.append(f"{path} is not whole")
    if not verb.is_whole(folder):
        faults.append("side file is not whole")
    after = verb.count(folder)
    is_over = any((folder / path).exists() and _stamp(folder / path) != stamps[path] for path in verb.outputs)
    lost = max(0, max(before, seen) - after) if name != "profile" or not is_over else 0
    orphans = _orphans(mark)
    if "Traceback" in stderr and "placewright/" in stderr:
        faults.append(f"traceback: {stderr.splitlines()[-1]}")
    parts = [path.name for path in folder.iterdir() if path.name.endswith(".part")]
    for path in parts:
        (folder / path).unlink()
    for path in [p for pattern in verb.goes_on_with for p in folder.glob(pattern)] if has_ended else []:
        path.unlink()  # all done: the next one begins anew
    return {
        "load": os.getloadavg()[0],
        "delay_s": round(delay_s, 3), "had_ended": has_ended, "code": process.returncode, "ended_s": round(ended_s, 3),
        "present": is_over, "lost": lost, "orphans": orphans, "parts": len(parts), "faults": faults,
        "said": stderr.strip().splitlines()[-1:] or stdout.strip().splitlines()[-1:],
    }  # fmt: skip


def _stamp(path: Path) -> tuple[int, int] | None:
    return (path.stat().st_mtime_ns, path.stat().st_ino) if path.exists() else None


def _reads(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        return text.rstrip().endswith("</html>")
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _orphans(mark: str) -> int:
    """Processes of that trial that are left after a while; they are ended, for the next trial's sake."""
    end = time.monotonic() + ORPHAN_LIMIT_S
    while (left := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)


def _marked(mark: str) -> list[int]:
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:  # it has just ended, or is somebody else's
                continue
    return found


def _rows(trials: list[dict[str, Any]], limit_s: float) -> list[dict[str, Any]]:
    rows = []
    for verb, number in sorted({(t["verb"], t["signal"]) for t in trials}):
        mine = [t for t in trials if (t["verb"], t["signal"]) == (verb, number)]
        hit = [t for t in mine if not t["had_ended"]]
        row = {
            "verb": verb, "signal": number, "trials": len(mine), "while_running": len(hit),
            "whole": sum(not t["faults"] for t in mine), "with_output": sum(t["present"] for t in mine),
            "lost": sum(t["lost"] for t in mine), "orphans": sum(t["orphans"] for t in mine),
            "parts_left": sum(t["parts"] for t in mine),
            "longest_end_s": max((t["ended_s"] for t in hit), default=0.0),
        }  # fmt: skip
        if number != "KILL":
            row["over_limit"] = sum(t["ended_s"] > limit_s for t in hit)
            row["outside"] = sum(t["code"] < 0 for t in hit)  # the interpreter was only starting, or already closing
            row["load"] = round(max(t["load"] for t in mine), 1)  # of the machine, whose cores are others' too
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
