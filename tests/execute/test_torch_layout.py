"""Convolutions' weights lie channels last on a CPU, unless an op after them counts on the usual layout."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from placewright.cluster import DeviceKind  # noqa: E402
from placewright.costs.measure.torch_runner import ExportedRunner  # noqa: E402
from placewright.execute.torch import TorchRun  # noqa: E402
from placewright.execute.torch_program import channels_last_weights  # noqa: E402
from placewright.execute.torch_stages import staged_torch  # noqa: E402
from placewright.execute.torch_weights import WeightStore  # noqa: E402
from placewright.execute.torch_workers import keep_freed_memory  # noqa: E402
from placewright.frontends.registry import read_model  # noqa: E402

CPU = torch.device("cpu")


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, ending: str) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3)
        self.ending = ending

    def forward(self, x: Any) -> Any:
        y = self.second(torch.relu(self.first(x)))
        if self.ending == "view":
            return y.view(2, -1)
        if self.ending == "flatten":
            return torch.flatten(y, 1)
        return (y, (self.first.weight * 2).sum()) if self.ending == "shared" else y


def exported(ending: str) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    net, x = Net(ending).eval(), torch.randn(2, 3, 12, 12)
    return torch.export.export(net, (x,)), net, x


@pytest.mark.parametrize(
    ("ending", "expected"),
    [("", {"first", "second"}), ("flatten", {"first", "second"}), ("view", set()), ("shared", {"second"})],
)
def test_layout_follows_what_the_program_does_with_it(ending: str, expected: set[str]) -> None:
    program, net, x = exported(ending)
    keys = program.graph_signature.inputs_to_parameters
    found = channels_last_weights(program)
    assert {keys[p].removesuffix(".weight") for p in found} == expected
    store = WeightStore(program)
    for placeholder in found:
        assert store.on(placeholder, CPU).is_contiguous(memory_format=torch.channels_last)
        assert store.on(placeholder, torch.device("meta")).is_contiguous()
    ops = [n.name for n in program.graph.nodes if n.op == "call_function"]
    one = TorchRun(program, dict.fromkeys(ops, "a"), {"a": "cpu", "b": "cpu"})(x)
    two = TorchRun(program, {n: "ab"[i % 2] for i, n in enumerate(ops)}, {"a": "cpu", "b": "cpu"})(x)
    plain = torch.utils._pytree.tree_leaves(net(x))
    for ours, split, theirs in zip(one, two, plain, strict=True):
        assert torch.equal(ours, split)
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride(), "a caller may count on the usual layout"


def test_stages_give_results_in_the_usual_layout() -> None:
    program, net, x = exported("")
    ops = [n.name for n in program.graph.nodes if n.op == "call_function"]
    stage = {n: int(i > 0) for i, n in enumerate(ops)}
    model = staged_torch(program, dict.fromkeys(ops, "a"), stage, {"a": "cpu"})
    between = model.parts[0].make()([x])
    (result,) = model.parts[1].make()(between)
    assert not between[0].is_contiguous(), "between stages there is no need to reorder"
    assert result.stride() == net(x).stride()
    torch.testing.assert_close(result, net(x))


def test_ops_are_measured_as_they_are_run() -> None:
    program, _, _ = exported("")
    runner = ExportedRunner(program, read_model(program), DeviceKind("cpu", is_host=True))
    for placeholder in channels_last_weights(program):
        assert runner._bound[placeholder].is_contiguous(memory_format=torch.channels_last)


def test_memory_that_is_kept_does_not_fault_again() -> None:
    resource = pytest.importorskip("resource", reason="page faults are counted on Unix only")
    keep_freed_memory()
    keep_freed_memory()

    def faults() -> int:
        for _ in range(8):  # 8 MiB each, beyond what is mapped anew by default
            torch.ones(2**21)
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)

    before = faults()
    assert faults() - before < 2000, "giving all of it back would cost 16,384"
