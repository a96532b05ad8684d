"""What all learners share: judged trials with the best one kept, the loop around them, checkpoints and exact resume."""

from __future__ import annotations

import contextlib
import io
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from placewright.budget import OPTIMAL_GAP, Budget, Incumbent
from placewright.documents import check_version
from placewright.errors import InputError
from placewright.execute.torch_workers import inner_threads
from placewright.files import write_whole_bytes
from placewright.frontends.base import one_line
from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.groups import GroupGraph, repaired
from placewright.placers.learned.rewards import Judged, Rewards
from placewright.placers.learned.stored import Stored, any_number, ranks_of, rows_of
from placewright.problems import Problem
from placewright.reading import reading
from placewright.text import bytes_text

TOP = 3
CHECKPOINT_VERSION = 1  # of the format
CHECKPOINT_FORMAT = f"placewright-checkpoint/{CHECKPOINT_VERSION}"
LARGEST_CHECKPOINT_BYTES = 2**30


class Report(NamedTuple):
    """What one step of a learner brought."""

    best: float  # of all trials so far, infinite if none was valid
    mean: float  # of this step's trials
    groups: int  # that were decided on: clusters or groups
    evaluations: int


class Learner(Protocol):
    """A policy at work on one problem or several."""

    def step(self, most: int) -> Report:
        """Judge at most ``most`` placements (at least one) and learn from them."""


class Resumable(Protocol):
    """What can be stopped and gone on with."""

    def state(self) -> dict[str, Any]:
        """Everything that the next steps depend on: tensors, numbers, strings, lists and dicts."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where another learner of the same settings stood."""


class HasTrials(Protocol):
    """Someone who has tried placements of one problem."""

    trials: Trials


class PlacingLearner(Learner, HasTrials, Protocol):
    """A learner on one problem, with what it has tried."""


class Trials:
    """Judges placements of groups, repaired where memory asks for it (``repair``); keeps the best valid one."""

    def __init__(self, problem: Problem, groups: GroupGraph, rewards: Rewards, *, repair: bool = True) -> None:
        self.problem, self.groups, self.rewards, self._repair = problem, groups, rewards, repair
        self.best_value, self.best_device_of_op, self.best_rank_s = math.inf, None, None
        self.top: list[tuple[float, IntArray]] = []  # the best valid placements that differ, best first
        self._limit_bytes = problem.arrays.memory_limit_bytes

    best_device_of_op: IntArray | None
    best_rank_s: FloatArray | None

    @property
    def evaluations(self) -> int:
        return self.rewards.evaluations

    def judge(self, rows: IntArray, rank_s: FloatArray | None = None) -> tuple[IntArray, Judged]:
        """Judge placements [batch, groups], in orders [batch, ops]; return them as repaired, with their values."""
        fixed = np.asarray(rows, dtype=np.int32)
        if self._repair:
            fixed = repaired(self.groups, fixed, self._limit_bytes)
        op_rows = fixed[:, self.groups.group_of_op]
        judged = self.rewards.judge(op_rows, rank_s)
        values = np.where(judged.is_valid, judged.value, math.inf)
        best = int(values.argmin())
        if values[best] < self.best_value:
            self.best_value, self.best_device_of_op = float(values[best]), op_rows[best].copy()
            self.best_rank_s = None if rank_s is None else rank_s[best].copy()
        for i in np.argsort(values, kind="stable")[:TOP].tolist():
            self._note_top(float(values[i]), op_rows[i])
        return fixed, judged

    def _note_top(self, value: float, row: IntArray) -> None:
        full = len(self.top) == TOP
        if math.isinf(value) or (full and value >= self.top[-1][0]) or any((row == r).all() for _, r in self.top):
            return
        self.top = sorted([*self.top, (value, row.copy())], key=lambda t: t[0])[:TOP]

    def report(self, values: FloatArray, groups: int) -> Report:
        """Sum up a step that judged some placements and decided on so many groups."""
        finite = values[np.isfinite(values)]
        mean = float(finite.mean()) if len(finite) else math.inf
        return Report(self.best_value, mean, groups, self.evaluations)

    def order(self) -> FloatArray | None:
        """The order that the best placement was judged with."""
        assert self.best_device_of_op is not None
        return self.rewards.order_of(self.best_device_of_op) if self.best_rank_s is None else -self.best_rank_s

    def known(self) -> Incumbent | None:
        """The best valid placement so far."""
        best = self.best_device_of_op
        return None if best is None else Incumbent(best, self.best_value, self.order())

    def state(self) -> dict[str, Any]:
        return {
            "best_value": self.best_value,
            "best": as_tensor(self.best_device_of_op),
            "best_rank_s": as_tensor(self.best_rank_s),
            "top": [[value, as_tensor(row)] for value, row in self.top],
            "evaluations": self.rewards.evaluations,
        }

    def restore(self, state: dict[str, Any]) -> None:
        found, allowed = Stored(state, "trials"), self.problem.allowed
        value, evaluations = found.number("best_value"), found.whole("evaluations")
        best = found.value("best")
        device_of_op = None if best is None else rows_of(best, "trials: 'best'", allowed)
        rank_s = ranks_of(found.value("best_rank_s"), "trials: 'best_rank_s'", self.problem.n_ops)
        if (device_of_op is None) != math.isinf(value):
            raise InputError("trials: 'best_value' and 'best' do not go together")
        top = []
        for entry in found.listed("top", 0, TOP):
            if not (isinstance(entry, list) and len(entry) == 2):
                raise InputError("trials: 'top' is not a list of values with placements")
            top.append((any_number(entry[0], "trials: 'top'"), rows_of(entry[1], "trials: 'top'", allowed)))
        self.best_value, self.rewards.evaluations = value, evaluations
        self.best_device_of_op, self.best_rank_s, self.top = device_of_op, rank_s, top


def as_tensor(array: NDArray[Any] | None) -> torch.Tensor | None:
    """A copy for a checkpoint."""
    return None if array is None else torch.from_numpy(array.copy())


class OwnRandomness:
    """A stream of torch's random numbers of one's own, whatever else the process draws."""

    def __init__(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.state)
            yield
            self.state = torch.get_rng_state()


def one_thread() -> contextlib.AbstractContextManager[None]:
    """Networks this small run fastest on one thread, and give the same numbers on every machine of a kind."""
    return inner_threads(1)


def run_learner(
    learner: Learner,
    budget: Budget,
    wanted: int,
    *,
    done: int = 0,
    bound: float = 0.0,
    after_step: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Step until ``wanted`` evaluations are done, the time is up, or the best value has met its ``bound``."""
    report = Report(math.inf, math.inf, 0, done)
    while report.evaluations < wanted and not budget.expired():
        report = learner.step(wanted - report.evaluations)
        after_step(report)
        if report.best <= bound * (1 + OPTIMAL_GAP):
            break
    return report


class Checkpoint:
    """A learner's state in a file, written whole, at most every ``every_s`` seconds."""

    def __init__(self, path: Path, settings: dict[str, Any], every_s: float = 10.0) -> None:
        self.path, self.settings, self._every_s = path, settings, every_s
        self._last = time.monotonic()

    def save(self, learner: Resumable, *, now: bool = False) -> None:
        """Keep the state if it is time to."""
        if not now and time.monotonic() - self._last < self._every_s:
            return
        document = {"format": CHECKPOINT_FORMAT, "settings": json.dumps(self.settings), "state": learner.state()}
        content = io.BytesIO()
        torch.save(document, content)
        write_whole_bytes(self.path, content.getvalue())
        self._last = time.monotonic()

    def load(self, learner: Resumable) -> bool:
        """Restore the learner; ``False`` if there is no file. Another run's file is an :class:`InputError`."""
        if not self.path.exists():
            return False
        with reading(self.path, "a checkpoint") as where:
            size = self.path.stat().st_size
            if size > LARGEST_CHECKPOINT_BYTES:
                raise InputError(f"{where}: not a checkpoint: it is larger than {bytes_text(LARGEST_CHECKPOINT_BYTES)}")
            try:
                document = torch.load(self.path, map_location="cpu", weights_only=True)  # plain values, no code
            except Exception as error:
                raise InputError(f"{where}: not a checkpoint: {one_line(error)}") from error
            if not isinstance(document, dict) or not isinstance(document.get("format"), str):
                raise InputError(f"{where}: not a checkpoint of placewright")
            check_version(document["format"], "checkpoint", CHECKPOINT_VERSION, where)
            found = Stored(document, where)
            if found.value("settings") != json.dumps(self.settings):
                raise InputError(f"{where}: belongs to a run with other settings; remove it or choose another -o")
            learner.restore(found.part("state").data)
            return True
