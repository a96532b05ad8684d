"""How GDP's policy learns: per-decision PPO with one advantage per placement, on one problem or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from placewright.errors import InputError
from placewright.placers.learned.features import Vocabulary
from placewright.placers.learned.gdp_features import node_width
from placewright.placers.learned.gdp_network import GdpPolicy, GraphTensors, join
from placewright.placers.learned.gdp_pupil import Asked, Pupil, Rollout
from placewright.placers.learned.gdp_settings import SHAPE, Settings, settings_of
from placewright.placers.learned.policy_file import Policy, load_policy
from placewright.placers.learned.stored import (
    Stored,
    check_weights,
    random_state,
    restore_optimiser,
    restore_weights,
)
from placewright.placers.learned.training import OwnRandomness, Report
from placewright.reading import reading


def new_policy(settings: Settings, vocabulary: Vocabulary, n_devices: int, seed: int) -> GdpPolicy:
    """A policy with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GdpPolicy(settings, node_width(vocabulary, with_work=settings.work_features), n_devices)


def stored_policy(path: str, settings: Settings, n_devices: int) -> tuple[GdpPolicy, Vocabulary]:
    """A policy from a file, which says how the network is built; how it learns is as in ``settings``."""
    stored = load_policy(path, "gdp")
    vocabulary = Vocabulary(stored.op_types)
    with reading(path, "a policy"):
        built = settings_of(stored.settings)
        wanted = replace(settings, **{name: getattr(built, name) for name in SHAPE})
        return fitted_policy(stored, wanted, vocabulary, n_devices, 0), vocabulary


def fitted_policy(stored: Policy, settings: Settings, vocabulary: Vocabulary, n_devices: int, seed: int) -> GdpPolicy:
    """A policy with the weights of a file, if they are those of such a network."""
    with torch.device("meta"):  # sizes out of a file cost nothing until the weights are there, too
        skeleton = GdpPolicy(settings, node_width(vocabulary, with_work=settings.work_features), n_devices)
    try:
        check_weights(stored.weights, skeleton.state_dict(), "weights")
    except InputError as error:
        raise InputError(f"does not fit {n_devices} devices, or is damaged: {error}") from error
    policy = new_policy(settings, vocabulary, n_devices, seed)
    policy.load_state_dict(stored.weights)
    return policy


def ppo_loss(log_chance: Tensor, rollout: Rollout, work: Tensor, settings: Settings, entropy_weight: float) -> Tensor:
    """Loss of one problem's rollout; ``log_chance`` [blocks, devices] is the policy's now.

    Ratios are taken and clipped per block: their product over thousands would mean nothing.
    """
    samples = len(rollout.action)
    now = torch.gather(log_chance[None].expand(samples, -1, -1), 2, rollout.action[:, :, None])[:, :, 0]
    ratio = torch.exp(now - rollout.log_chance)
    advantage = rollout.advantage[:, None]
    gain = torch.min(ratio * advantage, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantage).mean()
    entropy = -(log_chance.exp() * log_chance).sum(dim=1).mean()
    loss = -gain - entropy_weight * entropy
    if rollout.target is not None:
        likeness = (rollout.target * log_chance.clamp(min=-20.0)).sum(dim=1)
        # Large blocks matter more, small ones a little too.
        loss = loss - settings.imitation * 0.5 * (likeness.mean() + (work * likeness).sum())
    return loss


class Teacher:
    """The policy with its optimiser. ``where`` is the device that the network runs on."""

    def __init__(self, policy: GdpPolicy, settings: Settings, seed: int, where: str = "cpu") -> None:
        self.policy, self.settings, self.where = policy.to(where), settings, where
        self.optimiser = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate)
        self.random = OwnRandomness(seed)

    def ask(self, graphs: Sequence[tuple[GraphTensors, int]], samples: int) -> list[Asked]:
        """Draw placements for some graphs, each given with the number of its scale."""
        with torch.no_grad(), self.random():
            log_chance = self.policy(join([g for g, _ in graphs], self.settings.segment)).cpu()
            asked, first = [], 0
            for graph, scale in graphs:
                part = log_chance[first : first + graph.n_blocks, : len(graph.device)].contiguous()
                first += graph.n_blocks
                action = torch.multinomial(part.exp(), max(1, samples), replacement=True).T.contiguous()
                seed = int(torch.randint(2**62, (1,)).item())
                asked.append(Asked(scale, part, action[:samples], seed))
        return asked

    def learn(self, graphs: Sequence[GraphTensors], rollouts: Sequence[Rollout], progress: float) -> None:
        """Some epochs on what was judged; rates fall with ``progress`` from 0 to 1."""
        s = self.settings
        if s.learning_rate <= 0:
            return
        rate = s.learning_rate * (s.last_learning_rate / s.learning_rate) ** progress
        entropy_weight = s.entropy * (s.last_entropy / s.entropy) ** progress if s.entropy > 0 else 0.0
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        joined = join(graphs, s.segment)
        moved = [r.to(self.where) for r in rollouts]
        for _ in range(s.epochs):
            log_chance = self.policy(joined)
            losses, first = [], 0
            for graph, rollout in zip(graphs, moved, strict=True):
                own = log_chance[first : first + graph.n_blocks, : len(graph.device)]
                first += graph.n_blocks
                losses.append(ppo_loss(own, rollout, graph.work, s, entropy_weight))
            self.optimiser.zero_grad()
            torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.policy.parameters(), s.most_gradient)
            self.optimiser.step()

    def state(self) -> dict[str, Any]:
        return {
            "policy": self.policy.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": self.random.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        found = Stored(state, "teacher")
        restore_weights(self.policy, found.value("policy"), "policy")
        restore_optimiser(self.optimiser, found.value("optimiser"), "optimiser")
        self.random.state = random_state(found.value("random"), "teacher: 'random'")


class GdpLearner:
    """One problem, from scratch or from a trained policy; a step judges samples and changed copies, and learns."""

    def __init__(self, pupil: Pupil, teacher: Teacher) -> None:
        self.pupil, self.teacher, self.trials = pupil, teacher, pupil.trials
        self._wanted = 1

    def step(self, most: int) -> Report:
        if not self.pupil.has_started:
            self._wanted = max(1, most)  # rates fall over so many evaluations
            return self.pupil.start(most)
        s = self.teacher.settings
        samples = min(s.samples, most)
        scale = self.pupil.next_scale()
        graph = self.pupil.graphs[scale]
        (asked,) = self.teacher.ask([(graph, scale)], samples)
        greedy = min(1, most - samples) if s.mutants else 0
        rollout, report = self.pupil.judge(asked, min(s.mutants, most - samples - greedy), greedy)
        self.teacher.learn([graph], [rollout], min(1.0, self.trials.evaluations / self._wanted))
        return report
