"""GDP on a GPU: the specification's scale check, and that training there learns."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from placewright.api import load  # noqa: E402
from placewright.placers.learned.features import Vocabulary  # noqa: E402
from placewright.placers.learned.gdp_learner import new_policy  # noqa: E402
from placewright.placers.learned.gdp_network import GraphTensors, join  # noqa: E402
from placewright.placers.learned.gdp_pupil import Pupil  # noqa: E402
from placewright.placers.learned.gdp_school import GdpSchool  # noqa: E402
from placewright.placers.learned.gdp_settings import settings_for  # noqa: E402
from placewright.placers.learned.rewards import SimulatedRewards  # noqa: E402


def test_80_000_nodes_fit_in_8_gb() -> None:
    settings = settings_for("ours", width=128, inner_width=512, segment=256, scales=(0,))
    problem = load("zoo:chain?ops=2", cluster="p100x8")
    vocabulary = Vocabulary.of([problem.graph])
    graph = Pupil(problem, SimulatedRewards(problem), settings, vocabulary).graphs[0]
    n = 80_000
    many = graph._replace(
        node=graph.node[:1].repeat(n, 1), edges=torch.randint(n, (2, 4 * n)), block_of_node=torch.arange(n),
        weight=torch.ones(n), block=graph.block[:1].repeat(n, 1), pair=graph.pair[:1].repeat(n, 1, 1),
        allowed=graph.allowed[:1].repeat(n, 1), work=torch.full((n,), 1 / n),
    )  # fmt: skip
    policy = new_policy(settings, vocabulary, problem.n_devices, 0).cuda()
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        chances = policy(join([GraphTensors(*(t.cuda() for t in many))], 256)).exp()
    assert chances.shape == (n, problem.n_devices)
    assert torch.allclose(chances.sum(dim=1), torch.ones(n, device="cuda"), atol=1e-4)
    assert torch.cuda.max_memory_allocated() < 8e9


def test_training_on_a_gpu_starts_like_training_on_a_cpu_and_learns() -> None:
    problems = [load(m, cluster="p100x4") for m in ("zoo:fork-join?blocks=3", "zoo:layered?ops=40")]
    settings = settings_for("ours", width=16, inner_width=32, samples=8, mutants=4)
    schools = [GdpSchool(problems, settings, 200, 5, where) for where in ("cpu", "cuda")]
    asked = [s.teacher.ask([(p.graphs[0], 0) for p in s.learners], 4) for s in schools]
    for on_cpu, on_gpu in zip(*asked, strict=True):
        assert torch.allclose(on_cpu.log_chance, on_gpu.log_chance, atol=1e-4)
    before = {name: w.clone() for name, w in schools[1].as_policy().weights.items()}
    while schools[1].step() is not None:
        pass
    after = schools[1].as_policy().weights
    assert all(torch.isfinite(w).all() for w in after.values())
    assert any(not torch.equal(before[name], w) for name, w in after.items())
