"""HSDAG's acceptance checks: features, parser, gradients, losses, and searches whose optimum is known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.api import load  # noqa: E402
from placewright.budget import Budget  # noqa: E402
from placewright.cluster import Cluster, Device, DeviceKind, Link  # noqa: E402
from placewright.errors import InputError  # noqa: E402
from placewright.evaluate import evaluate_many  # noqa: E402
from placewright.graph import build_graph  # noqa: E402
from placewright.placers import get_placer  # noqa: E402
from placewright.placers.base import best_single_device  # noqa: E402
from placewright.placers.learned.features import Blocks, Vocabulary, fractal_dimensions, node_features  # noqa: E402
from placewright.placers.learned.groups import GroupGraph, group_graph, repaired  # noqa: E402
from placewright.placers.learned.hsdag import new_learner, new_policy  # noqa: E402
from placewright.placers.learned.hsdag_episodes import policy_loss  # noqa: E402
from placewright.placers.learned.hsdag_settings import settings_for  # noqa: E402
from placewright.placers.learned.network import DeviceHead, StructureNet  # noqa: E402
from placewright.placers.learned.parsing import components, dominant_neighbour, parse_level, undirected  # noqa: E402
from placewright.placers.learned.rewards import SimulatedRewards, ways_left  # noqa: E402
from placewright.placers.learned.rnn_learner import reinforce_loss  # noqa: E402
from placewright.problems import Problem  # noqa: E402
from placewright.testing import random_problem  # noqa: E402


def plain_groups(n: int, edges: list[tuple[int, int]]) -> GroupGraph:
    return GroupGraph(
        np.arange(n, dtype=np.int32), np.arange(n), np.array(edges, dtype=np.int64).reshape(-1, 2),
        np.ones((n, 2), dtype=np.bool_), np.ones((n, 2)), np.ones(n),
    )  # fmt: skip


def test_fractal_dimension_of_the_end_of_a_path_is_one_and_of_a_star_s_centre_zero() -> None:
    path = plain_groups(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert fractal_dimensions(path)[0] == pytest.approx(1.0)
    star = plain_groups(4, [(0, 1), (0, 2), (0, 3)])
    assert fractal_dimensions(star)[0] == 0.0
    assert fractal_dimensions(plain_groups(1, []))[0] == 0.0


def test_fractal_dimension_ignores_direction_and_what_cannot_be_reached() -> None:
    edges = [(0, 1), (1, 2), (2, 3)]
    forward = fractal_dimensions(plain_groups(6, [*edges, (4, 5)]))
    backward = fractal_dimensions(plain_groups(6, [(v, u) for u, v in edges] + [(4, 5)]))
    assert forward == pytest.approx(backward)
    assert forward[0] == pytest.approx(1.0)


def random_edges(rng: np.random.Generator, n: int) -> Any:
    pairs = [(i, j) for i, j in itertools.combinations(range(n), 2) if rng.random() < 2.5 / n]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)


def union_find(n: int, pairs: list[tuple[int, int]]) -> list[int]:
    parent = list(range(n))

    def root(v: int) -> int:
        while parent[v] != v:
            v = parent[v]
        return v

    for u, v in pairs:
        parent[root(u)] = root(v)
    return [root(v) for v in range(n)]


@pytest.mark.parametrize("seed", range(100))
def test_clusters_are_the_components_of_the_dominant_edges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    edges = random_edges(rng, n)
    score = torch.from_numpy(rng.integers(0, 4, len(edges)) / 4.0)  # ties are common
    best: dict[int, int] = {}
    for e, (u, v) in enumerate(edges.tolist()):
        for node in (u, v):
            if node not in best or score[e] > score[best[node]]:
                best[node] = e
    expected = union_find(n, [tuple(edges[e].tolist()) for e in best.values()])
    level = parse_level(n, edges, score)
    found = level.cluster_of_node.tolist()
    for a, b in itertools.combinations(range(n), 2):
        assert (found[a] == found[b]) == (expected[a] == expected[b])
    sizes = np.bincount(found)
    assert all(sizes[found[v]] >= 2 for v in best)
    assert level.n_clusters == len(sizes)


def test_parsing_to_the_fixpoint_leaves_one_cluster_per_connected_part() -> None:
    rng = np.random.default_rng(0)
    edges, n = torch.tensor([(i, i + 1) for i in range(199)]), 200
    while len(edges):
        level = parse_level(n, edges, torch.from_numpy(rng.random(len(edges))))
        assert level.n_clusters <= n // 2
        edges, n = level.edges, level.n_clusters
    assert n == 1


def test_components_of_long_chains_need_few_rounds() -> None:
    neighbour = torch.arange(1, 100_001).clamp(max=99_999)
    assert components(neighbour).max() == 0


def test_a_lonely_node_is_its_own_neighbour() -> None:
    found = dominant_neighbour(3, torch.tensor([[0, 2]]), torch.tensor([0.5]))
    assert found.tolist() == [2, 1, 0]


@pytest.mark.parametrize(("width", "parameters"), [(12, 137_229), (17, 138_514)])
def test_the_published_network_has_the_published_size(width: int, parameters: int) -> None:
    net = StructureNet(width, 128, 0.2, directed=False)
    head = DeviceHead(width, 128, 2, 0.2)
    assert sum(p.numel() for m in (net, head.output) for p in m.parameters()) == parameters


def test_one_level_at_random_weights_makes_about_a_quarter_of_the_groups() -> None:
    problem = load("zoo:resnet-50", cluster="flex170")
    groups = group_graph(problem, "none")
    x = torch.from_numpy(node_features(problem, groups, Vocabulary.of([problem.graph]), Blocks(work=False)))
    counts = []
    for seed in range(5):
        torch.manual_seed(seed)
        net = StructureNet(x.shape[1], 128, 0.2, directed=False).eval()
        counts.append(net(x, torch.from_numpy(groups.edges), 1)[-1].n_clusters / groups.n_groups)
    assert 0.05 < np.mean(counts) < 0.5
    assert net(x, torch.from_numpy(groups.edges), None)[-1].n_clusters == 1


def test_gradients_reach_the_edge_scores_through_the_product_only() -> None:
    torch.manual_seed(0)
    net = StructureNet(3, 8, 0.0, directed=False)
    edges = undirected(torch.tensor([(0, 1), (1, 2), (2, 3), (3, 0)]))
    parsed = net(torch.randn(4, 3), edges, 1)[-1]
    parsed.embedding.sum().backward()
    score_weight = net.edge_score[0].weight
    assert score_weight.grad.abs().sum() > 0
    net.zero_grad()
    fine = net(torch.randn(4, 3), edges, 0)[-1]
    pooled = net.after_sum(net.before_sum(net.for_pooling(fine.embedding, edges)))  # as _coarser, without the product
    pooled.sum().backward()
    assert score_weight.grad is None or score_weight.grad.abs().sum() == 0


def test_the_released_loss_is_one_return_times_all_log_probabilities() -> None:
    reward, log_chance = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([-0.1, -0.2, -0.4])
    settings = settings_for("released")
    total = 0.95**2 * 1.0 + 0.95 * 2.0 + 4.0
    found = policy_loss("released", reward, log_chance, torch.zeros(3), settings)
    assert float(found) == pytest.approx(total * 0.7)
    each = policy_loss("eq14", reward, log_chance, torch.zeros(3), settings)
    assert float(each) == pytest.approx(0.95 * 0.1 + 0.95**2 * 0.4 + 0.95**3 * 1.6)


def test_our_loss_makes_the_faster_placement_more_likely() -> None:
    log_chance = torch.tensor([-1.0, -1.0], requires_grad=True)
    policy_loss("ours", torch.tensor([0.5, -0.5]), log_chance, torch.zeros(2), settings_for("ours")).backward()
    assert log_chance.grad[0] < 0 < log_chance.grad[1]


def test_rnn_makes_the_slower_placement_less_likely() -> None:
    log_chance = torch.tensor([-1.0, -1.0], requires_grad=True)
    reinforce_loss(np.array([1.0, 4.0]), 1.5, log_chance).backward()
    assert log_chance.grad[0] < 0 < log_chance.grad[1]


def two_chains(length: int) -> Problem:
    """Two independent chains, each fast on a device of its own: the optimum is one chain per device."""
    names = [f"{c}{i}" for c in "ab" for i in range(length)]
    tensors = [(c * length + i, 8.0, [c * length + i + 1]) for c in range(2) for i in range(length - 1)]
    graph, order = build_graph("two chains", names, tensors)
    times = np.where(np.array([[n[0] == "a", n[0] == "b"] for n in names]), 1.0, 3.0)[order]
    kinds = (DeviceKind("left"), DeviceKind("right"))
    link = Link("link", 8.0)
    devices = (Device("left0", "left"), Device("right0", "right"))
    cluster = Cluster(
        "pair", kinds, devices, {}, {}, {(a.name, b.name): link for a in devices for b in devices if a != b}
    )
    return Problem(graph, cluster, times, graph.weight_bytes, np.ones((graph.n_tensors, 1)))


@pytest.mark.parametrize("options", [{}, {"starts": False}, {"decide": "all", "starts": False, "levels": 2}])
def test_the_known_optimum_of_two_chains_is_found(options: dict[str, Any]) -> None:
    placement = get_placer("hsdag", **options).place(two_chains(12), Budget(60, evaluations=2000), 0)
    assert placement.value == 12.0
    assert placement.evaluations <= 2000


@pytest.mark.parametrize("seed", range(20))
def test_small_problems_are_solved_as_enumeration_solves_them(seed: int) -> None:
    problem = random_problem(seed, 6, 2, 2, "sequential", classes=seed % 2 == 0)
    rows = np.array(list(itertools.product(range(2), repeat=6)), dtype=np.int32)
    result = evaluate_many(problem, rows)
    best = np.where(result.is_valid, result.value, np.inf).min()
    found = get_placer("hsdag", starts=False).place(problem, Budget(20, evaluations=150), 0)
    assert found.value == pytest.approx(best)


def test_ways_left_agree_with_a_plain_recursion() -> None:
    for seed in range(20):
        problem = random_problem(seed, 9, 3, 2, "overlap", direct=seed % 2 == 0)
        rows = np.random.default_rng(seed).integers(0, 3, (4, 9)).astype(np.int32)
        found = ways_left(problem, rows)
        for row, ways in zip(rows, found, strict=True):
            assert ways == pytest.approx(plain_ways(problem, row))


def plain_ways(problem: Problem, device: Any) -> list[float]:
    g, links = problem.graph, problem.links
    ways = [0.0] * problem.n_ops

    def copy(t: int, s: int, d: int) -> float:
        if s == d:
            return 0.0
        if links.direct[s, d] >= 0:
            return float(problem.tensor_copy_s[t, links.direct[s, d]])
        return sum(float(problem.tensor_copy_s[t, leg]) for leg in (links.to_host[s], links.from_host[d]) if leg >= 0)

    for v in reversed(range(problem.n_ops)):
        after = [0.0]
        for t in range(g.tensor_ptr[v], g.tensor_ptr[v + 1]):
            for u in g.consumer_op[g.consumer_ptr[t] : g.consumer_ptr[t + 1]].tolist():
                after.append(copy(t, device[v], device[u]) + ways[u])
        ways[v] = float(problem.op_device_time_s[v, device[v]]) + max(after)
    return ways


def test_over_full_devices_are_relieved() -> None:
    groups = plain_groups(6, [])
    fixed = repaired(groups, np.zeros((3, 6), dtype=np.int32), np.array([4.0, 10.0]))
    assert (np.bincount(fixed[0], minlength=2) == [4, 2]).all()
    fits = np.array([[0, 0, 1, 1, 1, 0]], dtype=np.int32)
    assert repaired(groups, fits, np.array([4.0, 10.0])).tolist() == fits.tolist()


def test_a_group_of_the_rule_that_no_device_takes_is_split_again() -> None:
    problem = load("zoo:chain?ops=4", cluster="p100x2")
    assert group_graph(problem, "paper").n_groups == 1
    permitted = np.array([[True, False, False], [True, False, False], [False, True, False], [False, True, False]])
    split = group_graph(problem.with_options(permitted=permitted), "paper")
    assert split.n_groups == 4
    assert split.allowed.any(axis=1).all()


def test_more_evaluations_help_and_all_are_counted() -> None:
    problem = load("zoo:inception-v3", cluster="flex170")
    single = best_single_device(problem)
    assert single is not None
    few = get_placer("hsdag").place(problem, Budget(60, evaluations=10), 1)
    more = get_placer("hsdag").place(problem, Budget(60, evaluations=200), 1)
    assert more.value < few.value <= single[1]
    assert (few.evaluations, more.evaluations) == (10, 200)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(InputError, match="unknown variant 'papr' of hsdag; did you mean 'paper'"):
        get_placer("hsdag", variant="papr")
    with pytest.raises(InputError, match="unknown feature block"):
        get_placer("hsdag", without="shapes")
    with pytest.raises(InputError, match="does not take these options"):
        get_placer("hsdag", colour="red")


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_published_variants_run_and_count_their_evaluations(variant: str) -> None:
    problem = load("zoo:fork-join", cluster="laptop-npu")
    placement = get_placer("hsdag", variant=variant).place(problem, Budget(30, evaluations=60), 0)
    assert placement.is_valid
    assert placement.evaluations == 60


def test_vocabularies_are_alphabetical_and_know_strangers() -> None:
    problem = load("zoo:resnet-50", cluster="flex170")
    vocabulary = Vocabulary.of([problem.graph])
    assert list(vocabulary.op_types) == sorted(set(problem.graph.op_types))
    assert vocabulary.columns(["no such type"]).tolist() == [len(vocabulary.op_types)]


@pytest.mark.parametrize(("model", "cluster"), [("fork-join", "laptop-npu"), ("inception-v3", "flex170")])
def test_a_learner_resumes_exactly(model: str, cluster: str) -> None:
    problem = load(f"zoo:{model}", cluster=cluster)
    settings, vocabulary = settings_for("ours"), Vocabulary.of([problem.graph])

    def fresh() -> tuple[Any, Any, Any]:
        policy, optimiser = new_policy(settings, vocabulary, problem.n_devices, 3)
        rewards = SimulatedRewards(problem)
        return new_learner(problem, rewards, settings, vocabulary, policy, optimiser, 3), policy, optimiser

    straight, policy, _ = fresh()
    for _ in range(12):
        last = straight.step(400)
    first, first_policy, first_optimiser = fresh()
    for _ in range(5):
        first.step(400)
    second, second_policy, second_optimiser = fresh()
    second.restore(first.state())
    second_policy.load_state_dict(first_policy.state_dict())
    second_optimiser.load_state_dict(first_optimiser.state_dict())
    for _ in range(7):
        report = second.step(400)
    assert report == last
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), second_policy.parameters(), strict=True))
