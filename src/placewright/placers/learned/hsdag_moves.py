"""HSDAG with moves: the policy looks at the best placement so far and says which cluster should go where."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placewright.budget import Budget
from placewright.errors import InputError
from placewright.evaluate.judging import memory_matters
from placewright.graph import FloatArray, IntArray
from placewright.placers.learned.course import overtakings
from placewright.placers.learned.drawing import Drawer, Drawn
from placewright.placers.learned.features import Vocabulary, node_features
from placewright.placers.learned.groups import group_graph
from placewright.placers.learned.hsdag_settings import Settings
from placewright.placers.learned.moves import MOVE_WIDTH, STATE_WIDTH, Moves, MoveSpace, moved
from placewright.placers.learned.network import MoveHead, StructureNet
from placewright.placers.learned.rewards import Judged, Rewards, single_device_rows, ways_left
from placewright.placers.learned.sections import LEAST_GAIN, WIDE, Place, sections_of
from placewright.placers.learned.stored import Stored, any_number, random_state, ranks_of, rows_of, tensor
from placewright.placers.learned.training import OwnRandomness, Report, Trials, as_tensor
from placewright.placers.overlap.starts import constructive_starts
from placewright.placers.search.chains import work_prices
from placewright.problems import Problem

LARGEST_GAIN, LARGEST_LOSS = 4.0, 0.0  # of one trial, in typical changes; losses teach nothing beyond "no gain"
SCALE_MEMORY = 0.9
SHARPNESS = 0.5  # of the chances of moves, against their odds of a gain
REPLAYED = 256  # trials of the past in one update
LARGEST_GUESS = (-0.01, 0.03)  # changes of the score as guessed, as shares of it; beyond, moves are alike
BAND = 0.015  # placements so much worse than the best one are good enough to go on from, less and less
STARTS_S = 60.0  # for list schedules; long, because what is left out for lack of time depends on the machine
FADING = 1 / 3  # share of the evaluations over which priced work fades out of the score
MOST_PLACES, MOST_WHOLE = 1000, 2**53  # in checkpoints
SHAKING_MOVES = 4  # at random, where all in reach was tried


class MovePolicy(nn.Module):
    """Embeds groups and clusters, and scores moves. Fits any graph and any number of devices."""

    def __init__(self, settings: Settings, vocabulary: Vocabulary) -> None:
        super().__init__()
        width = settings.blocks.width(vocabulary) + STATE_WIDTH
        self.structure = StructureNet(width, settings.hidden, settings.dropout, directed=settings.directed)
        self.head = MoveHead(settings.hidden, MOVE_WIDTH)


class _Choice(NamedTuple):
    moves: Moves
    inputs: Tensor  # [moves, width]: what the head judges moves by
    overtakings: NDArray[np.int64]  # [pairs, 2]: ops that might run earlier, and those before which
    logits: Tensor  # [moves]
    clusters: int


class MoveLearner:
    """Searches one problem and teaches the policy on the way; several learners may share one policy.

    One step: parse the graph, score all moves, draw some for each section of the graph, judge the placements they lead
    to in one batch, reinforce moves by the gain that they brought to their section, and go on from the best of each
    section, if it is better or hardly worse than the best yet.
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
        self._now: Place | None = None
        self._best: Place | None = None
        self._untried: list[Place] = []  # to be judged next; the search goes on from the last one
        self._progress = 0.0  # share of the evaluations that are done
        self._scale, self._whole = 0.0, 0
        self._memory: list[Tensor] = []
        self._gained: list[Tensor] = []
        self._ordered = rewards.has_order
        has_limits = bool(problem.max_segments) or memory_matters(problem)
        self.sections = sections_of(problem, groups, apart=settings.sections and self._ordered and not has_limits)
        self._drawer = Drawer(problem, groups, self.sections, ordered=self._ordered)

    def step(self, most: int) -> Report:
        if self._now is None or self._best is None:
            return self._start(most)
        if self._untried:
            return self._judge_untried(most)
        now, best = self._now, self._best
        with self._random():
            weight = self._work_weight(most)
            choice = self._look(now, weight)
            chance = self._chances(choice.logits.detach())
            wanted = min(self.settings.batch, most)
            drawn = self._drawer.draw(now, choice.moves, choice.overtakings, chance, wanted, self._progress)
            if not len(drawn.rows):
                return self._shake(now, choice)
            places, judged = self._judge(drawn.rows, drawn.rank_s)
            outcome = self._outcome(now, places, weight)
            gain = outcome.gains(drawn)
            self._learn(choice.logits, drawn.chosen, gain)
            self._remember(choice.inputs, drawn, gain)
            self._replay()
        self._go_on(now, best, places, drawn, outcome)
        return self.trials.report(judged.value, choice.clusters)

    def _judge(self, rows: IntArray, rank_s: FloatArray | None) -> tuple[list[Place], Judged]:
        rows, judged = self.trials.judge(rows, rank_s)
        time_s = judged.score_s[:, None]
        if self.sections.n_sections > 1:
            op_rows = rows[:, self.trials.groups.group_of_op]
            rank_s = ways_left(self.problem, op_rows) if rank_s is None else rank_s
            time_s = self.sections.times_s(self.problem, op_rows, rank_s)
        ranks = [None] * len(rows) if rank_s is None else list(rank_s)
        places = [Place(*place) for place in zip(rows, ranks, time_s, strict=True)]
        self._best = min([*places, *([self._best] if self._best else [])], key=lambda place: place.score_s)
        return places, judged

    def _outcome(self, now: Place, places: list[Place], work_weight: float) -> _Outcome:
        work_s = work_weight * self._work(np.stack([now.device, *(place.device for place in places)]))
        time_s = np.stack([place.time_s for place in places])
        return _Outcome(time_s, time_s + work_s[1:], now.time_s + work_s[0])

    def _go_on(self, now: Place, best: Place, places: list[Place], drawn: Drawn, outcome: _Outcome) -> None:
        """Take the best change of each section, if it gains or is good enough; or a change across sections."""
        taken: dict[int, int] = {}
        for section in np.unique(drawn.section[drawn.section != WIDE]).tolist():
            trials = drawn.trial[drawn.section == section]
            time_s, score_s = outcome.time_s[trials, section], outcome.score_s[trials, section]
            gains = score_s.min() <= outcome.now_s[section]
            pick = int(score_s.argmin() if gains else time_s.argmin())
            if gains or time_s[pick] <= self._good_enough(now, best, section):
                taken[section] = int(trials[pick])
        with_taken_s = outcome.now_s.copy()
        for section, i in taken.items():
            with_taken_s[section] = outcome.score_s[i, section]
        whole_s = outcome.score_s.sum(axis=1)
        wide = drawn.trial[drawn.section == WIDE]
        if len(wide) and whole_s[wide].min() <= with_taken_s.sum():
            self._now = places[wide[whole_s[wide].argmin()]]
        elif taken and self.sections.n_sections == 1:
            self._now = places[taken[0]]
        elif taken:
            self._untried.append(self.sections.put_together(now, places, taken))
        self._put_best_together(places)

    def _put_best_together(self, places: list[Place]) -> None:
        """The best placement with sections that were faster elsewhere is to be tried."""
        assert self._best is not None
        better = self.sections.better(self._best, places) if self.sections.n_sections > 1 else {}
        if better:
            self._untried.insert(0, self.sections.put_together(self._best, places, better))

    def _good_enough(self, now: Place, best: Place, section: int) -> float:
        """From times up to this the search goes on, although they are worse: the way out of local optima."""
        valid_s, n = self.trials.best_value, self.sections.n_sections
        if not math.isfinite(valid_s) or not self.sections.compare(now, best, section):
            return float(now.time_s[section])
        # Of a single section the best score may be that of an invalid placement.
        best_s = valid_s if n == 1 else float(best.time_s[section])
        return max(float(now.time_s[section]), best_s + BAND * (1 - self._progress) * valid_s / math.sqrt(n))

    def _judge_untried(self, most: int) -> Report:
        """Judge what was put together; where it is worse than it was guessed to be, go on from the best."""
        guessed, self._untried = self._untried[: max(1, most)], []
        rank_s = np.stack([self._drawer.order_of(place) for place in guessed])
        places, judged = self._judge(np.stack([place.device for place in guessed]), rank_s)
        self._now = places[-1] if places[-1].score_s <= guessed[-1].score_s * (1 + BAND) else self._best
        return self.trials.report(judged.value, self.sections.n_sections)

    def _shake(self, now: Place, choice: _Choice) -> Report:
        """Everything in reach was tried: some moves at random."""
        count = len(choice.moves.level)
        chosen = torch.randint(count, (1, SHAKING_MOVES)).numpy() if count else np.full((1, 1), -1)
        places, judged = self._judge(moved(now.device, choice.moves, chosen) if count else now.device[None], None)
        self._now = places[0]
        self._drawer.note(places[0].device)
        return self.trials.report(judged.value, choice.clusters)

    def _start(self, most: int) -> Report:
        """Everything on each device, then list schedules: the best of them is where the search begins."""
        groups = self.trials.groups
        rows = single_device_rows(groups.allowed)
        if self.settings.starts:
            starts = constructive_starts(self.problem, Budget(STARTS_S), self._seed)
            listed = [s.device_of_op[groups.first_op] for s in starts]
            rows = np.concatenate([rows, *(row[None] for row in listed)]).astype(np.int32)
        places, judged = self._judge(rows[: max(most, 1)], None)
        self._now = places[int(judged.score_s.argmin())]
        for place in places:
            self._drawer.note(place.device)
        self._put_best_together(places)
        return self.trials.report(judged.value, groups.n_groups)

    def _look(self, place: Place, work_weight: float) -> _Choice:
        """Score every move from a placement: what the policy thinks of it, added to what is guessed."""
        now = self.space.situation(place.device, place.rank_s)
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

    def _remember(self, inputs: Tensor, drawn: Drawn, gain: NDArray[np.float64]) -> None:
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
        return self.sections.sums(time_s * self._price[rows])

    def state(self) -> dict[str, Any]:
        return {
            "trials": self.trials.state(),
            "random": self._random.state,
            "places": [[as_tensor(x) for x in place] for place in (self._now, self._best, *self._untried) if place],
            "numbers": [self._scale, self._whole, self._progress],
            "seen": torch.tensor(sorted(self._drawer.seen), dtype=torch.int64),
            "memory": [torch.cat(self._memory), torch.cat(self._gained)] if self._memory else [],
        }

    def restore(self, state: dict[str, Any]) -> None:
        found = Stored(state, "learner")
        self.trials.restore(found.part("trials").data)
        self._random.state = random_state(found.value("random"), "learner: 'random'")
        places = [self._place(entry) for entry in found.listed("places", 0, MOST_PLACES)]
        if len(places) == 1:
            raise InputError("learner: 'places' has one entry, expected none or at least two")
        scale, whole, progress = (any_number(x, "learner: 'numbers'", -1.0) for x in found.listed("numbers", 3, 3))
        if not (0 <= scale < math.inf and 0 <= whole < MOST_WHOLE and whole.is_integer() and progress <= 1):
            raise InputError("learner: 'numbers' are not what a search leaves")
        seen = tensor(found.value("seen"), "learner: 'seen'", torch.int64, (None,))
        memory = found.listed("memory", 0, 2)
        width = self.policy.head.width + 1  # and a first guess
        if memory:
            inputs = tensor(memory[0], "learner: 'memory'", torch.float32, (None, width))
            tensor(memory[-1], "learner: 'memory'", torch.float32, (len(inputs),))
            if len(memory) != 2 or not len(inputs):
                raise InputError("learner: 'memory' is not what a search leaves")
        self._now, self._best = (places[0], places[1]) if places else (None, None)
        self._untried = places[2:]
        self._scale, self._whole, self._progress = scale, int(whole), progress
        self._drawer.seen = set(seen.tolist())
        self._memory, self._gained = [[kept] for kept in memory] or ([], [])

    def _place(self, entry: Any) -> Place:
        where = "learner: 'places'"
        if not (isinstance(entry, list) and len(entry) == 3):
            raise InputError(f"{where} is not a list of placements")
        device = rows_of(entry[0], where, self.trials.groups.allowed)
        time_s = tensor(entry[2], where, torch.float64, (self.sections.n_sections,), infinite=True).numpy()
        return Place(device, ranks_of(entry[1], where, self.problem.n_ops), time_s)


class _Outcome(NamedTuple):
    """What trials came to, by sections; scores are times and priced work."""

    time_s: FloatArray  # [trials, sections]
    score_s: FloatArray  # [trials, sections]
    now_s: FloatArray  # [sections]: the score that they have to beat

    def gains(self, drawn: Drawn) -> NDArray[np.float64]:
        """[changes]: log-ratios of the whole score, as if nothing else had been changed."""
        whole = float(self.now_s.sum())
        after = self.score_s.sum(axis=1)[drawn.trial]
        if len(self.now_s) > 1:
            change = (self.score_s - self.now_s)[drawn.trial, drawn.section]
            after = np.where(drawn.section == WIDE, after, whole + change)
        return _log_ratio(whole, after)


def _log_ratio(before: float, after: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(before / after), where either may be infinite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(np.log(before / after), nan=0.0, posinf=np.inf, neginf=-np.inf)
