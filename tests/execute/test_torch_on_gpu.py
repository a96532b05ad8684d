"""The torch executor on a real GPU; skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from placewright.execute.torch import TorchRun  # noqa: E402
from placewright.execute.torch_program import ops_of  # noqa: E402

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


@pytest.mark.parametrize("results_to", ["", "c"])
@pytest.mark.parametrize("use_graphs", [False, True])
@pytest.mark.parametrize("pattern", ["g", "ggc", "ggggcccc"])
def test_results_are_those_of_the_cpu(recurrent: Any, pattern: str, use_graphs: bool, results_to: str) -> None:
    program, sample, expected = recurrent
    devices = {"c": "cpu", "g": "cuda:0"}
    run = TorchRun(program, placed(program, pattern), devices, use_graphs=use_graphs, results_to=results_to)
    for _ in range(3):
        found = run(sample)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)
        if results_to:
            assert {o.device.type for o in found} == {"cpu"}
    run.close()


def test_results_that_leave_do_not_fill_the_gpu(recurrent: Any) -> None:
    program, sample, _ = recurrent
    peaks = {}
    for results_to in ("", "c"):
        run = TorchRun(program, placed(program, "g"), {"c": "cpu", "g": "cuda:0"}, results_to=results_to)
        run(sample)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(sample)
        peaks[results_to] = torch.cuda.max_memory_allocated() - before
        run.close()
    assert peaks[""] >= STEPS * RESULT_BYTES
    assert peaks["c"] <= STEPS / 2 * RESULT_BYTES
