"""Rows of a benchmark in a file of JSON lines: each run adds one, so a benchmark may be stopped and gone on with."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Rows:
    """Finished runs. ``only``: texts joined by "|", one of which a run's key has to contain."""

    def __init__(self, path: Path, only: str, stop_after_s: float) -> None:
        self.path, self.only, self._until = path, only, time.monotonic() + stop_after_s
        self.rows: list[Row] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wants(self, **key: Any) -> bool:
        text = " ".join(str(v) for v in key.values())
        is_known = any("left out" not in row for row in self.of(**key))
        return not is_known and any(o in text for o in self.only.split("|")) and time.monotonic() < self._until

    def add(self, row: Row) -> None:
        self.rows.append(row)
        line = f"{json.dumps(row)}\n".encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)  # at once: other processes may add to the same file
        finally:
            os.close(file)
        print(json.dumps({k: v for k, v in row.items() if k != "curve"}), flush=True)

    def of(self, **key: Any) -> list[Row]:
        return [row for row in self.rows if all(row.get(k) == v for k, v in key.items())]


def side_by_side(do: Callable[[Any], None], tasks: Sequence[Any], jobs: int, until: float) -> None:
    """Do tasks in order in so many processes, each alone on a core; when the time is over (``until``), leave the rest.

    Compile before: processes that compile the same kernels at once lose time.
    """
    os.environ.update({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    context = multiprocessing.get_context("spawn")
    available = sorted(os.sched_getaffinity(0))
    cores = context.SimpleQueue()
    for i in range(jobs):
        cores.put(available[i % len(available)])
    with context.Pool(jobs, _keep_to_a_core, (cores,)) as pool:  # leaving the block ends all processes
        results = pool.imap_unordered(do, tasks)
        for done in range(len(tasks)):
            try:
                results.next(timeout=max(0.0, until - time.monotonic()))
            except multiprocessing.TimeoutError:
                print(f"time is over: {done} of {len(tasks)} tasks are done", flush=True)
                return
    print(f"all {len(tasks)} tasks are done", flush=True)


def _keep_to_a_core(cores: Any) -> None:
    os.sched_setaffinity(0, {cores.get()})
