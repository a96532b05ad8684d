"""HSDAG with moves: the policy looks at the best placement so far and says which cluster should go where."""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placewright.budget import Budget
from placewright.graph import FloatArray, IntArray
from placewright.placers.annealing.search import work_prices
from placewright.placers.learned.course import overtakings
from placewright.placers.learned.features import Vocabulary, node_features
from placewright.placers.learned.groups import group_graph
from placewright.placers.learned.hsdag_settings import Settings
from placewright.placers.learned.moves import MOVE_WIDTH, STATE_WIDTH, Moves, MoveSpace, moved
from placewright.placers.learned.network import MoveHead, StructureNet
from placewright.placers.learned.rewards import Rewards, single_device_rows, ways_left
from placewright.placers.learned.training import OwnRandomness, Report, Trials, as_array, as_tensor
from placewright.placers.lists.starts import constructive_starts
from placewright.problem import Problem

MORE_MOVES = (0.35, 0.1)  # chance of a second and of a third move in one trial
DRAWS_PER_TRIAL = 4  # placements met before are not tried again, so more are drawn than needed
LARGEST_GAIN, LARGEST_LOSS = 4.0, 0.0  # of one trial, in typical changes; losses teach nothing beyond "no gain"
SCALE_MEMORY = 0.9
SHARPNESS = 0.5  # of the chances of moves, against their odds of a gain
LEAST_GAIN = 1e-9  # log-ratio: less is rounding
REPLAYED = 256  # trials of the past in one update
OVERTAKING = 0.25  # share of the trials that let an op overtake another one, and change nothing else
SHIFTING, SHIFT = 0.4, 0.05  # share of the last trials that put a part forward or back, and by how much of the value
KEEPING_ORDER = 0.5  # share of the other trials that keep the order of now; else the longest way left decides anew
LARGEST_GUESS = (-0.01, 0.03)  # changes of the score as guessed, as shares of it; beyond, moves are alike
BAND = 0.015  # placements so much worse than the best one are good enough to go on from, less and less
STARTS_S = 60.0  # for list schedules; long, because what is left out for lack of time depends on the machine
FADING = 1 / 3  # share of the evaluations over which priced work fades out of the score
SHAKING_MOVES = 4  # at random, where all in reach was tried


class MovePolicy(nn.Module):
    """Embeds groups and clusters, and scores moves. Fits any graph and any number of devices."""

    def __init__(self, settings: Settings, vocabulary: Vocabulary) -> None:
        super().__init__()
        width = settings.blocks.width(vocabulary) + STATE_WIDTH
        self.structure = StructureNet(width, settings.hidden, settings.dropout, directed=settings.directed)
        self.head = MoveHead(settings.hidden, MOVE_WIDTH)


class _Drawn(NamedTuple):
    chosen: NDArray[np.int64]  # [trials, moves]: -1 for none
    rows: IntArray  # [trials, groups]
    rank_s: FloatArray | None  # [trials, ops]
    is_alone: NDArray[np.bool_]  # [trials]: one move, nothing else


class _Choice(NamedTuple):
    moves: Moves
    inputs: Tensor  # [moves, width]: what the head judges moves by
    overtakings: NDArray[np.int64]  # [pairs, 2]: ops that might run earlier, and those before which
    logits: Tensor  # [moves]
    clusters: int


class MoveLearner:
    """Searches one problem and teaches the policy on the way; several learners may share one policy.

    One step: parse the graph, score all moves, draw some, judge the placements they lead to in one batch, reinforce
    moves by the gain they brought, and go on from the best of them, if it is better or hardly worse than the best yet.
    """

    def __init__(
        self, problem: Problem, rewards: Rewards, settings: Settings, vocabulary: Vocabulary, policy: MovePolicy,
        optimiser: torch.optim.Optimizer, seed: int,
    ) -> None:  # fmt: skip
        self.problem, self.settings, self.policy, self.optimiser = problem, settings, policy, optimiser
        groups = group_graph(problem, settings.colocation)
        self.trials = Trials(problem, groups, rewards)
        self._price = problem.n_devices * work_prices(problem)
        self.space = MoveSpace(problem, groups, self._price)
        self._features = torch.from_numpy(node_features(problem, groups, vocabulary, settings.blocks))
        self._edges = torch.from_numpy(groups.edges)
        self._random, self._seed = OwnRandomness(seed), seed
        self._device: IntArray | None = None
        self._rank_s: FloatArray | None = None  # [ops]: the order, None: by the longest way left
        self._progress = 0.0  # share of the evaluations that are done
        self._value, self._scale, self._whole = math.inf, 0.0, 0
        self._seen: set[int] = set()
        self._memory: list[Tensor] = []
        self._gained: list[Tensor] = []
        self._ordered = rewards.has_order

    def step(self, most: int) -> Report:
        if self._device is None:
            return self._start(most)
        with self._random():
            weight = self._work_weight(most)
            choice = self._look(self._device, weight)
            drawn = self._draw(choice, min(self.settings.batch, most))
            if not len(drawn.rows):
                return self._shake(choice)
            rows, judged = self.trials.judge(drawn.rows, drawn.rank_s)
            score = judged.score_s + weight * self._work(rows)
            now = self._value + weight * float(self._work(self._device[None])[0])
            gain = _log_ratio(now, score)
            self._learn(choice.logits, drawn.chosen, gain)
            self._remember(choice.inputs, drawn, gain)
            self._replay()
        best = int(score.argmin() if score.min() <= now else judged.score_s.argmin())
        if score[best] <= now or judged.score_s[best] <= max(self._value, self._good_enough()):
            self._device, self._value = rows[best], float(judged.score_s[best])
            self._rank_s = None if drawn.rank_s is None else drawn.rank_s[best]
        return self.trials.report(judged.value, choice.clusters)

    def _good_enough(self) -> float:
        """From values up to this the search goes on, although they are worse: the way out of local optima."""
        best = self.trials.best_value
        return best * (1 + BAND * (1 - self._progress)) if math.isfinite(best) else -math.inf

    def _shake(self, choice: _Choice) -> Report:
        """Everything in reach was tried: some moves at random."""
        assert self._device is not None
        count = len(choice.moves.level)
        chosen = torch.randint(count, (1, SHAKING_MOVES)).numpy() if count else np.full((1, 1), -1)
        row = moved(self._device, choice.moves, chosen) if count else self._device[None]
        rows, judged = self.trials.judge(row)
        self._device, self._value, self._rank_s = rows[0], float(judged.score_s[0]), None
        self._seen.add(_key(rows[0]))
        return self.trials.report(judged.value, choice.clusters)

    def _start(self, most: int) -> Report:
        """Everything on each device, then list schedules: the best of them is where the search begins."""
        groups = self.trials.groups
        rows = single_device_rows(groups.allowed)
        if self.settings.starts:
            starts = constructive_starts(self.problem, Budget(STARTS_S), self._seed)
            listed = [s.device_of_op[groups.first_op] for s in starts]
            rows = np.concatenate([rows, *(row[None] for row in listed)]).astype(np.int32)
        rows, judged = self.trials.judge(rows[: max(most, 1)])
        best = int(judged.score_s.argmin())
        self._device, self._value = rows[best], float(judged.score_s[best])
        self._seen.update(_key(row) for row in rows)
        return self.trials.report(judged.value, groups.n_groups)

    def _look(self, device: IntArray, work_weight: float) -> _Choice:
        """Score every move from a placement: what the policy thinks of it, added to what is guessed."""
        now = self.space.situation(device, self._rank_s)
        x = torch.cat([self._features, torch.from_numpy(self.space.state_features(now))], dim=1)
        levels = self.settings.levels or None
        parsed = self.policy.structure(x, self._edges, levels, self.settings.parsing_noise)
        moves = self.space.moves(now, [p.cluster_of_group.numpy() for p in parsed])
        first = torch.tensor(np.cumsum([0, *(p.n_clusters for p in parsed[:-1])]))
        row = first[moves.level] + torch.from_numpy(moves.cluster)
        embedding = torch.cat([p.embedding for p in parsed])[row]
        change = np.clip(moves.value_change + work_weight * moves.work_change, *LARGEST_GUESS)
        guess = torch.from_numpy(-100 * self.settings.trust * change).float().unsqueeze(1)
        inputs = torch.cat([embedding, torch.from_numpy(moves.features), guess], dim=1)
        pairs = overtakings(now.course) if self._ordered else np.zeros((0, 2), dtype=np.int64)
        clusters = parsed[min(1, len(parsed) - 1)].n_clusters
        return _Choice(moves, inputs, pairs, self.policy.head(inputs), clusters)

    def _draw(self, choice: _Choice, wanted: int) -> _Drawn:
        """Draw trials by the policy: different first moves, sometimes a second and a third one; none met before.

        Where order matters, some trials change it: an op overtakes another one, or a part goes forward or back.
        """
        assert self._device is not None
        chance = self._chances(choice.logits.detach())
        draws = min(DRAWS_PER_TRIAL * wanted, len(chance))
        if draws == 0:
            return _Drawn(np.zeros((0, 1), dtype=np.int64), self._device[None][:0], None, np.zeros(0, dtype=np.bool_))
        chosen = torch.full((draws, 1 + len(MORE_MOVES)), -1)
        chosen[:, 0] = torch.multinomial(chance, draws)
        for k, share in enumerate(MORE_MOVES):
            more = torch.multinomial(chance, draws, replacement=True)
            chosen[:, k + 1] = torch.where(torch.rand(draws) < share, more, chosen[:, k + 1])
        overtakes = torch.rand(draws) < (OVERTAKING if len(choice.overtakings) else 0.0)
        shifts = ~overtakes & (torch.rand(draws) < (SHIFTING * self._progress if self._ordered else 0.0))
        chosen[overtakes | (shifts & (torch.rand(draws) < 0.5))] = -1
        rows = moved(self._device, choice.moves, chosen.numpy())
        rank_s = None
        if self._ordered:
            part = torch.multinomial(chance, draws, replacement=True).numpy()
            shift_s = SHIFT * self._value * torch.randn(draws, dtype=torch.float64) * shifts
            hit = choice.moves.part_of_group[choice.moves.level[part]] == choice.moves.part[part][:, None]
            rank_s = self._ranks(rows, choice.overtakings, overtakes.numpy())
            rank_s += (hit * shift_s.numpy()[:, None])[:, self.trials.groups.group_of_op]
        reordered = (overtakes | shifts).numpy()
        fresh: list[int] = []
        for i, row in enumerate(rows):
            key = _key(row) if rank_s is None or not reordered[i] else _key(row, rank_s[i])
            if len(fresh) < wanted and key not in self._seen:
                self._seen.add(key)
                fresh.append(i)
        taken = chosen.numpy()[fresh]
        alone = (taken[:, 0] >= 0) & (taken[:, 1:] < 0).all(axis=1) & ~reordered[fresh]
        return _Drawn(taken, rows[fresh], None if rank_s is None else rank_s[fresh], alone)

    def _ranks(self, rows: IntArray, pairs: NDArray[np.int64], overtakes: NDArray[np.bool_]) -> FloatArray:
        """[trials, ops]: as now, or by the longest ways left with the differences of now; some ops overtake others."""
        assert self._device is not None
        group_of_op, draws = self.trials.groups.group_of_op, len(rows)
        way_s = ways_left(self.problem, self._device[group_of_op][None])[0]
        now_s = way_s if self._rank_s is None else self._rank_s
        keeps = (torch.rand(draws) < KEEPING_ORDER).numpy() | overtakes
        ranks = np.where(keeps[:, None], now_s, ways_left(self.problem, rows[:, group_of_op]) + now_s - way_s)
        if overtakes.any():
            pair = pairs[torch.randint(len(pairs), (draws,)).numpy()[overtakes]]
            ranks[overtakes, pair[:, 0]] = np.nextafter(now_s[pair[:, 1]], np.inf)
        return ranks

    def _chances(self, logits: Tensor) -> Tensor:
        """Not all trials on what looked best so far: chances are evened out, and a share of them is for any move."""
        chance = torch.softmax(SHARPNESS * logits, dim=0)
        return (1 - self.settings.exploring) * chance + self.settings.exploring / max(len(chance), 1)

    def _learn(self, logits: Tensor, chosen: NDArray[np.int64], gain: NDArray[np.float64]) -> None:
        """Policy gradient: log-ratio gains in units of the typical change, less their mean; an entropy bonus."""
        finite = gain[np.isfinite(gain)]
        typical = float(np.abs(finite).mean()) if len(finite) else 0.0
        self._scale = typical if self._scale == 0 else SCALE_MEMORY * self._scale + (1 - SCALE_MEMORY) * typical
        if self.settings.learning_rate == 0 or self._scale == 0:
            return
        reward = np.clip(gain / self._scale, -LARGEST_LOSS, LARGEST_GAIN)
        advantage = torch.tensor(reward - reward.mean(), dtype=torch.float32).unsqueeze(1)
        log_chance = torch.log_softmax(logits, dim=0)
        taken = torch.from_numpy(chosen)
        per_trial = torch.where(taken >= 0, log_chance[taken.clamp(min=0)], torch.zeros(()))
        entropy = -(log_chance.exp() * log_chance).sum()
        loss = -(advantage * per_trial).sum(dim=1).mean() - self.settings.entropy * entropy
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def _remember(self, inputs: Tensor, drawn: _Drawn, gain: NDArray[np.float64]) -> None:
        """Keep trials of one move and nothing else: what was judged, and whether it gained."""
        alone = drawn.is_alone & (self.settings.replays > 0)
        if alone.any():
            self._memory.append(inputs.detach()[torch.from_numpy(drawn.chosen[alone, 0])])
            self._gained.append(torch.from_numpy((gain[alone] > LEAST_GAIN).astype(np.float32)))

    def _replay(self) -> None:
        """Teach the head by all trials so far, not by the last ones only: logits become log-odds of a gain."""
        if not self._memory or self.settings.learning_rate == 0:
            return
        inputs, gained = torch.cat(self._memory), torch.cat(self._gained)
        for _ in range(self.settings.replays):
            some = torch.randint(len(inputs), (min(len(inputs), REPLAYED),))
            loss = nn.functional.binary_cross_entropy_with_logits(self.policy.head(inputs[some]), gained[some])
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
        if len(self._memory) > 64:
            self._memory, self._gained = [inputs], [gained]

    def _work_weight(self, left: int) -> float:
        """Of priced work in the score: it shows progress where values are flat, and fades out in the end.

        It differs from step to step: what one weight hides, another one shows.
        """
        self._whole = max(self._whole, left)
        self._progress = 1 - left / self._whole
        if not self._ordered:
            return 0.0
        return self.settings.work_weight * float(torch.rand(())) ** 2 * min(1.0, (1 - self._progress) / FADING)

    def _work(self, rows: IntArray) -> NDArray[np.float64]:
        time_s = np.take_along_axis(self.trials.groups.time_s[None], rows[:, :, None].astype(np.int64), axis=2)[:, :, 0]
        return (time_s * self._price[rows]).sum(axis=1)

    def state(self) -> dict[str, Any]:
        return {
            "trials": self.trials.state(),
            "random": self._random.state,
            "device": as_tensor(self._device),
            "rank_s": as_tensor(self._rank_s),
            "numbers": [self._value, self._scale, self._whole, self._progress],
            "seen": torch.tensor(sorted(self._seen), dtype=torch.int64),
            "memory": [torch.cat(self._memory), torch.cat(self._gained)] if self._memory else [],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.trials.restore(state["trials"])
        self._random.state = state["random"]
        self._device = as_array(state["device"])
        self._rank_s = as_array(state["rank_s"])
        self._value, self._scale, self._whole, self._progress = state["numbers"]
        self._seen = set(state["seen"].tolist())
        self._memory, self._gained = [[tensor] for tensor in state["memory"]] or ([], [])


def _log_ratio(before: float, after: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(before / after), where either may be infinite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(np.log(before / after), nan=0.0, posinf=np.inf, neginf=-np.inf)


def _key(*arrays: NDArray[Any]) -> int:
    digest = hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
