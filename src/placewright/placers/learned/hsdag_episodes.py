"""HSDAG as published: every trial decides on all clusters anew, and an episode of trials makes one update."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placewright.budget import Budget
from placewright.graph import IntArray
from placewright.placers.learned.features import Vocabulary, node_features
from placewright.placers.learned.groups import group_graph
from placewright.placers.learned.hsdag_settings import Settings, Update
from placewright.placers.learned.network import DeviceHead, StructureNet
from placewright.placers.learned.rewards import Rewards, single_device_rows
from placewright.placers.learned.stored import Stored, random_state
from placewright.placers.learned.training import OwnRandomness, Report, Trials
from placewright.placers.overlap.starts import constructive_starts
from placewright.problems import Problem

STARTS_S = 60.0  # for list schedules
FAILED_S = 1e10  # what the released code takes for the time of a failed or forbidden placement


class EpisodePolicy(nn.Module):
    """The published network, for a fixed number of devices."""

    def __init__(self, settings: Settings, vocabulary: Vocabulary, n_devices: int) -> None:
        super().__init__()
        width = settings.blocks.width(vocabulary)
        self.structure = StructureNet(width, settings.hidden, settings.dropout, directed=settings.directed)
        self.head = DeviceHead(width, settings.hidden, n_devices, settings.dropout)


def policy_loss(update: Update, reward: Tensor, log_chance: Tensor, entropy: Tensor, settings: Settings) -> Tensor:
    """The loss of an episode by ``update``; ``reward``, ``log_chance`` and ``entropy`` have one entry per trial.

    ``eq14``: each trial by its own discounted reward. ``released``: one return, the newest trial undiscounted, times
    the sum of all log-probabilities. ``ours``: rewards less their mean, in units of their spread, and an entropy bonus.
    """
    steps = torch.arange(len(reward), dtype=reward.dtype)
    if update == "eq14":
        return -(settings.discount ** (steps + 1) * reward * log_chance).sum()
    if update == "released":
        total = (settings.discount ** (len(reward) - 1 - steps) * reward).sum()
        return -total * log_chance.sum()
    advantage = (reward - reward.mean()) / (reward.std(correction=0) + 1e-9)
    return -(advantage * log_chance).mean() - settings.entropy * entropy.mean()


class EpisodeLearner:
    """One step is one episode: trials whose features grow by the clusters' codes, judged in one batch, one update."""

    def __init__(
        self, problem: Problem, rewards: Rewards, settings: Settings, vocabulary: Vocabulary, policy: EpisodePolicy,
        optimiser: torch.optim.Optimizer, seed: int,
    ) -> None:  # fmt: skip
        self.problem, self.settings, self.policy, self.optimiser = problem, settings, policy, optimiser
        groups = group_graph(problem, settings.colocation)
        self.trials = Trials(problem, groups, rewards)
        self._features = torch.from_numpy(node_features(problem, groups, vocabulary, settings.blocks))
        self._edges, self._allowed = torch.from_numpy(groups.edges), torch.from_numpy(groups.allowed)
        self._random, self._seed = OwnRandomness(seed), seed
        self._reference_s = math.inf

    def step(self, most: int) -> Report:
        if math.isinf(self._reference_s):
            return self._start(most)
        with self._random():
            rows, log_chance, entropy, clusters = self._episode(min(self.settings.batch, most))
            _, judged = self.trials.judge(rows)
            reward = torch.tensor(self._rewards(rows, judged.score_s), dtype=torch.float32)
            if self.settings.learning_rate > 0:
                loss = policy_loss(self.settings.update, reward, log_chance, entropy, self.settings)
                self.optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimiser.step()
        return self.trials.report(judged.value, clusters)

    def _start(self, most: int) -> Report:
        groups = self.trials.groups
        rows = single_device_rows(groups.allowed)
        if self.settings.starts:
            listed = [s.device_of_op for s in constructive_starts(self.problem, Budget(STARTS_S), self._seed)]
            rows = np.concatenate([rows, *(row[groups.first_op][None] for row in listed)]).astype(np.int32)
        _, judged = self.trials.judge(rows[: max(1, most)])
        finite = judged.score_s[np.isfinite(judged.score_s)]
        self._reference_s = (float(finite.min()) or 1.0) if len(finite) else 1.0
        return self.trials.report(judged.value, groups.n_groups)

    def _episode(self, trials: int) -> tuple[IntArray, Tensor, Tensor, int]:
        """Return placements, their log-probabilities and entropies, and the last number of clusters.

        The published state update feeds the clusters' codes back after each trial; our update draws all trials from
        one state.
        """
        one_state, levels = self.settings.update == "ours", self.settings.levels or None
        x, rows, log_chances, entropies, clusters = self._features, [], [], [], 0
        for _ in range(1 if one_state else trials):
            parsed = self.policy.structure(x, self._edges, levels, self.settings.parsing_noise)[-1]
            logits, code = self.policy.head(parsed.embedding)
            logits = logits.masked_fill(~self._cluster_allowed(parsed.cluster_of_group, parsed.n_clusters), -1e9)
            log_chance = torch.log_softmax(logits, dim=1)
            count = trials if one_state else 1
            action = torch.multinomial(log_chance.detach().exp(), count, replacement=True).T  # [trials, clusters]
            log_chances.append(_chosen(log_chance, action))
            entropies.append((-(log_chance.exp() * log_chance).sum()).expand(count))
            rows.append(action[:, parsed.cluster_of_group])
            x = x + code.detach()[parsed.cluster_of_group]
            clusters = parsed.n_clusters
        placed = self._within(torch.cat(rows))
        return placed, torch.cat(log_chances), torch.cat(entropies), clusters

    def _cluster_allowed(self, cluster_of_group: Tensor, n_clusters: int) -> Tensor:
        """[clusters, devices]: devices that some member takes; members that do not take theirs are moved later."""
        hits = torch.zeros(n_clusters, self._allowed.shape[1]).index_add(0, cluster_of_group, self._allowed.float())
        return hits > 0

    def _within(self, rows: Tensor) -> IntArray:
        """Groups whose cluster's device does not take them go to the first device that does."""
        takes = self._allowed[torch.arange(rows.shape[1])[None], rows]
        elsewhere = self._allowed.int().argmax(dim=1)[None]
        return torch.where(takes, rows, elsewhere).numpy().astype(np.int32)

    def _rewards(self, rows: IntArray, score_s: NDArray[np.float64]) -> NDArray[np.float64]:
        time_s = np.where(np.isfinite(score_s), score_s, FAILED_S)
        if not self.settings.allow_single_device:
            time_s = np.where((rows == rows[:, :1]).all(axis=1), FAILED_S, time_s)
        if self.settings.update == "ours":
            return np.maximum(np.log(self._reference_s / time_s), -3.0)
        return 1 / time_s

    def state(self) -> dict[str, Any]:
        return {"trials": self.trials.state(), "random": self._random.state, "reference_s": self._reference_s}

    def restore(self, state: dict[str, Any]) -> None:
        found = Stored(state, "learner")
        self.trials.restore(found.part("trials").data)
        self._random.state = random_state(found.value("random"), "learner: 'random'")
        self._reference_s = found.number("reference_s")


def _chosen(log_chance: Tensor, action: Tensor) -> Tensor:
    """[trials]: sum of the log-probabilities of the devices chosen for the clusters."""
    return log_chance[torch.arange(action.shape[1])[None], action].sum(dim=1)
