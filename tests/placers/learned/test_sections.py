"""Sections: they add up, they do not disturb each other, and nothing is looked at that was not judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.api import load  # noqa: E402
from placewright.budget import Budget  # noqa: E402
from placewright.evaluate import evaluate_many  # noqa: E402
from placewright.graph import build_graph  # noqa: E402
from placewright.placers import get_placer  # noqa: E402
from placewright.placers.learned import course  # noqa: E402
from placewright.placers.learned.drawing import Drawer  # noqa: E402
from placewright.placers.learned.features import Vocabulary  # noqa: E402
from placewright.placers.learned.groups import group_graph  # noqa: E402
from placewright.placers.learned.hsdag import new_learner, new_policy  # noqa: E402
from placewright.placers.learned.hsdag_settings import settings_for  # noqa: E402
from placewright.placers.learned.moves import MoveSpace  # noqa: E402
from placewright.placers.learned.rewards import SimulatedRewards, ways_left  # noqa: E402
from placewright.placers.learned.sections import WIDE, Place, Sections, sections_of  # noqa: E402
from placewright.problems import Problem  # noqa: E402


@pytest.fixture(scope="module")
def inception() -> Problem:
    return load("zoo:inception-v3", cluster="flex170")


def cut(problem: Problem) -> Sections:
    return sections_of(problem, group_graph(problem), apart=True)


def random_place(problem: Problem, sections: Sections, rng: np.random.Generator, ends_on: int = 0) -> Place:
    """Random devices and order; sections end on the device with the number ``ends_on``."""
    device = rng.integers(0, problem.n_devices, problem.n_ops).astype(np.int32)
    device[sections.exit[:-1]] = ends_on
    rank_s = rng.permutation(problem.n_ops) * 1e-6
    return Place(device, rank_s, sections.times_s(problem, device[None], rank_s[None])[0])


def test_modules_of_inception_are_sections_and_nothing_leads_past_their_ends(inception: Problem) -> None:
    sections, graph = cut(inception), inception.graph
    assert sections.n_sections == 13
    crossing = sections.of_op[graph.edge_producer] != sections.of_op[graph.consumer_op]
    assert set(graph.edge_producer[crossing].tolist()) == set(sections.exit[:-1].tolist())
    assert (sections.of_group[sections.exit[:-1]] == WIDE).all()
    assert (np.diff(sections.of_op) >= 0).all()


def test_what_is_read_everywhere_neither_cuts_nor_belongs_to_a_section() -> None:
    problem = load("zoo:bert-base", cluster="flex170")
    sections = cut(problem)
    assert sections.n_sections >= 12
    assert sections.of_group[problem.graph.op_names.index("extended_mask.scale")] == WIDE


def test_without_narrow_places_or_with_limits_all_is_one_section(inception: Problem) -> None:
    n = 40
    names = [str(i) for i in range(n)]
    tensors = [(i, 8.0, [j for j in (i + 1, i + 2, i + 3) if j < n]) for i in range(n - 1)]
    graph, _ = build_graph("braid", names, tensors)
    problem = load(graph, cluster="flex170")
    assert cut(problem).n_sections == 1
    settings, vocabulary = settings_for("ours"), Vocabulary.of([inception.graph])
    counts = []
    for limited in (inception, inception.with_options(max_segments=4)):
        policy, optimiser = new_policy(settings, vocabulary, limited.n_devices, 0)
        learner: Any = new_learner(limited, SimulatedRewards(limited), settings, vocabulary, policy, optimiser, 0)
        counts.append(learner.sections.n_sections)
    assert counts == [13, 1]


@pytest.mark.parametrize("seed", range(10))
def test_times_of_sections_add_up_to_the_value(inception: Problem, seed: int) -> None:
    place = random_place(inception, cut(inception), np.random.default_rng(seed), seed % 2)
    assert place.rank_s is not None
    value = evaluate_many(inception, place.device[None], -place.rank_s[None]).value[0]
    assert place.score_s == pytest.approx(value)


@pytest.mark.parametrize("seed", range(10))
def test_sections_of_two_placements_put_together_take_the_times_that_they_took(inception: Problem, seed: int) -> None:
    sections, rng = cut(inception), np.random.default_rng(seed)
    one, other = (random_place(inception, sections, rng, seed % 2) for _ in range(2))
    better = sections.better(one, [other])
    assert better.keys() == set(np.flatnonzero(other.time_s < one.time_s).tolist())
    both = sections.put_together(one, [other], better)
    assert both.rank_s is not None
    assert both.time_s == pytest.approx(np.minimum(one.time_s, other.time_s))
    value = evaluate_many(inception, both.device[None], -both.rank_s[None]).value[0]
    assert value == pytest.approx(both.score_s)


def test_sections_that_are_entered_from_other_devices_do_not_compare(inception: Problem) -> None:
    sections, rng = cut(inception), np.random.default_rng(0)
    one, other = (random_place(inception, sections, rng, ends_on) for ends_on in (0, 1))
    assert sections.better(one, [other]) == {}
    assert not any(sections.compare(one, other, section) for section in range(sections.n_sections))


def test_trials_change_sections_by_their_own_moves_and_nothing_twice(inception: Problem) -> None:
    groups, sections = group_graph(inception), cut(inception)
    space, drawer = MoveSpace(inception, groups), Drawer(inception, groups, sections, ordered=True)
    now = random_place(inception, sections, np.random.default_rng(0))
    situation = space.situation(now.device, now.rank_s)
    moves = space.moves(situation, [np.arange(groups.n_groups), np.arange(groups.n_groups) // 5])
    of_move = sections.of_moves(moves)
    for section, level, part in zip(of_move, moves.level, moves.part, strict=True):
        touched = set(sections.of_group[moves.part_of_group[level] == part].tolist())
        assert (touched == {section}) or (section == WIDE and (len(touched) > 1 or WIDE in touched))
    torch.manual_seed(0)
    chance = torch.full((len(of_move),), 1 / len(of_move))
    met: set[tuple[int, bytes]] = set()
    for _ in range(20):
        drawn = drawer.draw(now, moves, course.overtakings(situation.course), chance, 8, 0.0)
        assert len(drawn.rows) == 8
        assert drawn.rank_s is not None
        for trial, row in enumerate(drawn.rows):
            changed = set(sections.of_op[row != now.device].tolist())
            ours = set(drawn.section[drawn.trial == trial].tolist())
            assert ours == {WIDE} or changed <= ours
        for trial, section, chosen in zip(drawn.trial, drawn.section, drawn.chosen, strict=True):
            if section != WIDE and chosen[0] >= 0:
                key = (int(section), drawn.rows[trial, sections.home == section].tobytes())
                assert key not in met
                met.add(key)


def test_only_judged_placements_are_looked_at(inception: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: set[bytes] = set()
    looked_at: set[bytes] = set()
    judge, simulated = SimulatedRewards.judge, course._simulated

    def noted_judge(self: SimulatedRewards, rows: Any, rank_s: Any = None) -> Any:
        ranks = ways_left(self.problem, rows) if rank_s is None else rank_s
        judged.update(row.tobytes() + rank.tobytes() for row, rank in zip(rows, ranks, strict=True))
        return judge(self, rows, rank_s)

    def noted_simulation(problem: Problem, device: Any, rank_s: Any) -> Any:
        looked_at.add(device.tobytes() + rank_s.tobytes())
        return simulated(problem, device, rank_s)

    monkeypatch.setattr(SimulatedRewards, "judge", noted_judge)
    monkeypatch.setattr(course, "_simulated", noted_simulation)
    placement = get_placer("hsdag").place(inception, Budget(60, evaluations=300), 0)
    assert placement.evaluations == 300
    assert len(looked_at) > 100
    assert looked_at <= judged
    assert len(judged) <= 300
