"""GDP's acceptance checks: embedding, segments, gate, blocks, losses, decoding, and problems whose optimum is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.api import load  # noqa: E402
from placewright.budget import Budget  # noqa: E402
from placewright.cluster import Cluster, Device, DeviceKind, Link  # noqa: E402
from placewright.costs.roofline import roofline_profile  # noqa: E402
from placewright.errors import InputError  # noqa: E402
from placewright.evaluate import evaluate  # noqa: E402
from placewright.graph import build_graph  # noqa: E402
from placewright.placers import get_placer  # noqa: E402
from placewright.placers.learned.features import Vocabulary  # noqa: E402
from placewright.placers.learned.gdp_blocks import make_blocks, mutated, side_by_side  # noqa: E402
from placewright.placers.learned.gdp_decoding import STAGES, decode  # noqa: E402
from placewright.placers.learned.gdp_learner import GdpLearner, Teacher, new_policy, ppo_loss  # noqa: E402
from placewright.placers.learned.gdp_network import GraphSage, SegmentLayer, join  # noqa: E402
from placewright.placers.learned.gdp_pupil import Pupil, Rollout, _renamed  # noqa: E402
from placewright.placers.learned.gdp_school import GdpSchool  # noqa: E402
from placewright.placers.learned.gdp_settings import Settings, settings_for  # noqa: E402
from placewright.placers.learned.groups import group_graph  # noqa: E402
from placewright.placers.learned.rewards import SimulatedRewards  # noqa: E402
from placewright.placers.learned.training import one_thread  # noqa: E402
from placewright.problems import Problem, build_problem  # noqa: E402
from placewright.testing import random_problem  # noqa: E402


def pupil_of(problem: Problem, settings: Settings, vocabulary: Vocabulary | None = None) -> Pupil:
    vocabulary = vocabulary or Vocabulary.of([problem.graph])
    return Pupil(problem, SimulatedRewards(problem, by_rank=settings.by_rank), settings, vocabulary)


def policy_and_pupil(problem: Problem, seed: int = 0, **options: object) -> tuple[Teacher, Pupil]:
    settings = settings_for("ours", **options)
    vocabulary = Vocabulary.of([problem.graph])
    teacher = Teacher(new_policy(settings, vocabulary, problem.n_devices, seed), settings, seed)
    return teacher, pupil_of(problem, settings, vocabulary)


def test_relabelling_nodes_permutes_their_embeddings() -> None:
    torch.manual_seed(0)
    sage = GraphSage(5, 16, 3)
    x, edges = torch.randn(12, 5), torch.randint(0, 12, (2, 30))
    order = torch.randperm(12)
    position = torch.argsort(order)
    expected = sage(x, edges)[order]
    assert torch.allclose(sage(x[order], position[edges]), expected, atol=1e-6)


def test_neighbours_are_pooled_by_the_greatest_sigmoid_and_lonely_nodes_get_zeros() -> None:
    torch.manual_seed(1)
    sage = GraphSage(3, 8, 1)
    x, edges = torch.randn(4, 3), torch.tensor([[0, 1], [2, 2]])
    h = torch.relu(sage.first(x))
    sent = torch.sigmoid(sage.message[0](h))
    pooled = torch.stack([torch.zeros(8), torch.zeros(8), torch.maximum(sent[0], sent[1]), torch.zeros(8)])
    assert torch.allclose(sage(x, edges), torch.relu(sage.join[0](torch.cat([h, pooled], dim=1))), atol=1e-6)


def segments(layer: SegmentLayer, x: torch.Tensor, size: int) -> torch.Tensor:
    n = len(x)
    padded = torch.cat([x, torch.zeros(-n % size, x.shape[1])])
    starts = torch.arange(len(padded) // size) == 0
    return layer(padded, torch.arange(len(padded)) < n, starts, None, None)[:n]


def test_one_segment_is_full_attention_and_the_first_of_many_sees_itself_only() -> None:
    torch.manual_seed(2)
    layer, x = SegmentLayer(16, 4, 32), torch.randn(21, 16)
    full = segments(layer, x, 32)
    query, (key, value) = layer.query(x), layer.key_value(x).chunk(2, dim=1)
    heads = [t.view(21, 4, 4).transpose(0, 1) for t in (query, key, value)]
    mixed = torch.softmax(heads[0] @ heads[1].transpose(1, 2) / 2.0, dim=2) @ heads[2]
    y = layer.norm_attention(x + layer.out(mixed.transpose(0, 1).reshape(21, 16)))
    assert torch.allclose(full, layer.norm_inner(y + layer.down(torch.relu(layer.up(y)))), atol=1e-5)
    parts = segments(layer, x, 8)
    assert torch.allclose(parts[:8], segments(layer, x[:8], 8), atol=1e-5)
    assert torch.allclose(parts[8:16], segments(layer, x[:16], 16)[8:], atol=1e-5)
    assert not torch.allclose(parts[16:], segments(layer, x, 32)[16:], atol=1e-3)


def test_gradients_do_not_cross_the_boundary_of_a_segment() -> None:
    torch.manual_seed(3)
    layer, x = SegmentLayer(8, 2, 16), torch.randn(8, 8, requires_grad=True)
    (segments(layer, x, 4)[4:] * torch.randn(4, 8)).sum().backward()
    assert x.grad is not None
    assert (x.grad[:4] == 0).all()
    assert (x.grad[4:] != 0).any()


@pytest.mark.parametrize("gate", ["graph", "node"])
def test_an_untrained_gate_changes_nothing(gate: str) -> None:
    problem = load("zoo:fork-join", cluster="p100x2")
    plain, pupil = policy_and_pupil(problem, gate="none")
    gated, _ = policy_and_pupil(problem, gate=gate)
    gated.policy.load_state_dict(plain.policy.state_dict(), strict=False)
    joined = join([pupil.graphs[0]], 128)
    assert torch.equal(plain.policy(joined), gated.policy(joined))
    with torch.no_grad():
        gated.policy.gate.factor.bias += torch.linspace(-1, 1, 64)
    assert not torch.allclose(plain.policy(joined), gated.policy(joined))


@pytest.mark.parametrize("rounds", [1, 3])
def test_graphs_side_by_side_get_what_each_gets_alone(rounds: int) -> None:
    problems = [load(m, cluster=c) for m, c in (("zoo:fork-join", "p100x2"), ("zoo:layered?ops=70", "p100x4"))]
    settings = settings_for("ours", segment=32, gate="graph", rounds=rounds)
    vocabulary = Vocabulary.of(p.graph for p in problems)
    policy = new_policy(settings, vocabulary, 3, 0)
    graphs = [pupil_of(p, settings, vocabulary).graphs[0] for p in problems]
    together = policy(join(graphs, 32))
    first = graphs[0].n_blocks
    assert torch.allclose(together[:first, :3], policy(join(graphs[:1], 32)), atol=1e-5)
    assert torch.allclose(together[first:], policy(join(graphs[1:], 32)), atol=1e-5)
    assert torch.allclose(together.exp().sum(dim=1), torch.ones(len(together)), atol=1e-5)


def test_a_large_graph_needs_no_square_of_its_size() -> None:
    settings = settings_for("ours", width=32, inner_width=64, scales=(0,))
    problem = load("zoo:chain?ops=2", cluster="p100x8")
    graph = pupil_of(problem, settings).graphs[0]
    n = 40_000  # attention of all to all would need 1.6e9 scores per head
    many = graph._replace(
        node=graph.node[:1].repeat(n, 1), edges=torch.randint(n, (2, 3 * n)), block_of_node=torch.arange(n),
        weight=torch.ones(n), block=graph.block[:1].repeat(n, 1), pair=graph.pair[:1].repeat(n, 1, 1),
        allowed=graph.allowed[:1].repeat(n, 1), work=torch.full((n,), 1 / n),
    )  # fmt: skip
    with torch.no_grad():
        assert new_policy(settings, Vocabulary.of([problem.graph]), 9, 0)(join([many], 128)).shape == (n, 9)


@pytest.mark.parametrize("case", range(30))
def test_blocks_hold_what_some_device_takes_and_mutants_stay_allowed(case: int) -> None:
    tries = (
        random_problem(100 * case + k, 20, 3, 2, "overlap", unsupported=True, classes=k % 2 == 0) for k in range(99)
    )
    problem = next(p for p in tries if group_graph(p).allowed.any(axis=1).all())
    groups = group_graph(problem)
    scales = tuple(make_blocks(problem, groups, per_device) for per_device in (0, 1, 4))
    for blocks in scales:
        assert sorted(blocks.member.tolist()) == list(range(groups.n_groups))
        for b in range(blocks.n_blocks):
            members = blocks.member[blocks.member_ptr[b] : blocks.member_ptr[b + 1]]
            assert (blocks.block_of_group[members] == b).all()
            assert groups.allowed[members].all(axis=0).any()
    parents = groups.allowed.argmax(axis=1)[None].astype(np.int32)
    rows = mutated(parents, groups, side_by_side(scales), 50, case)
    assert groups.allowed[np.arange(groups.n_groups)[None], rows].all()
    assert np.array_equal(rows, mutated(parents, groups, side_by_side(scales), 50, case))


def test_steps_that_share_weights_form_blocks() -> None:
    problem = load("zoo:rnnlm-2?steps=8", cluster="p100x2")
    groups = group_graph(problem)
    blocks = make_blocks(problem, groups, 4)
    paths = np.array(problem.graph.module_paths)[groups.first_op]
    heavy = [i for i, path in enumerate(paths) if path.endswith("matmul") and path.startswith("layers.")]
    layers_in_block: dict[int, set[str]] = {}
    for i in heavy:
        layers_in_block.setdefault(int(blocks.block_of_group[i]), set()).add(paths[i].split(".")[1])
    assert all(len(layers) == 1 for layers in layers_in_block.values())
    assert len(layers_in_block) <= len(heavy) / 2


def rollout(action: list[list[int]], old: torch.Tensor, advantage: list[float]) -> Rollout:
    actions = torch.tensor(action)
    chosen = torch.gather(old[None].expand(len(action), -1, -1), 2, actions[:, :, None])[:, :, 0]
    return Rollout(0, actions, chosen.detach(), torch.tensor(advantage), None)


def test_the_loss_is_that_of_ppo_for_every_block_on_its_own() -> None:
    settings = settings_for("ours", entropy=0.0)
    old = torch.log_softmax(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), dim=1)
    given = rollout([[0, 1], [1, 1]], old, [1.0, -2.0])
    same = ppo_loss(old, given, torch.tensor([0.5, 0.5]), settings, 0.0)
    assert same.item() == pytest.approx(0.5)  # ratios are 1: minus the mean advantage
    logits = torch.tensor([[0.9, 0.0], [1.0, 0.0]], requires_grad=True)
    now = torch.log_softmax(logits, dim=1)
    ratio = (now - old).exp()
    expected = -np.mean([1.2, 1.0, -2 * max(ratio[0, 1].item(), 0.8), -2.0])
    loss = ppo_loss(now, given, torch.tensor([0.5, 0.5]), settings, 0.0)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0].abs().sum() == 0  # both samples are clipped there
    assert logits.grad[1].abs().sum() > 0


def test_devices_that_can_be_exchanged_are_named_as_the_policy_would() -> None:
    shares = np.eye(4, dtype=np.float32)[[2, 2, 0, 1, 3]]
    log_chance = np.log(np.full((5, 4), 0.05, dtype=np.float32))
    for block, device in enumerate((0, 0, 1, 2, 3)):
        log_chance[block, device] = math.log(0.85)
    assert _renamed(shares, log_chance, [[0, 1, 2], [3]]).tolist() == [1, 2, 0, 3]
    assert _renamed(shares, log_chance, []).tolist() == [0, 1, 2, 3]


def free_pair(n_devices: int = 2, bandwidth: float = 1e30) -> Cluster:
    link = Link("free", bandwidth)
    names = [f"d{i}" for i in range(n_devices)]
    kind = DeviceKind("gpu", flops_per_s=1.0, memory_bandwidth_bytes_per_s=1e30)
    pairs = {(a, b): link for a in names for b in names if a != b}
    ends = dict.fromkeys(names, link)
    return Cluster("pair", (kind,), tuple(Device(n, "gpu") for n in names), ends, ends, pairs)


def flat_problem(n: int, edges: list[tuple[int, int]], cluster: Cluster, types: list[str] | None = None) -> Problem:
    """Ops of one second each, those of type Z of none; an edge is a tensor of one byte."""
    tensors = [(u, 1.0, [v]) for u, v in edges] + [(v, 1.0, []) for v in range(n)]
    flops = [0.0 if t == "Z" else 1.0 for t in types or ["X"] * n]
    graph, _ = build_graph("flat", [f"op{v}" for v in range(n)], tensors, op_types=types, flops=flops)
    return build_problem(graph, cluster, roofline_profile(graph, cluster)).for_objective("latency", "overlap")


def fork_join_20() -> Problem:
    edges = [(0, v) for v in range(1, 19)] + [(v, 19) for v in range(1, 19)]
    return flat_problem(20, edges, free_pair())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_fork_join_without_communication_is_balanced_within_2000_samples(seed: int) -> None:
    problem = fork_join_20()
    teacher, pupil = policy_and_pupil(problem, seed, mutants=0, imitation=0.0, scales=(0,))
    learner = GdpLearner(pupil, teacher)
    best = math.inf
    with one_thread():
        report = learner.step(2000)
        while report.evaluations < 1900 and best > 11.0 + 1e-6:
            report = learner.step(2000 - report.evaluations)
            best = report.best
    assert best == pytest.approx(11.0)


def test_a_chain_of_large_tensors_collapses_to_one_device() -> None:
    edges = [(v, v + 1) for v in range(7)]
    problem = flat_problem(8, edges, free_pair(bandwidth=0.2))
    teacher, pupil = policy_and_pupil(problem, 0, mutants=0, imitation=0.0, scales=(0,), learning_rate=5e-3)
    learner = GdpLearner(pupil, teacher)
    with one_thread():
        report = learner.step(1000)
        while report.evaluations < 1000:
            report = learner.step(1000 - report.evaluations)
        (asked,) = teacher.ask([(pupil.graphs[0], 0)], 1)
    assert len(set(asked.log_chance.argmax(dim=1).tolist())) == 1


def opposite_problems() -> list[Problem]:
    """Ops of types X and Y: in one graph the second reads the first, in the other they are free to be spread."""
    cluster = free_pair(bandwidth=0.2)
    return [flat_problem(2, [(0, 1)], cluster, ["X", "Y"]), flat_problem(3, [], cluster, ["X", "Y", "Z"])]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("gate", ["graph", "none"])
def test_superposition_reaches_opposite_optima_and_its_absence_does_not(gate: str, seed: int) -> None:
    # Without graph embedding and attention only the gate can tell the graphs apart: X and Y should share a device in
    # one and not in the other.
    settings = settings_for(
        "ours", gate=gate, head="fixed", work_features=False, scales=(0,), sage_layers=0, attention_layers=0,
        mutants=0, imitation=0.0, learning_rate=1e-2, last_learning_rate=5e-3, width=16, inner_width=16,
    )  # fmt: skip
    school = GdpSchool(opposite_problems(), settings, 1200, seed)
    with one_thread():
        while school.step() is not None:
            pass
    reached = []
    for pupil in school.learners:
        (asked,) = school.teacher.ask([(pupil.graphs[0], 0)], 1)
        device = asked.log_chance.argmax(dim=1).numpy()
        reached.append(device[0] == device[1])
    assert (reached == [True, False]) == (gate == "graph")


@pytest.mark.parametrize("case", range(4))
def test_every_stage_of_decoding_is_at_least_as_good_as_the_one_before(case: int) -> None:
    problem = random_problem(case, 30, 3, 2, "overlap", limits=case % 2 == 0)
    teacher, pupil = policy_and_pupil(problem)
    result = decode(pupil, teacher, "search", Budget(60), 4, 32)
    values = [result.stages[stage] for stage in STAGES]
    assert values == sorted(values, reverse=True)
    if result.device_of_op is not None:
        assert evaluate(problem, result.device_of_op, result.priority).value == pytest.approx(values[-1])


def test_policy_alone_is_the_likeliest_device_of_every_block() -> None:
    problem = load("zoo:fork-join", cluster="laptop-npu")
    teacher, pupil = policy_and_pupil(problem)
    (asked,) = teacher.ask([(pupil.graphs[0], 0)], 1)
    row = asked.log_chance.argmax(dim=1).numpy()[pupil.blocks[0].block_of_group][pupil.groups.group_of_op]
    result = decode(pupil, teacher, "policy", Budget(60), 1, 0)
    assert result.device_of_op is not None
    assert result.device_of_op.tolist() == row.tolist()
    assert list(result.stages) == ["policy"]


def test_the_published_variant_runs_and_punishes_what_is_not_valid() -> None:
    problem = random_problem(3, 12, 3, 1, "overlap", limits=True)
    assert get_placer("gdp", variant="paper").place(problem, Budget(60, evaluations=60), 0).is_valid
    settings = replace(settings_for("paper"), width=16, inner_width=16)
    pupil = pupil_of(problem, settings)
    pupil.start(10)
    advantage = pupil._advantage(np.array([1.0, 1.0]), np.array([True, False]))
    assert advantage[0] > 0 > advantage[1]


def test_unknown_options_are_named() -> None:
    with pytest.raises(InputError, match="no option 'depth'"):
        get_placer("gdp", depth=3)
    with pytest.raises(InputError, match="gate is 'all', expected graph or node or none"):
        get_placer("gdp", gate="all")
    with pytest.raises(InputError, match="decode is 'best'"):
        get_placer("gdp", decode="best")


def test_hdp_learns_to_use_both_devices() -> None:
    placement = get_placer("hdp").place(fork_join_20(), Budget(60, evaluations=400), 0)
    assert placement.value < 16.0


def test_people_give_each_recurrent_layer_a_device() -> None:
    problem = load("zoo:gnmt-2?steps=4", cluster="p100x2")
    found = get_placer("human").search(problem, Budget(5), 0).device_of_op
    assert found is not None
    of = dict(zip(problem.graph.op_names, found.tolist(), strict=True))
    assert of["encoder.0.rightward.step_1.matmul"] == of["decoder.0.step_3.matmul"] == of["decoder.embedding"] == 0
    assert of["encoder.1.step_0.matmul"] == of["decoder.1.step_2.matmul/grad_input0"] == 1
    assert of["decoder.attention.step_0.softmax"] == of["decoder.projection.step_0.matmul"] == 1


@pytest.mark.parametrize(
    "model", ["resnet-50", "transformer-xl-4?training=0", "inception-v3", "wavenet-2x18?training=0"]
)
def test_people_cut_other_networks_into_stages_in_a_row(model: str) -> None:
    problem = load(f"zoo:{model}", cluster="p100x4")
    found = get_placer("human").search(problem, Budget(5), 0).device_of_op
    assert found is not None
    assert set(found.tolist()) == {0, 1, 2, 3}
    layers = problem.graph.weight_bytes > 0
    counts = np.bincount(found[layers], minlength=4)
    assert counts.max() <= 2.5 * max(counts.min(), 1)
