"""Changed files of every kind through their readers: nothing but one-line errors, no hang, no flood of memory.

    python benchmarks/fuzz_readers.py --seconds 600 --state build/fuzz
    python benchmarks/fuzz_readers.py --inputs 200 --readers cluster memo

Files are made from small good ones by ``fuzz_mutators.py``, seven eighths of them well-formed; input number i of a
reader is the same on every machine. Each reader works in a process of its own, uncompiled. A finding is an exception
other than ``InputError``, a message of several lines or without the file's name, more than 10 s of the processor or
60 s in all, more than 2 GiB of memory beyond what imports took, or the end of the process; its input is kept under
``STATE/findings``. With ``--state`` a run goes on where the last one stopped. Exit code 1 if there were findings.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fuzz_mutators import MUTATORS, raw

RAW_SHARE = 1 / 8
LIMIT_S, SILENCE_S = 10, 60  # of one input, of the processor; of the process, where no signal is heard
MOST_BYTES = 2 * 2**30
TRACED = 20  # every so many inputs the lines are counted


class TooLong(BaseException):
    """Passes every ``except Exception``."""


def work(reader: str, first: int, count: int, folder: Path) -> None:
    """In the process: some inputs, one JSON line about each."""
    from fuzz_corpora import READERS

    chosen = READERS[reader]
    corpus = chosen.corpus(folder)
    module_files = _files_of(chosen.modules)
    reached: set[tuple[str, int]] = set()
    for file in corpus:  # imports, and the proof that what is mutated is good
        chosen.read(file)
    print(json.dumps({"ready": _resident_bytes(), "lines": _executable_lines(module_files)}), flush=True)
    signal.signal(signal.SIGPROF, _too_long)
    for number in range(first, first + count):
        rng = random.Random(f"{reader}/{number}")
        good = rng.choice(corpus)
        is_raw = rng.random() < RAW_SHARE
        (folder / "number").write_text(str(number))
        content = raw(good.read_bytes(), rng) if is_raw else _mutant(good.read_bytes(), MUTATORS[chosen.kind], rng)
        file = folder / f"mutant{good.suffix}" if chosen.fixed_name is None else folder / "mutant" / chosen.fixed_name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        for beside in good.parent.glob(f"{good.stem}.bin"):
            shutil.copy(beside, file.with_suffix(".bin"))
        before = len(reached)
        if number % TRACED == 0:
            sys.settrace(lambda frame, event, arg: _trace(frame, module_files, reached))
        outcome, site = _outcome(chosen, file)
        sys.settrace(None)
        if outcome == "finding":  # the next input takes the file's place
            file = folder / f"found-{number}{file.suffix}"
            file.write_bytes(content)
        line = {"number": number, "outcome": outcome, "site": site, "raw": is_raw, "file": str(file)}
        if len(reached) > before:
            line["reached"] = sorted(reached)
        print(json.dumps(line), flush=True)


def _mutant(content: bytes, mutator: Any, rng: random.Random) -> bytes:
    """What a writer of the format can write of a changed tree: not every tree can be written."""
    while True:
        try:
            return bytes(mutator(content, rng))
        except Exception:
            continue


def _outcome(chosen: Any, file: Path) -> tuple[str, str]:
    from placewright.errors import InputError

    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        chosen.read(file)
    except InputError as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        text = str(error)
        name = file.parent.name if chosen.fixed_name else file.name
        if not text.isprintable():
            return "finding", f"message of several lines: {text[:200]!r}"
        return ("refused", "") if name in text else ("finding", f"message without the file's name: {text[:200]}")
    except TooLong as error:
        return "finding", f"over {LIMIT_S} s at {_site(error)}"
    except (Exception, SystemExit) as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return "finding", f"{type(error).__name__} at {_site(error)}: {str(error)[:200]!r}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "accepted", ""


def _too_long(number: int, frame: Any) -> None:
    raise TooLong


def _site(error: BaseException) -> str:
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if "placewright" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"


def _files_of(modules: tuple[str, ...]) -> set[str]:
    from importlib.util import find_spec

    specs = [find_spec(f"placewright.{module}") for module in modules]
    return {spec.origin for spec in specs if spec is not None and spec.origin is not None}


def _executable_lines(files: set[str]) -> int:
    total = 0
    for file in files:
        todo, lines = [compile(Path(file).read_text(encoding="utf-8"), file, "exec")], set()
        while todo:
            code = todo.pop()
            todo += [c for c in code.co_consts if hasattr(c, "co_lines")]
            if code.co_name != "<module>":
                lines |= {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
        total += len(lines)
    return total


def _trace(frame: Any, files: set[str], reached: set[tuple[str, int]]) -> Any:
    if frame.f_code.co_filename not in files:
        return None

    def line(inner: Any, event: str, arg: Any) -> Any:
        if event == "line":
            reached.add((Path(inner.f_code.co_filename).name, inner.f_lineno))
        return line

    return line


def _resident_bytes(pid: int | str = "self") -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


class Watched:
    """A reader's process and what it has said."""

    def __init__(self, reader: str, first: int, count: int, folder: Path) -> None:
        self.folder, self.base, self.spoke, self.peak = folder, 0, time.monotonic(), 0
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", reader, str(first), str(count), str(folder)],
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("ab"),
            env={**os.environ, "NUMBA_DISABLE_JIT": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        os.set_blocking(self.process.stdout.fileno(), False)  # type: ignore[union-attr]
        self._rest = b""

    def lines(self) -> list[dict[str, Any]]:
        """What came since the last time."""
        content = self.process.stdout.read() or b""  # type: ignore[union-attr]
        *whole, self._rest = (self._rest + content).split(b"\n")
        if content:
            self.spoke = time.monotonic()
        self.peak = max(self.peak, _resident_bytes(self.process.pid))
        return [json.loads(line) for line in whole if line.startswith(b"{")]

    def why_stopped(self) -> str:
        """Why the process has to end; empty if it need not."""
        if self.base and self.peak > self.base + MOST_BYTES:
            return f"more than {MOST_BYTES >> 30} GiB of memory"
        if time.monotonic() - self.spoke > (SILENCE_S if self.base else 300):
            return f"over {SILENCE_S} s, no signal is heard"
        return ""


def run(reader: str, first: int, count: int, ends_s: float, state: Path) -> dict[str, Any]:
    """Inputs of a reader until they are done or the time is up; what came of them."""
    figures: dict[str, Any] = {
        "inputs": 0, "accepted": 0, "refused": 0, "findings": 0, "raw": 0, "reached": [], "lines": 0, "sites": {},
        "peak": 0,
    }  # fmt: skip
    sites: Counter[str] = Counter()
    reached: set[tuple[str, int]] = set()
    end = first + count
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while first < end and time.monotonic() < ends_s:
            watched = Watched(reader, first, end - first, folder)
            stopped = ""
            try:
                while True:
                    has_ended = watched.process.poll() is not None
                    for line in watched.lines():
                        if "ready" in line:
                            watched.base, figures["lines"] = line["ready"], line["lines"]
                            continue
                        first = line["number"] + 1
                        figures["inputs"] += 1
                        figures["raw"] += line["raw"]
                        reached |= {tuple(r) for r in line.get("reached", [])}  # type: ignore[misc]
                        figures["findings" if line["outcome"] == "finding" else line["outcome"]] += 1
                        if line["outcome"] == "finding":
                            _keep(reader, line["number"], line["site"], Path(line["file"]), state, sites)
                    stopped = watched.why_stopped()
                    if has_ended or stopped or time.monotonic() > ends_s:
                        break
                    time.sleep(0.05)
            finally:
                watched.process.kill()
                watched.process.wait()
            figures["peak"] = max(figures["peak"], watched.peak - watched.base)
            code = watched.process.returncode
            if not watched.base and (has_ended or stopped):
                raise RuntimeError(f"{reader}: {(folder / 'stderr').read_text()[-2000:]}")
            if stopped or (has_ended and first < end and code != 0):
                why = stopped or f"the process ended ({code})"
                number = int((folder / "number").read_text()) if (folder / "number").exists() else first
                mutants = [f for f in [*folder.glob("mutant.*"), *folder.glob("mutant/*")] if f.is_file()]
                newest = max(mutants, key=lambda f: f.stat().st_mtime)
                _keep(reader, number, why, newest, state, sites)
                figures["inputs"], figures["findings"], first = (
                    figures["inputs"] + 1,
                    figures["findings"] + 1,
                    number + 1,
                )
    figures["reached"], figures["sites"], figures["next"] = sorted(reached), dict(sites), first
    return figures


def _keep(reader: str, number: int, site: str, file: Path, state: Path, sites: Counter[str]) -> None:
    key = site.partition(": ")[0]
    sites[key] += 1
    if sites[key] <= 3:
        (state / "findings").mkdir(parents=True, exist_ok=True)
        shutil.copy(file, state / "findings" / f"{reader}-{number}{file.suffix}")
        with (state / "findings" / "sites.txt").open("a") as stream:
            stream.write(f"{reader} {number}: {site}\n")
        print(f"{reader} {number}: {site}", flush=True)


def main() -> int:
    from fuzz_corpora import READERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.0, help="for all readers together")
    parser.add_argument("--inputs", type=int, default=0, help="per reader, from the first one on")
    parser.add_argument("--readers", nargs="*", default=list(READERS), choices=list(READERS))
    parser.add_argument("--jobs", type=int, default=2, help="readers at work at the same time")
    parser.add_argument("--state", type=Path, default=None, help="folder of findings; goes on from there")
    given = parser.parse_args()
    state = given.state or Path("build/fuzz-once")
    results: dict[str, dict[str, Any]] = {}
    state.mkdir(parents=True, exist_ok=True)
    kept = state / "state.json"
    known: dict[str, Any] = json.loads(kept.read_text()) if given.state and kept.exists() else {}
    share_s = given.seconds * given.jobs / len(given.readers)

    def one(reader: str) -> tuple[str, dict[str, Any]]:
        first = known.get(reader, {}).get("next", 0) if not given.inputs else 0
        count = READERS[reader].most(given.inputs) if given.inputs else 10**9
        ends_s = time.monotonic() + share_s if given.seconds else float("inf")
        return reader, run(reader, first, count, ends_s, state)

    with ThreadPoolExecutor(given.jobs) as pool:
        for reader, figures in pool.map(one, given.readers):
            results[reader] = figures
            print(_line(reader, figures), flush=True)
            if given.state:
                known[reader] = _sum(known.get(reader), figures)
                kept.write_text(json.dumps(known))
    print("\n" + _head())
    for reader, figures in (known or results).items():
        print(_line(reader, figures))
    return 1 if any(figures["findings"] for figures in results.values()) else 0


def _sum(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    if before is None:
        return now
    total = {**now, **{name: before[name] + now[name] for name in ("inputs", "accepted", "refused", "findings", "raw")}}
    total["reached"] = sorted({tuple(r) for r in [*before["reached"], *now["reached"]]})
    total["peak"] = max(before["peak"], now["peak"])
    return total


def _head() -> str:
    names = f"{'reader':<12}{'inputs':>8}{'accepted':>10}{'refused':>9}{'findings':>10}"
    return names + f"{'well-formed':>13}{'lines':>12}{'MiB':>7}"


def _line(reader: str, f: dict[str, Any]) -> str:
    formed = f"{100 * (1 - f['raw'] / f['inputs']):.0f}%" if f["inputs"] else "-"
    lines = f"{len(f['reached'])}/{f['lines']}"
    return (
        f"{reader:<12}{f['inputs']:>8}{f['accepted']:>10}{f['refused']:>9}{f['findings']:>10}{formed:>13}{lines:>12}"
        f"{max(0, f['peak']) >> 20:>7}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
    else:
        sys.exit(main())
