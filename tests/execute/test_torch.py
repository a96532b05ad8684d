"""The torch executor: outputs unchanged wherever the ops are, tensors sent once, errors that name the op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from placewright.errors import InputError  # noqa: E402
from placewright.execute.dataflow import ExecutionError  # noqa: E402
from placewright.execute.torch import TorchRun  # noqa: E402

CORES = {"core0": "cpu", "core1": "cpu"}


class Branches(torch.nn.Module):
    """Convolutions, a batch norm, ops with several outputs, an in-place op, a constant made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.left = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.right = torch.nn.Conv2d(8, 8, 1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.stem(x))
        both = torch.cat([self.left(x), self.norm(self.right(x)).relu_()], 1)
        p, q = both.chunk(2, 1)
        out = self.head((p * q).mean((2, 3)))
        return out + torch.arange(6, device=out.device), x


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return Branches().eval()


@pytest.fixture(scope="module")
def sample() -> Any:
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def program(net: Any, sample: Any) -> Any:
    return torch.export.export(net, (sample,))


def ops(program: Any) -> list[str]:
    return [n.name for n in program.graph.nodes if n.op == "call_function"]


def test_outputs_do_not_depend_on_the_placement(net: Any, sample: Any, program: Any) -> None:
    rng = np.random.default_rng(0)
    with torch.inference_mode():
        expected = net(sample)
    for _ in range(10):
        placement = {name: f"core{rng.integers(2)}" for name in ops(program)}
        starts = {name: float(rng.random()) for name in ops(program)}
        run = TorchRun(program, placement, CORES, starts)
        try:
            for _ in range(2):
                for ours, theirs in zip(run(sample), expected, strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        finally:
            run.close()


def test_a_tensor_is_sent_once_to_a_device_however_many_ops_read_it(program: Any) -> None:
    placement = dict.fromkeys(ops(program), "core0")
    for name in placement:
        if name.startswith(("conv2d_1", "conv2d_2")):  # both read the stem's output
            placement[name] = "core1"
    run = TorchRun(program, placement, CORES)
    run.close()
    assert run.crossings == 3  # the stem's output there, two results back


def test_a_failing_op_is_named(program: Any) -> None:
    run = TorchRun(program, dict.fromkeys(ops(program), "core1"), CORES)
    try:
        with pytest.raises(ExecutionError, match="operator 'conv2d' on 'core1' failed"):
            run(torch.randn(2, 5, 16, 16))
        assert len(run(torch.randn(2, 3, 16, 16))) == 2  # and the next sample is none the worse
    finally:
        run.close()


def test_an_unknown_device_is_named(program: Any) -> None:
    with pytest.raises(InputError, match="operator 'conv2d' is placed on 'gpu7'"):
        TorchRun(program, {"conv2d": "gpu7"}, CORES)


def test_every_device_has_its_own_number_of_threads(program: Any, sample: Any) -> None:
    seen: dict[str, set[int]] = {"core0": set(), "core1": set()}
    placement = {name: f"core{i % 2}" for i, name in enumerate(ops(program))}
    before = torch.get_num_threads()
    run = TorchRun(
        program,
        placement,
        CORES,
        mark=lambda op: seen[placement[op]].add(torch.get_num_threads()),
        threads={"core0": 1, "core1": 3},
    )
    try:
        run(sample)
    finally:
        run.close()
    assert seen == {"core0": {1}, "core1": {3}}
    assert torch.get_num_threads() == before
