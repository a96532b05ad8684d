"""One problem that GDP's policy learns on: its tensors, its trials, its baseline and its best placements."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placewright.errors import InputError
from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.features import Vocabulary
from placewright.placers.learned.gdp_blocks import Blocks, make_blocks, mutated, side_by_side
from placewright.placers.learned.gdp_features import Features, features
from placewright.placers.learned.gdp_network import GraphTensors
from placewright.placers.learned.gdp_settings import Settings
from placewright.placers.learned.groups import GroupGraph, group_graph
from placewright.placers.learned.rewards import Rewards, single_device_rows
from placewright.placers.learned.stored import Stored, any_number, rows_of, tensor, whole_number
from placewright.placers.learned.training import Report, Trials, as_tensor
from placewright.problems import Problem

ELITES = 6
FAILED = -10.0  # reward of an invalid placement, as published
_MEMORY = 0.9  # of the moving baseline
_MOST_ADVANTAGE = 3.0


class Asked(NamedTuple):
    """Placements drawn from the policy at one scale, and what it thought of them then."""

    scale: int
    log_chance: Tensor  # [blocks, devices]
    action: Tensor  # [samples, blocks]
    seed: int  # of what is done with them


class Rollout(NamedTuple):
    """What an update learns from."""

    scale: int
    action: Tensor  # [samples, blocks]
    log_chance: Tensor  # [samples, blocks], when it was drawn
    advantage: Tensor  # [samples]
    target: Tensor | None  # [blocks, devices]: where the best placement known has the blocks

    def to(self, where: str) -> Rollout:
        """The same on another device."""
        target = None if self.target is None else self.target.to(where)
        return Rollout(
            self.scale, self.action.to(where), self.log_chance.to(where), self.advantage.to(where), target
        )  # fmt: skip


class Pupil:
    """Judges what the policy asks for this problem. Everything here depends on the seed alone."""

    def __init__(
        self, problem: Problem, rewards: Rewards, settings: Settings, vocabulary: Vocabulary, where: str = "cpu"
    ) -> None:
        self.problem, self.settings = problem, settings
        self.groups = group_graph(problem)
        self.trials = Trials(problem, self.groups, rewards, repair=settings.invalid == "repair")
        self.blocks = tuple(make_blocks(problem, self.groups, scale) for scale in settings.scales)
        known = features(problem, self.groups, vocabulary, with_work=settings.work_features)
        self.graphs = tuple(
            _tensors(self.groups, known, blocks, where) for blocks in self.blocks[: settings.policy_scales]
        )
        self.elites: list[tuple[float, IntArray]] = []  # score and devices of groups, best first
        self.visits = 0
        self.greedy_value = math.inf  # of the policy's likeliest placement, when last asked
        self._scales = side_by_side(self.blocks)
        self._baseline, self._spread, self._rewards_seen = 0.0, 1.0, 0
        self._reference_s = math.inf
        self._alike = [] if problem.rules or problem.permitted is not None else problem.cluster.device_groups()
        self._work = self.groups.time_s.min(axis=1) / (float(self.groups.time_s.min(axis=1).sum()) or 1.0)

    @property
    def has_started(self) -> bool:
        return math.isfinite(self._reference_s)

    def start(self, most: int) -> Report:
        """Judge everything on each device; their best value is the unit of rewards."""
        rows = single_device_rows(self.groups.allowed)[: max(1, most)]
        fixed, judged = self.trials.judge(rows)
        finite = judged.score_s[np.isfinite(judged.score_s)]
        self._reference_s = (float(finite.min()) or 1.0) if len(finite) else 1.0
        self._note(fixed, judged.score_s, judged.is_valid)
        return self.trials.report(judged.value, self.groups.n_groups)

    def look(self, rows: IntArray) -> None:
        """Judge some placements of groups and keep what is good."""
        fixed, judged = self.trials.judge(rows)
        self._note(fixed, judged.score_s, judged.is_valid)

    def next_scale(self) -> int:
        """The policy's scales take turns."""
        self.visits += 1
        return (self.visits - 1) % len(self.graphs)

    def judge(self, asked: Asked, mutants: int, greedy: int = 1) -> tuple[Rollout, Report]:
        """Judge the samples, the likeliest placement (``greedy`` 1) and changed copies of the best ones."""
        action = asked.action.numpy()
        likeliest = asked.log_chance.argmax(dim=1).numpy()[None][:greedy]
        drawn = np.concatenate([action, likeliest]).astype(np.int32)
        rows = drawn[:, self.blocks[asked.scale].block_of_group]
        if mutants and self.elites:
            rows = np.concatenate([rows, self._changed(mutants, asked.seed)])
        fixed, judged = self.trials.judge(rows)
        if greedy:
            at = len(action)
            self.greedy_value = float(judged.value[at]) if judged.is_valid[at] else math.inf
        advantage = self._advantage(judged.score_s[: len(action)], judged.is_valid[: len(action)])
        self._note(fixed, judged.score_s, judged.is_valid)
        chosen = torch.gather(asked.log_chance[None].expand(len(action), -1, -1), 2, asked.action[:, :, None])
        target = torch.from_numpy(self._target(asked)) if self.settings.imitation > 0 and self.elites else None
        rollout = Rollout(asked.scale, asked.action, chosen[:, :, 0], torch.from_numpy(advantage), target)
        return rollout, self.trials.report(judged.value, self.blocks[asked.scale].n_blocks)

    def improve(self, count: int, seed: int) -> None:
        """Judge changed copies of the best placements only: a local search, without the policy."""
        if self.elites:
            self.look(self._changed(count, seed))

    def _changed(self, count: int, seed: int) -> IntArray:
        return mutated(np.stack([row for _, row in self.elites]), self.groups, self._scales, count, seed)

    def _advantage(self, score_s: FloatArray, is_valid: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Reward less the baseline of this problem, in units of its spread: no problem outweighs another."""
        relative = np.where(np.isfinite(score_s), score_s / self._reference_s, FAILED**2)
        reward = np.maximum(-np.sqrt(relative), FAILED)
        if self.settings.invalid == "penalty":
            reward = np.where(is_valid, reward, FAILED)
        mean, spread = float(reward.mean()), float(reward.std())
        seen = self._rewards_seen
        if self.settings.baseline == "mean":
            keep = seen / (seen + len(reward))
        else:
            keep = min(_MEMORY, seen / (seen + len(reward)))
        baseline = mean if seen == 0 else self._baseline
        self._baseline = keep * self._baseline + (1 - keep) * mean
        self._spread = keep * self._spread + (1 - keep) * max(spread, abs(mean - baseline))
        self._rewards_seen += len(reward)
        advantage = (reward - baseline) / (self._spread + 1e-6)
        return np.clip(advantage, -_MOST_ADVANTAGE, _MOST_ADVANTAGE).astype(np.float32)

    def _note(self, rows: IntArray, score_s: FloatArray, is_valid: NDArray[np.bool_]) -> None:
        """Keep the best placements that differ; what is not valid comes last."""
        score = np.where(is_valid, score_s, 10 * score_s)
        for i in np.argsort(score, kind="stable")[:ELITES].tolist():
            full = len(self.elites) == ELITES
            if not np.isfinite(score[i]) or (full and score[i] >= self.elites[-1][0]):
                break
            if not any(np.array_equal(rows[i], row) for _, row in self.elites):
                kept = [*self.elites, (float(score[i]), rows[i].copy())]
                self.elites = sorted(kept, key=lambda e: e[0])[:ELITES]

    def _target(self, asked: Asked) -> NDArray[np.float32]:
        """[blocks, devices]: share of each block's work on each device in the best placement.

        Devices that can be exchanged are named as the policy would name them.
        """
        shares = self._shares(self.elites[0][1], asked.scale)
        best = _renamed(shares, asked.log_chance.numpy(), self._alike)
        if (best != np.arange(len(best))).any():
            self.elites = [(s, best[r]) for s, r in self.elites]
            shares = shares[:, np.argsort(best)]
        return shares

    def _shares(self, row: IntArray, scale: int) -> NDArray[np.float32]:
        blocks = self.blocks[scale]
        shares = np.zeros((blocks.n_blocks, self.problem.n_devices))
        np.add.at(shares, (blocks.block_of_group, row), self._work + 1e-9)
        return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)

    def state(self) -> dict[str, Any]:
        return {
            "trials": self.trials.state(),
            "elites": [[score, as_tensor(row)] for score, row in self.elites],
            "baseline": [self._baseline, self._spread, self._rewards_seen],
            "reference_s": self._reference_s,
            "visits": self.visits,
        }

    def restore(self, state: dict[str, Any]) -> None:
        found, elites = Stored(state, "learner"), []
        self.trials.restore(found.part("trials").data)
        for entry in found.listed("elites", 0, ELITES):
            if not (isinstance(entry, list) and len(entry) == 2):
                raise InputError("learner: 'elites' is not a list of scores with placements")
            row = rows_of(entry[1], "learner: 'elites'", self.groups.allowed)
            elites.append((any_number(entry[0], "learner: 'elites'"), row))
        baseline, spread, seen = found.listed("baseline", 3, 3)
        self._baseline = any_number(baseline, "learner: 'baseline'", -math.inf)
        self._spread = any_number(spread, "learner: 'baseline'")
        self._rewards_seen = whole_number(seen, "learner: 'baseline'")
        self.elites, self._reference_s, self.visits = elites, found.number("reference_s"), found.whole("visits")

    def rollout(self, entry: Any) -> Rollout:
        """What an update was to learn from, out of a checkpoint."""
        where = "pending: 'rollouts'"
        if not (isinstance(entry, list) and len(entry) == 5):
            raise InputError(f"{where} is not a list of rollouts")
        scale = whole_number(entry[0], where, len(self.graphs) - 1)
        n_blocks, n_devices = self.graphs[scale].n_blocks, self.problem.n_devices
        action = tensor(entry[1], where, torch.int64, (None, n_blocks))
        if bool((action < 0).any() or (action >= n_devices).any()) or not len(action):
            raise InputError(f"{where} name devices that are not there")
        target = entry[4]
        return Rollout(
            scale,
            action,
            tensor(entry[2], where, torch.float32, (len(action), n_blocks)),
            tensor(entry[3], where, torch.float32, (len(action),)),
            None if target is None else tensor(target, where, torch.float32, (n_blocks, n_devices)),
        )


def check_same_devices(problems: list[Problem], settings: Settings) -> None:
    """A fixed softmax has as many columns as there are devices."""
    if settings.head == "fixed" and len({p.n_devices for p in problems}) > 1:
        raise InputError("gdp with a fixed softmax cannot learn on problems with different numbers of devices")


def _renamed(shares: NDArray[np.float32], log_chance: NDArray[np.float32], alike: list[list[int]]) -> IntArray:
    """[devices]: the new name of each device, by exchanges within ``alike`` that make the shares likelier."""
    name = np.arange(shares.shape[1])
    likely = shares.T.astype(np.float64) @ np.maximum(log_chance, -20.0)  # [old name, new name]
    for members in alike:
        m = np.array(members)
        for _ in range(2 * len(m)):
            cost = likely[np.ix_(m, name[m])]
            own = np.diag(cost)
            gain = np.triu(cost + cost.T - own[:, None] - own[None], 1)
            i, j = np.unravel_index(int(gain.argmax()), gain.shape)
            if gain[i, j] <= 1e-6:
                break
            name[m[i]], name[m[j]] = name[m[j]], name[m[i]]
    return name.astype(np.int32)


def _tensors(groups: GroupGraph, known: Features, blocks: Blocks, where: str) -> GraphTensors:
    n, n_blocks = groups.n_groups, blocks.n_blocks
    least = groups.time_s.min(axis=1)
    work = least / (float(least.sum()) or 1.0)
    block = blocks.block_of_group
    total = np.bincount(block, work, n_blocks)
    count = np.bincount(block, minlength=n_blocks)
    # Half by work and half by number, so that blocks without work have a mean too.
    weight = 0.5 * work / np.maximum(total[block], 1e-30) + 0.5 / count[block]
    weight = weight / np.bincount(block, weight, n_blocks)[block]
    pair = np.zeros((n_blocks, *known.pair.shape[1:]))
    np.add.at(pair, block, known.pair)
    allowed = np.ones((n_blocks, groups.n_devices), dtype=np.bool_)
    np.logical_and.at(allowed, block, groups.allowed)
    size = np.stack([1 + np.log10(np.maximum(total, 1e-9)) / 9, np.log(count) / np.log(n + 1)], axis=1)
    edges = np.concatenate([groups.edges, groups.edges[:, ::-1]]).T.copy()
    tensors = GraphTensors(
        torch.from_numpy(known.node), torch.from_numpy(edges), torch.from_numpy(known.device),
        torch.from_numpy(block.astype(np.int64)), torch.from_numpy(weight.astype(np.float32)),
        torch.from_numpy(size.astype(np.float32)), torch.from_numpy(pair.astype(np.float32)),
        torch.from_numpy(allowed), torch.from_numpy(total.astype(np.float32)),
    )  # fmt: skip
    return GraphTensors(*(t.to(where) for t in tensors))
