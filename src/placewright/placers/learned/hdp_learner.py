"""The hierarchical policy and its training; see ``hdp.py``."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from placewright.placers.learned.features import Vocabulary, mean_types, output_shapes
from placewright.placers.learned.groups import group_graph
from placewright.placers.learned.rewards import Rewards, single_device_rows
from placewright.placers.learned.rnn_learner import (
    BASELINE_MEMORY,
    BATCH,
    ENTROPY,
    LEARNING_RATE,
    MOST_GRADIENT,
    Seq2Seq,
    reinforce_loss,
)
from placewright.placers.learned.training import OwnRandomness, Report, Trials
from placewright.problems import Problem

GROUPER_HIDDEN = 64
MOST_GROUPS, GROUPS_PER_DEVICE = 256, 20
NEIGHBOURS = 6  # on each side, that the grouper sees


class HdpLearner:
    """One step draws a grouping and a batch of placements of its groups, and makes one update of both networks."""

    def __init__(self, problem: Problem, rewards: Rewards, seed: int) -> None:
        units = group_graph(problem)
        self.trials = Trials(problem, units, rewards)
        n = units.n_groups
        self._n_groups = min(MOST_GROUPS, GROUPS_PER_DEVICE * problem.n_devices, n)
        types = mean_types(problem.graph.op_types, units, Vocabulary.of([problem.graph]))
        shapes = output_shapes(problem.graph, units) / 10
        self._content = torch.from_numpy(np.concatenate([types, shapes], axis=1).astype(np.float32))
        near = [_neighbours(units.edges[:, side], units.edges[:, 1 - side], n) for side in (0, 1)]
        self._x = torch.cat([self._content, *(torch.from_numpy(t) for t in near)], dim=1)
        self._edges, self._allowed = torch.from_numpy(units.edges), torch.from_numpy(units.allowed)
        self._random = OwnRandomness(seed)
        with self._random():
            self.grouper = nn.Sequential(
                nn.Linear(self._x.shape[1], GROUPER_HIDDEN), nn.ReLU(), nn.Linear(GROUPER_HIDDEN, self._n_groups)
            )
            self.placer = Seq2Seq(self._content.shape[1] + self._n_groups, problem.n_devices)
        self._parameters = [*self.grouper.parameters(), *self.placer.parameters()]
        self.optimiser = torch.optim.Adam(self._parameters, lr=LEARNING_RATE)
        self._baseline, self._reference_s = math.nan, math.inf

    def step(self, most: int) -> Report:
        if math.isinf(self._reference_s):
            _, judged = self.trials.judge(single_device_rows(self.trials.groups.allowed)[: max(1, most)])
            finite = judged.score_s[np.isfinite(judged.score_s)]
            self._reference_s = (float(finite.min()) or 1.0) if len(finite) else 1.0
            return self.trials.report(judged.value, self._n_groups)
        with self._random():
            log_chance = torch.log_softmax(self.grouper(self._x), dim=1)
            group = torch.multinomial(log_chance.detach().exp(), 1)[:, 0]
            content, allowed = self._groups(group)
            devices, placed_log, entropy = self.placer(content, allowed, min(BATCH, most))
            _, judged = self.trials.judge(self._within(devices[:, group]).numpy().astype(np.int32))
            score = np.where(np.isfinite(judged.score_s), judged.score_s / self._reference_s, 100.0)
            mean = float(np.sqrt(score).mean())
            baseline = mean if math.isnan(self._baseline) else self._baseline
            grouped_log = log_chance.gather(1, group[:, None]).mean()
            loss = reinforce_loss(score, baseline, placed_log) - (baseline - mean) * grouped_log
            loss = loss - ENTROPY * entropy.mean() / self._n_groups
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._parameters, MOST_GRADIENT)
            self.optimiser.step()
            self._baseline = BASELINE_MEMORY * baseline + (1 - BASELINE_MEMORY) * mean
        return self.trials.report(judged.value, self._n_groups)

    def _groups(self, group: Tensor) -> tuple[Tensor, Tensor]:
        """What the placer knows of each group (contents and which groups it leads to), and the devices some take."""
        n = self._n_groups
        content = torch.zeros(n, self._content.shape[1]).index_add(0, group, self._content)
        content = content / torch.bincount(group, minlength=n).clamp(min=1)[:, None]
        leads_to = torch.zeros(n, n)
        leads_to[group[self._edges[:, 0]], group[self._edges[:, 1]]] = 1.0
        takes = torch.zeros(n, self._allowed.shape[1]).index_add(0, group, self._allowed.float()) > 0
        takes[~takes.any(dim=1)] = True  # empty groups
        return torch.cat([content, leads_to], dim=1), takes

    def _within(self, rows: Tensor) -> Tensor:
        """Ops whose group's device does not take them go to the first device that does."""
        takes = self._allowed[torch.arange(rows.shape[1])[None], rows]
        return torch.where(takes, rows, self._allowed.int().argmax(dim=1)[None])


def _neighbours(here: np.ndarray, there: np.ndarray, n: int) -> np.ndarray:
    """[n, NEIGHBOURS]: places in the order of the first few neighbours, -1 where there are fewer."""
    result = np.full((n, NEIGHBOURS), -1.0, dtype=np.float32)
    order = np.argsort(here, kind="stable")
    sorted_here = here[order]
    position = np.arange(len(order)) - np.searchsorted(sorted_here, sorted_here)
    few = position < NEIGHBOURS
    result[sorted_here[few], position[few]] = there[order][few] / n
    return result
