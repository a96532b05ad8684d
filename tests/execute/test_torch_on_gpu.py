"""The torch executor on a real GPU; skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from placewright.execute.torch import TorchRun  # noqa: E402
from placewright.execute.torch_program import ops_of  # noqa: E402
from placewright.execute.torch_room import Room  # noqa: E402
from placewright.execute.torch_spills import TensorLives  # noqa: E402
from placewright.execute.torch_weights import WeightStore  # noqa: E402
from placewright.zoo import zoo_module  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

RESULT_BYTES = 4 * 2**20
STEPS = 24


class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A layer applied again and again, each time with a result of 4 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.step = torch.nn.Linear(64, 64)
        self.head = torch.nn.Linear(64, RESULT_BYTES // 4 // 16)

    def forward(self, x: Any) -> list[Any]:
        results = []
        for _ in range(STEPS):
            x = torch.tanh(self.step(x))
            results.append(self.head(x))
        return results


@pytest.fixture(scope="module")
def recurrent() -> Any:
    torch.manual_seed(0)
    sample = torch.randn(16, 64)
    module = Recurrent().eval()
    with torch.inference_mode():
        expected = module(sample)
    return torch.export.export(module, (sample,)), sample, expected


def placed(program: Any, pattern: str) -> dict[str, str]:
    return {n.name: pattern[i % len(pattern)] for i, n in enumerate(ops_of(program))}


@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize("use_graphs", [False, True])
@pytest.mark.parametrize("pattern", ["g", "ggc", "ggggcccc"])
def test_results_are_those_of_the_cpu(recurrent: Any, pattern: str, use_graphs: bool, share: float) -> None:
    program, sample, expected = recurrent
    rooms = {"g": Room(tensor_bytes=share * STEPS * RESULT_BYTES)} if share < 1 else {}
    devices = {"c": "cpu", "g": "cuda:0"}
    try:
        run = TorchRun(program, placed(program, pattern), devices, use_graphs=use_graphs, rooms=rooms)
    except ValueError:
        assert pattern != "g"
        pytest.skip("what other devices read cannot leave")
    for _ in range(3):
        for ours, theirs in zip(run(sample), expected, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)
    assert run.graph_failure == ""
    run.close()


@pytest.mark.parametrize("use_graphs", [False, True])
@pytest.mark.parametrize("name", ["wavenet-2x18?training=0", "rnnlm-2?training=0&hidden=256&vocabulary=4000&steps=20"])
def test_tensors_do_not_take_more_than_they_may(name: str, use_graphs: bool) -> None:
    module, inputs = zoo_module(name)
    program = torch.export.export(module.eval(), tuple(inputs))
    ops, store = ops_of(program), WeightStore(program)
    results = [n.name for n in next(n for n in program.graph.nodes if n.op == "output").all_input_nodes]
    most = TensorLives([ops], store.by_placeholder, results).most_bytes
    placement, devices = {n.name: "g" for n in ops}, {"c": "cpu", "g": "cuda:0"}
    expected, peaks = None, []
    for rooms in ({}, {"g": Room(tensor_bytes=0.65 * most)}):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run = TorchRun(program, placement, devices, store=store, use_graphs=use_graphs, rooms=rooms)
        for _ in range(3):
            found = [o.cpu() for o in run(*inputs)]
            expected = expected or found
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
        assert run.graph_failure == ""
        assert run.uses_graphs == use_graphs
        peaks.append(torch.cuda.max_memory_allocated() - before)
        run.close()
        del run
        store.forget("cuda")
    assert peaks[1] < peaks[0] - 0.3 * most
