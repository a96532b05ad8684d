"""Placeto's network and its training; see ``placeto.py``."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placewright.graph import IntArray
from placewright.placers.learned.groups import GroupGraph, group_graph
from placewright.placers.learned.rewards import Rewards, single_device_rows, ways_left
from placewright.placers.learned.training import OwnRandomness, Report, Trials
from placewright.problems import Problem

HIDDEN, ROUNDS = 16, 8
EPISODES = 4  # side by side
LEARNING_RATE, ENTROPY, MOST_GRADIENT = 1e-3, 0.01, 1.25
PLAIN_FEATURES = 5


class PlacetoPolicy(nn.Module):
    """Messages along and against the edges, sums over ancestors, descendants and parallel groups, then a softmax."""

    def __init__(self, n_devices: int) -> None:
        super().__init__()
        self.node = _mlp(PLAIN_FEATURES + n_devices, HIDDEN, HIDDEN)
        self.send = nn.ModuleList(_mlp(HIDDEN, HIDDEN, HIDDEN) for _ in range(2))
        self.receive = nn.ModuleList(_mlp(HIDDEN, HIDDEN, HIDDEN) for _ in range(2))
        self.decide = _mlp(8 * HIDDEN, 2 * HIDDEN, n_devices)

    def forward(self, x: Tensor, edges: Tensor, ancestors: Tensor, descendants: Tensor, at: int) -> Tensor:
        """Logits [episodes, devices] for group ``at``; ``x`` is [episodes, groups, features]."""
        own = self.node(x)
        ways = [self._messages(own, edges[:, i], edges[:, 1 - i], i) for i in (0, 1)]
        both = torch.cat(ways, dim=2)
        parallel = 1 - ancestors[at] - descendants[at]
        parallel[at] = 0
        masks = torch.stack([ancestors[at], descendants[at], parallel])
        sums = torch.einsum("mn,enh->emh", masks / masks.sum(dim=1, keepdim=True).clamp(min=1), both)
        return self.decide(torch.cat([both[:, at], sums.flatten(1)], dim=1))

    def _messages(self, own: Tensor, source: Tensor, target: Tensor, way: int) -> Tensor:
        h = own
        for _ in range(ROUNDS):
            arrived = torch.zeros_like(h).index_add(1, target, self.send[way](h)[:, source])
            h = self.receive[way](arrived) + own
        return h


def _mlp(width: int, hidden: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))


class PlacetoLearner:
    """One step visits one group in all episodes; when the last group was visited, the episodes teach the policy."""

    def __init__(self, problem: Problem, rewards: Rewards, seed: int) -> None:
        self.problem = problem
        groups = group_graph(problem, "paper")
        self.trials = Trials(problem, groups, rewards)
        self._random = OwnRandomness(seed)
        with self._random():
            self.policy = PlacetoPolicy(problem.n_devices)
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=LEARNING_RATE)
        self._edges = torch.from_numpy(groups.edges)
        self._ancestors, self._descendants = _reachable(groups)
        self._allowed = torch.from_numpy(groups.allowed)
        self._fixed = torch.from_numpy(_plain_features(problem, groups))
        self._start_row: IntArray | None = None
        self._begin()

    def _begin(self) -> None:
        self._at = 0
        self._rows: IntArray | None = None
        self._values = np.zeros(0)
        self._log_chances: list[Tensor] = []
        self._entropies: list[Tensor] = []
        self._saved: list[NDArray[np.float64]] = []

    def step(self, most: int) -> Report:
        if self._start_row is None:
            return self._first(most)
        with self._random():
            if self._rows is None:
                self._rows = np.repeat(self._start_row[None], min(EPISODES, most), axis=0)
                self._values = np.full(len(self._rows), self._reference_s)
            count = min(len(self._rows), most)
            rows, values = self._rows[:count], self._values[:count]
            allowed = self._allowed[self._at]
            logits = self.policy(
                self._features(rows), self._edges, self._ancestors, self._descendants, self._at
            ).masked_fill(~allowed, -1e9)
            log_chance = torch.log_softmax(logits, dim=1)
            action = torch.multinomial(log_chance.detach().exp(), 1)
            rows = rows.copy()
            rows[:, self._at] = action[:, 0].numpy()
            _, judged = self.trials.judge(rows)
            after = np.where(np.isfinite(judged.score_s), judged.score_s, 10 * self._reference_s)
            self._log_chances.append(log_chance.gather(1, action)[:, 0])
            self._entropies.append(-(log_chance.exp() * log_chance).sum(dim=1))
            self._saved.append((values - after) / self._reference_s)
            self._rows, self._values = rows, after
            self._at += 1
            if self._at == self.trials.groups.n_groups:
                self._learn()
                self._begin()
        return self.trials.report(judged.value, self.trials.groups.n_groups)

    def _first(self, most: int) -> Report:
        rows, judged = self.trials.judge(single_device_rows(self.trials.groups.allowed)[: max(1, most)])
        best = int(judged.score_s.argmin())
        self._start_row = rows[best]
        best_s = float(judged.score_s[best])
        self._reference_s = best_s if np.isfinite(best_s) and best_s > 0 else 1.0
        return self.trials.report(judged.value, self.trials.groups.n_groups)

    def _features(self, rows: IntArray) -> Tensor:
        """[episodes, groups, features]: time, bytes, visited, pointed at, how far before the present one, device."""
        groups = self.trials.groups
        left = ways_left(self.problem, rows[:, groups.group_of_op])[:, groups.first_op]
        ahead = (left - left[:, self._at : self._at + 1]) / np.maximum(left.max(axis=1, keepdims=True), 1e-300)
        n = groups.n_groups
        pointer = torch.zeros(len(rows), n, 2)
        pointer[:, : self._at, 0] = 1.0
        pointer[:, self._at, 1] = 1.0
        device = nn.functional.one_hot(torch.from_numpy(rows).long(), groups.n_devices).float()
        fixed = self._fixed.expand(len(rows), n, 2)
        return torch.cat([fixed, pointer, torch.from_numpy(ahead).float().unsqueeze(2), device], dim=2)

    def _learn(self) -> None:
        """REINFORCE: what is saved from a step on, less the mean of all episodes at that step."""
        count = min(len(s) for s in self._saved)
        saved = np.stack([s[:count] for s in self._saved])  # [steps, episodes]
        to_go = np.cumsum(saved[::-1], axis=0)[::-1]
        advantage = torch.tensor(to_go - to_go.mean(axis=1, keepdims=True), dtype=torch.float32)
        log_chance = torch.stack([c[:count] for c in self._log_chances])
        entropy = torch.stack([e[:count] for e in self._entropies])
        loss = -(advantage * log_chance).sum(dim=0).mean() - ENTROPY * entropy.mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.policy.parameters(), MOST_GRADIENT)
        self.optimiser.step()


def _plain_features(problem: Problem, groups: GroupGraph) -> NDArray[np.float32]:
    """[groups, 2]: mean time and output bytes, as shares of the largest."""
    finite = np.isfinite(groups.time_s)
    time = np.where(finite, groups.time_s, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    sent = np.zeros(groups.n_groups)
    np.add.at(sent, groups.group_of_op[problem.graph.tensor_producer], problem.graph.tensor_bytes)
    columns = np.stack([time, sent], axis=1)
    return (columns / np.maximum(columns.max(axis=0), 1e-300)).astype(np.float32)


def _reachable(groups: GroupGraph) -> tuple[Tensor, Tensor]:
    """[groups, groups] of 0 and 1: ancestors and descendants of each group, by squaring until nothing is added."""
    n = groups.n_groups
    reach = torch.zeros(n, n)
    reach[groups.edges[:, 0], groups.edges[:, 1]] = 1.0
    while True:
        longer = ((reach + reach @ reach) > 0).float()
        if torch.equal(longer, reach):
            reach.fill_diagonal_(0.0)
            return reach.T.contiguous(), reach
        reach = longer
