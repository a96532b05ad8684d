"""The torch modules of the zoo are twins of its tapes: shapes, parameters, work and paths agree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from placewright.errors import InputError
from placewright.frontends.openvino_conversion import convert_silently
from placewright.zoo import MODELS, zoo_graph, zoo_module, zoo_tape

torch = pytest.importorskip("torch")

_TINY = "layers=1&hidden=32&heads=4&vocabulary=50&sequence=8"
SMALL = [
    "inception-v3?image=80&transform_input=1&batch=2",
    "resnet-50?image=32",
    "vgg-16?image=32&classes=10",
    "mobilenet?image=32",
    "unet?image=32&width=8",
    f"bert-base?{_TINY}&batch=2",
    f"bert-base?{_TINY}&fused=1",
    f"gpt2?{_TINY}&batch=2",
    f"llama?{_TINY}&key_heads=2&intermediate=48",
    f"llama?{_TINY}&key_heads=4&intermediate=48&tied=0&fused=1",
    f"moe?{_TINY}&key_heads=2&intermediate=48",
    "rnnlm-2?hidden=16&vocabulary=50&batch=2&steps=3",
    "gnmt-4?hidden=16&vocabulary=50&batch=2&steps=3",
    "transformer-xl-2?hidden=16&heads=2&inner=32&vocabulary=50&batch=2&segment=6&segments=2",
    "wavenet-2x18?samples=32&channels=8&skip_channels=8&levels=8&layers=4&batch=1",
    "amoebanet?image=32&width=12&cells=3&classes=10&batch=1",
]
PRODUCTS = ("conv", "conv1x1", "depthwise", "matmul")
small = pytest.mark.parametrize("reference", SMALL)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tiny products gain nothing from more, and lose much on a busy machine."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@cache
def built(reference: str) -> tuple[Any, Any, tuple[Any, ...]]:
    module, inputs = zoo_module(reference)
    return zoo_tape(reference), module, inputs


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def test_every_family_is_here() -> None:
    families = {MODELS[r.partition("?")[0]].build for r in SMALL}
    assert families == {m.build for m in MODELS.values() if "dtype" in m.options}


@small
def test_shapes_of_all_ops(reference: str) -> None:
    tape, module, inputs = built(reference)
    shapes: dict[str, list[tuple[int, ...]]] = {}

    def note(path: str) -> Any:
        return lambda _, __, outputs: shapes.update({path: [tuple(o.shape) for o in as_tuple(outputs)]})

    ops = [op for op in tape.ops if op.kind != "Input"]
    hooks = [module.get_submodule(op.path).register_forward_hook(note(op.path)) for op in ops]
    with torch.no_grad():
        outputs = as_tuple(module(*inputs))
    for hook in hooks:
        hook.remove()
    assert shapes == {op.path: [v.shape for v in op.outputs] for op in ops}
    assert [tuple(o.shape) for o in outputs] == [v.shape for v in tape.outputs]
    assert [tuple(x.shape) for x in inputs] == [op.outputs[0].shape for op in tape.inputs]
    for output in outputs:
        assert torch.isfinite(output).all()
        assert 1e-3 < output.std() < 1e3


@small
def test_parameters(reference: str) -> None:
    tape, module, _ = built(reference)
    assert sum(p.numel() for p in module.parameters()) == tape.parameters
    held = sum(t.nbytes for t in (*module.parameters(), *module.buffers()) if t.ndim > 0)  # not the counts of batches
    assert held == zoo_graph(f"{reference}&training=0").weight_bytes.sum()
    assert all(not (t == t.flatten()[0]).all() for name, t in module.named_parameters() if t.numel() > 1)


@small
def test_work_of_inference_and_training(reference: str) -> None:
    """Products cost what torch counts, forwards and with the backward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    if "fused=1" in reference:
        pytest.skip("torch does not count every fused attention")
    tape, module, inputs = built(reference)
    with FlopCounterMode(display=False) as forward:
        outputs = as_tuple(module(*inputs))
    with FlopCounterMode(display=False) as backward:
        sum(o.sum() for o in outputs).backward()
    module.zero_grad()
    counted = {False: forward.get_total_flops(), True: backward.get_total_flops()}
    if any(op.op_class == "depthwise" for op in tape.ops):
        del counted[True]  # torch counts their weights' gradients as if there were no groups
    graph = zoo_graph(f"{reference}&training=1")
    for is_backward, expected in counted.items():
        ours = sum(
            f
            for f, c, b in zip(graph.flops, graph.op_classes, graph.is_backward, strict=True)
            if c in PRODUCTS and b == is_backward
        )
        assert ours == pytest.approx(expected, rel=0.01)


@small
def test_paths_survive_export(reference: str) -> None:
    tape, module, inputs = built(reference)
    program = torch.export.export(module, inputs)
    stacks = [node.meta.get("nn_module_stack") or {} for node in program.graph.nodes]
    seen = {path for stack in stacks for path, _ in stack.values()}
    assert {op.path for op in tape.ops if op.kind not in ("Input", "Variable", "Constant")} <= seen
    with torch.no_grad():
        pairs = zip(as_tuple(module(*inputs)), as_tuple(program.module()(*inputs)), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_seeds() -> None:
    def first(seed: int) -> Any:
        module, inputs = zoo_module("unet?image=16&width=2", seed=seed)
        return torch.cat([next(module.parameters()).flatten(), inputs[0].flatten()])

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def test_half_precision_runs() -> None:
    module, inputs = zoo_module(f"llama?{_TINY}&key_heads=2&intermediate=48&dtype=bfloat16")
    with torch.no_grad():
        assert module(*inputs).dtype == torch.bfloat16


def test_generated_graphs_cannot_run() -> None:
    with pytest.raises(InputError, match="zoo:chain"):
        zoo_module("chain")


def test_causal_models_do_not_look_ahead() -> None:
    """The last token changes the last output only."""
    for name in ("gpt2", "llama"):
        extra = "&key_heads=2&intermediate=48" if name == "llama" else ""
        _, module, (ids,) = built(f"{name}?{_TINY}{extra}")
        other = ids.clone()
        other[:, -1] = (other[:, -1] + 1) % 50
        with torch.no_grad():
            before, after = module(ids), module(other)
        assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-6)
        assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)


def test_relative_positions_of_transformer_xl() -> None:
    """After the shift, query i and key j meet at distance i + length - j."""
    from placewright.zoo.builder import Builder
    from placewright.zoo.module import TapeModule

    length, keys = 4, 8
    b = Builder("shift")
    x = b.input("x", (1, 1, length, keys))
    folded = b.reshape("fold", b.pad("pad", x, 1, 0), 1, 1, keys + 1, length)
    y = b.reshape("unfold", b.slice("slice", folded, 1, keys + 1, axis=2), 1, 1, length, keys)
    distances = torch.arange(keys - 1, -1, -1.0).expand(1, 1, length, keys)
    shifted = TapeModule(b.finish(y))(distances)[0, 0]
    assert all(shifted[i, j] == i + length - j for i in range(length) for j in range(i + length + 1))


def test_torch_modules_match_openvino() -> None:
    """Converted by tracing, ResNet-50 has the 288 nodes that torchvision's has, and its paths as names."""
    pytest.importorskip("openvino")
    module, inputs = zoo_module("resnet-50?image=64")
    model = convert_silently(module, example_input=inputs, input=[tuple(x.shape) for x in inputs])
    names = [op.get_friendly_name() for op in model.get_ops()]
    assert len(names) == 288
    assert any(name.startswith("__module.layer1.0.relu1/") for name in names)
