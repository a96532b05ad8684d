"""Small models in all three formats."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from placewright.frontends.openvino_conversion import convert_silently


@dataclass(frozen=True)
class Exports:
    """One model as files, and as the live objects that the files were made from."""

    name: str
    xml: Path
    onnx: Path
    pt2: Path
    module: Any
    inputs: tuple[Any, ...]
    program: Any

    @property
    def files(self) -> list[Path]:
        return [self.xml, self.onnx, self.pt2]


def exported_branches(folder: Path) -> Exports:
    """``x + x`` or ``x @ w``, by a flag."""
    onnx = pytest.importorskip("onnx")
    openvino = pytest.importorskip("openvino")
    torch = pytest.importorskip("torch")
    onnx.save(branching_onnx(), folder / "branches.onnx")
    openvino.save_model(
        openvino.Core().read_model(folder / "branches.onnx"), folder / "branches.xml", compress_to_fp16=False
    )

    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, 3))

        def forward(self, flag: Any, x: Any) -> Any:
            return torch.cond(flag, lambda x, w: x + x, lambda x, w: x @ w, (x, self.weight))

    module, inputs = Branches().eval(), (torch.tensor(True), torch.ones(2, 3))
    program = torch.export.export(module, inputs)
    torch.export.save(program, folder / "branches.pt2")
    paths = (folder / f"branches.{suffix}" for suffix in ("xml", "onnx", "pt2"))
    return Exports("branches", *paths, module, inputs, program)


def branching_onnx() -> Any:
    import numpy as np
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    then = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["doubled"])], "then", [], [value("doubled", TensorProto.FLOAT, [2, 3])]
    )
    other = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["product"])], "else", [], [value("product", TensorProto.FLOAT, [2, 3])]
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=then, else_branch=other)],
        "branches",
        [value("flag", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, [2, 3])],
        [value("y", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor("w", TensorProto.FLOAT, [3, 3], np.ones(9))],
    )
    return onnx_model(graph)


def onnx_model(graph: Any, *domains: str) -> Any:
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def exported_model(name: str, folder: Path) -> Exports:
    """A small module in all formats: conv_net, attention_block or lstm."""
    pytest.importorskip("onnx_ir")
    openvino = pytest.importorskip("openvino")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module, inputs = _modules()[name]()
    for parameter in module.parameters():  # biases of zero would be folded away
        torch.nn.init.normal_(parameter, std=0.1)
    module.eval()
    program = torch.export.export(module, inputs)
    torch.export.save(program, folder / f"{name}.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, inputs, folder / f"{name}.onnx", dynamo=False)
        converted = convert_silently(module, example_input=inputs)
    converted.reshape({n: list(i.shape) for n, i in enumerate(inputs)})
    openvino.save_model(converted, folder / f"{name}.xml", compress_to_fp16=False)
    paths = (folder / f"{name}.{suffix}" for suffix in ("xml", "onnx", "pt2"))
    return Exports(name, *paths, module, inputs, program)


def _modules() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]]:
    import torch
    from torch import nn

    class ConvNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(32, 64, 3, padding=1)
            self.norm = nn.BatchNorm2d(64)
            self.blocks = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.Conv2d(64, 128, 1), nn.ReLU())
            self.pool = nn.MaxPool2d(2)
            self.head = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            x = self.pool(self.blocks(torch.relu(self.norm(self.stem(x)))))
            left, right = x.split(64, 1)
            return self.head(torch.cat([right, left], 1).mean((2, 3)))

    class AttentionBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.LayerNorm(64), nn.LayerNorm(64)
            self.query, self.key, self.value, self.output = (nn.Linear(64, 64) for _ in range(4))
            self.widen, self.narrow = nn.Linear(64, 256), nn.Linear(256, 64)
            self.gelu = nn.GELU()

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            q, k, v = (p(y).view(2, 16, 4, 16).transpose(1, 2) for p in (self.query, self.key, self.value))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.output(mixed.transpose(1, 2).reshape(2, 16, 64))
            return x + self.narrow(self.gelu(self.widen(self.after(x))))

    class Lstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(64, 128, batch_first=True, bidirectional=True)
            self.head = nn.Linear(256, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.cells(x)[0])

    return {
        "conv_net": lambda: (ConvNet(), (torch.randn(1, 32, 16, 16),)),
        "attention_block": lambda: (AttentionBlock(), (torch.randn(2, 16, 64),)),
        "lstm": lambda: (Lstm(), (torch.randn(2, 8, 64),)),
    }
