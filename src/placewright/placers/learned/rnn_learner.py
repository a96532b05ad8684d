"""The sequence-to-sequence policy and its training; see ``rnn.py``."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placewright.placers.learned.features import Blocks, Vocabulary, node_features
from placewright.placers.learned.groups import group_graph
from placewright.placers.learned.rewards import Rewards, single_device_rows
from placewright.placers.learned.training import OwnRandomness, Report, Trials
from placewright.problems import Problem

HIDDEN, ADJACENCY_WIDTH = 64, 64
BATCH = 20
LEARNING_RATE, ENTROPY, MOST_GRADIENT, BASELINE_MEMORY = 3e-3, 0.01, 1.0, 0.9


class Seq2Seq(nn.Module):
    """Encoder and decoder LSTM with additive attention; the device chosen before is an input of each decision."""

    def __init__(self, width: int, n_devices: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(width, HIDDEN, batch_first=True)
        self.decoder = nn.LSTMCell(2 * HIDDEN, HIDDEN)
        self.device = nn.Embedding(n_devices + 1, HIDDEN)  # the last one: none yet
        self.key, self.query = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.energy, self.out = nn.Linear(HIDDEN, 1), nn.Linear(2 * HIDDEN, n_devices)

    def forward(self, x: Tensor, allowed: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Sample devices [batch, groups]; return them with log-probabilities and entropies [batch]."""
        memory, (h, c) = self.encoder(x.unsqueeze(0))
        memory, key = memory[0], self.key(memory[0])
        h, c = h[0].expand(batch, -1), c[0].expand(batch, -1)
        before = torch.full((batch,), allowed.shape[1])
        devices, total, entropy = [], torch.zeros(batch), torch.zeros(batch)
        for i in range(len(x)):  # each decision depends on the one before
            h, c = self.decoder(torch.cat([memory[i].expand(batch, -1), self.device(before)], dim=1), (h, c))
            attention = torch.softmax(self.energy(torch.tanh(key[None] + self.query(h)[:, None])).squeeze(2), dim=1)
            logits = self.out(torch.cat([h, attention @ memory], dim=1)).masked_fill(~allowed[i], -1e9)
            log_chance = torch.log_softmax(logits, dim=1)
            before = torch.multinomial(log_chance.detach().exp(), 1)[:, 0]
            devices.append(before)
            total = total + log_chance.gather(1, before[:, None])[:, 0]
            entropy = entropy - (log_chance.exp() * log_chance).sum(dim=1)
        return torch.stack(devices, dim=1), total, entropy


def reinforce_loss(score_s: NDArray[np.float64], baseline: float, log_chance: Tensor) -> Tensor:
    """Slower than the baseline must become less likely: reward is minus the square root of the time."""
    advantage = torch.tensor(baseline - np.sqrt(score_s), dtype=torch.float32)
    return -(advantage * log_chance).mean()


class RnnLearner:
    """One step samples a batch of placements and makes one REINFORCE update with a moving-average baseline."""

    def __init__(self, problem: Problem, rewards: Rewards, seed: int) -> None:
        groups = group_graph(problem, "paper")
        self.trials = Trials(problem, groups, rewards)
        blocks = Blocks(structure=False, position=False, work=False)
        features = node_features(problem, groups, Vocabulary.of([problem.graph]), blocks)
        adjacency = torch.zeros(groups.n_groups, groups.n_groups)
        adjacency[groups.edges[:, 0], groups.edges[:, 1]] = 1.0
        self._random = OwnRandomness(seed)
        with self._random():
            # A fixed random projection keeps the width of adjacency rows the same for graphs of any size.
            self._x = torch.cat(
                [torch.from_numpy(features), adjacency @ torch.randn(groups.n_groups, ADJACENCY_WIDTH)], dim=1
            )
            self.policy = Seq2Seq(self._x.shape[1], problem.n_devices)
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=LEARNING_RATE)
        self._allowed = torch.from_numpy(groups.allowed)
        self._baseline = math.nan
        self._reference_s = math.inf

    def step(self, most: int) -> Report:
        if math.isinf(self._reference_s):
            _, judged = self.trials.judge(single_device_rows(self.trials.groups.allowed)[: max(1, most)])
            finite = judged.score_s[np.isfinite(judged.score_s)]
            self._reference_s = (float(finite.min()) or 1.0) if len(finite) else 1.0
            return self.trials.report(judged.value, self.trials.groups.n_groups)
        with self._random():
            devices, log_chance, entropy = self.policy(self._x, self._allowed, min(BATCH, most))
            _, judged = self.trials.judge(devices.numpy().astype(np.int32))
            score = np.where(np.isfinite(judged.score_s), judged.score_s / self._reference_s, 100.0)
            mean = float(np.sqrt(score).mean())
            baseline = mean if math.isnan(self._baseline) else self._baseline
            loss = reinforce_loss(score, baseline, log_chance) - ENTROPY * entropy.mean() / len(self._x)
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), MOST_GRADIENT)
            self.optimiser.step()
            self._baseline = BASELINE_MEMORY * baseline + (1 - BASELINE_MEMORY) * mean
        return self.trials.report(judged.value, self.trials.groups.n_groups)
