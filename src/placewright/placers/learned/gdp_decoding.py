"""From a policy's log-probabilities to a placement, in stages that build on each other and can be looked at singly.

``policy``: the likeliest device of every block, nothing else. ``list``: the contention-aware list scheduler keeps what
the policy is sure of and decides the rest, and the order, by itself. ``samples``: the best of some placements drawn
from the policy, and of the likeliest ones at every scale. ``search``: changed copies of the best ones, in turns.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

from placewright.budget import Budget
from placewright.errors import InputError
from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.gdp_learner import Teacher
from placewright.placers.learned.gdp_pupil import Asked, Pupil
from placewright.placers.learned.rewards import SimulatedRewards, ways_left
from placewright.placers.overlap.attempts import search_with
from placewright.placers.overlap.list_costs import list_costs
from placewright.placers.overlap.schedulers import rank_scheduler
from placewright.problems import Problem

Decode = Literal["policy", "list", "samples", "search"]
STAGES: tuple[Decode, ...] = ("policy", "list", "samples", "search")
SURE = 0.5  # chance from which on the list scheduler takes the policy's word
SEARCH_BATCH = 16


class Decoded(NamedTuple):
    """The best placement so far, and the value after each stage (infinite: nothing valid yet)."""

    device_of_op: IntArray | None
    priority: FloatArray | None
    value: float
    stages: dict[str, float]
    evaluations: int


def check_stage(name: str) -> None:
    """Raise :class:`InputError` for a stage that does not exist."""
    if name not in STAGES:
        raise InputError(f"decode is '{name}', expected {' or '.join(STAGES)}")


def decode(pupil: Pupil, teacher: Teacher, last: Decode, budget: Budget, samples: int, moves: int) -> Decoded:
    """Run the stages up to ``last`` while the budget lasts: ``samples`` in the third, ``moves`` in the fourth."""
    problem, trials = pupil.problem, pupil.trials
    asked = teacher.ask([(graph, scale) for scale, graph in enumerate(pupil.graphs)], samples)
    stages: dict[str, float] = {}
    rows = [a.log_chance.argmax(dim=1).numpy().astype(np.int32)[pupil.blocks[a.scale].block_of_group] for a in asked]
    pupil.look(np.stack(rows[:1]))
    stages["policy"] = trials.best_value
    listed: tuple[IntArray, FloatArray | None, float] | None = None
    for stage in STAGES[1 : STAGES.index(last) + 1]:
        if budget.expired():
            break
        if stage == "list" and problem.execution == "overlap" and isinstance(trials.rewards, SimulatedRewards):
            listed = _by_list(pupil, asked[0], budget)
        elif stage == "samples":
            if len(rows) > 1:
                pupil.look(np.stack(rows[1:]))
            for a in asked:
                if budget.expired():
                    break
                pupil.judge(a, 0, 0)
        elif stage == "search":
            if not pupil.has_started:
                pupil.start(problem.n_devices)  # everything on one device is worth changing too
            _search(pupil, asked[0].seed, budget, moves)
        stages[stage] = min(trials.best_value, listed[2] if listed else np.inf)
    evaluations = trials.evaluations + (2 if listed else 0)
    if listed is not None and listed[2] < trials.best_value:
        return Decoded(*listed, stages, evaluations)
    best = trials.best_device_of_op
    priority = None if best is None else trials.order()
    return Decoded(best, priority, trials.best_value, stages, evaluations)


def _by_list(pupil: Pupil, asked: Asked, budget: Budget) -> tuple[IntArray, FloatArray | None, float] | None:
    """Ops by upward rank; where the policy is sure they keep its device, else unlikely ones count as ending later."""
    from placewright.evaluate import evaluate

    problem = pupil.problem
    block = torch.from_numpy(pupil.blocks[asked.scale].block_of_group[pupil.groups.group_of_op].astype(np.int64))
    chance = asked.log_chance.exp()
    sure = torch.where(chance.max(dim=1).values >= SURE, chance.argmax(dim=1), -1)
    preferred = sure[block].numpy().astype(np.int32)
    typical_s = float(pupil.groups.time_s.min(axis=1).sum()) / max(1, pupil.blocks[asked.scale].n_blocks)
    extra_s = np.ascontiguousarray((typical_s * (1 - chance)).numpy().astype(np.float64)[block.numpy()])
    scheduler = rank_scheduler(problem, _ways_as_placed(problem, preferred), extra_s, preferred)
    found = search_with(problem, budget, scheduler)
    if found.device_of_op is None:
        return None
    return found.device_of_op, found.priority, evaluate(problem, found.device_of_op, found.priority).value


def _ways_as_placed(problem: Problem, preferred: IntArray) -> FloatArray:
    """[ops]: the longest way left, copies as the policy's devices need them; mean ones where it is not sure."""
    if (preferred < 0).any():
        return list_costs(problem).upward_s
    return ways_left(problem, preferred[None])[0]


def _search(pupil: Pupil, seed: int, budget: Budget, moves: int) -> None:
    """Judge changed copies of the best placements, a few at a time."""
    done = 0
    while done < moves and not budget.expired():
        count = min(SEARCH_BATCH, moves - done)
        pupil.improve(count, seed + done)
        done += count
