"""A tape as a real ``torch.nn.Module``: one leaf module for each op, at the op's path, with random weights.

Because every op is a module of its own, its path shows up wherever torch keeps module names: in exported programs, in
traces, in ONNX scopes and in OpenVINO's friendly names. Biases, scales, shifts and running statistics are all away
from their neutral values, so that no converter can drop an op. This module needs torch; import it late.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placewright.errors import InputError
from placewright.zoo.tape import Tape, TapeOp

_unfilled: Any = nn.utils.skip_init
_MASKED = -1e4  # finite in every floating-point type


class TapeModule(nn.Module):
    """Runs a tape op by op; values are dropped after their last use."""

    def __init__(self, tape: Tape, seed: int = 0) -> None:
        super().__init__()
        self.tape = tape
        generator = torch.Generator().manual_seed(seed)
        dtype = getattr(torch, tape.dtype)
        last_use = {(v.op, v.port): position for position, op in enumerate(tape.ops) for v in op.inputs}
        last_use.update({(v.op, v.port): len(tape.ops) for v in tape.outputs})
        self._steps: list[tuple[int, nn.Module, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]] = []
        for position, op in enumerate(tape.ops):
            if op.kind == "Input":
                continue
            leaf = _leaf(op, dtype)
            _fill(leaf, op, generator)
            _put(self, op.path, leaf)
            reads = tuple((v.op, v.port) for v in op.inputs)
            dead = tuple({key for key in reads if last_use[key] == position})
            self._steps.append((position, leaf, reads, dead))
        self._reads = [position for position, op in enumerate(tape.ops) if op.kind == "Input"]
        self._results = [(v.op, v.port) for v in tape.outputs]
        self.eval()

    def forward(self, *inputs: Tensor) -> Any:
        values = {(position, 0): x for position, x in zip(self._reads, inputs, strict=True)}
        for position, leaf, reads, dead in self._steps:
            produced = leaf(*[values[key] for key in reads])
            for port, value in enumerate(produced if isinstance(produced, (tuple, list)) else (produced,)):
                values[position, port] = value
            for key in dead:
                del values[key]
        results = tuple(values[key] for key in self._results)
        return results[0] if len(results) == 1 else results


def tape_module(tape: Tape, seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module of a tape in evaluation mode, and inputs for it; the same seed gives the same weights and inputs."""
    generator = torch.Generator().manual_seed(seed + 1)
    dtype = getattr(torch, tape.dtype)
    inputs = tuple(
        torch.randint(0, op.settings["upper"], op.outputs[0].shape, generator=generator)
        if op.settings["upper"]
        else torch.randn(op.outputs[0].shape, generator=generator).to(dtype)
        for op in tape.inputs
    )
    return TapeModule(tape, seed), inputs


class _Function(nn.Module):
    """An op without weights."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__()
        self.kind = name
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)

    def extra_repr(self) -> str:
        return self.kind


class _Stored(nn.Module):
    """Shared weights or a table: an op that only hands out what it holds."""

    def __init__(self, name: str, value: Tensor, is_trained: bool) -> None:
        super().__init__()
        self.stored = name
        if is_trained:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value)

    def forward(self) -> Any:
        return getattr(self, self.stored)


class _RMSNorm(nn.Module):
    """Root-mean-square normalisation in ops that every exporter knows."""

    def __init__(self, width: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, dtype=dtype))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def _leaf(op: TapeOp, dtype: torch.dtype) -> nn.Module:
    if op.kind in _WITH_WEIGHTS:
        return _WITH_WEIGHTS[op.kind](op, {"device": "cpu", "dtype": dtype})
    if op.kind in _FUNCTIONS:
        return _Function(op.kind, _FUNCTIONS[op.kind](op, dtype))
    raise InputError(f"'{op.path}': operators of kind '{op.kind}' cannot run in torch")


def _put(root: nn.Module, path: str, leaf: nn.Module) -> None:
    *parents, name = path.split(".")
    at = root
    for parent in parents:
        if parent not in at._modules:
            at.add_module(parent, nn.Module())
        at = at.get_submodule(parent)
    at.add_module(name, leaf)


def _conv(op: TapeOp, options: dict[str, Any]) -> nn.Module:
    kind: Any = nn.Conv1d if op.kind == "Conv1d" else nn.Conv2d
    channels, _, *kernel = op.weights[0].shape
    s = op.settings
    return _unfilled(
        kind, op.inputs[0].shape[1], channels, tuple(kernel), stride=s["stride"], padding=s["padding"],
        dilation=s["dilation"], groups=s["groups"], bias=len(op.weights) > 1, **options,
    )  # fmt: skip


def _conv_transpose(op: TapeOp, options: dict[str, Any]) -> nn.Module:
    c, channels, *kernel = op.weights[0].shape
    return _unfilled(nn.ConvTranspose2d, c, channels, tuple(kernel), stride=op.settings["stride"], **options)


def _linear(op: TapeOp, options: dict[str, Any]) -> nn.Module:
    features, width = op.weights[0].shape
    return _unfilled(nn.Linear, width, features, bias=len(op.weights) > 1, **options)


def _table(op: TapeOp, options: dict[str, Any]) -> nn.Module:
    shape, s = op.weights[0].shape, op.settings
    fill = s["fill"]
    if fill == "positions":
        return _Stored("table", torch.arange(shape[-1]).expand(shape).contiguous(), is_trained=False)
    if fill == "zero_ids":
        return _Stored("table", torch.zeros(shape, dtype=torch.int64), is_trained=False)
    dtype = options["dtype"]
    if fill == "zeros":
        return _Stored("table", torch.zeros(shape, dtype=dtype), is_trained=False)
    if fill == "causal_mask":  # query i of the last `shape[-2]` places may look at keys up to its own place
        ahead = shape[-1] - shape[-2]
        mask = torch.full(shape, _MASKED).triu(1 + ahead)
        return _Stored("table", mask.to(dtype), is_trained=False)
    if fill in ("rotary_cos", "rotary_sin"):
        angles = _angles(torch.arange(shape[0]), shape[1] // 2, s["base"])
        both = torch.cat([angles, angles], dim=1)
        return _Stored("table", (both.cos() if fill == "rotary_cos" else both.sin()).to(dtype), is_trained=False)
    if fill == "distances":  # sinusoids of the distances shape[0] - 1 down to 0
        angles = _angles(torch.arange(shape[0] - 1, -1, -1), shape[1] // 2, 10000.0)
        return _Stored("table", torch.cat([angles.sin(), angles.cos()], dim=1).to(dtype), is_trained=False)
    raise ValueError(f"no table is called {fill}")


def _angles(places: Tensor, width: int, base: float) -> Tensor:
    return places[:, None].to(torch.float64) * base ** (-torch.arange(width, dtype=torch.float64) / width)[None, :]


_WITH_WEIGHTS: dict[str, Callable[[TapeOp, dict[str, Any]], nn.Module]] = {
    "Conv1d": _conv,
    "Conv2d": _conv,
    "ConvTranspose2d": _conv_transpose,
    "Linear": _linear,
    "Embedding": lambda op, o: _unfilled(nn.Embedding, *op.weights[0].shape, **o),
    "BatchNorm2d": lambda op, o: _unfilled(nn.BatchNorm2d, op.weights[0].shape[0], eps=op.settings["eps"], **o),
    "LayerNorm": lambda op, o: _unfilled(nn.LayerNorm, op.weights[0].shape, eps=op.settings["eps"], **o),
    "RMSNorm": lambda op, o: _RMSNorm(op.weights[0].shape[0], op.settings["eps"], o["dtype"]),
    "Variable": lambda op, o: _Stored("weight", torch.empty(op.weights[0].shape, **o), is_trained=True),
    "Constant": _table,
}


def _scale(op: TapeOp) -> Callable[[Tensor], Tensor]:
    factor, offset = op.settings["factor"], op.settings["offset"]
    if factor == 1.0:
        return lambda x: x + offset
    return (lambda x: x * factor + offset) if offset else (lambda x: x * factor)


def _matmul(op: TapeOp) -> Callable[[Tensor, Tensor], Tensor]:
    return (lambda a, b: a @ b.transpose(-1, -2)) if op.settings["transpose_b"] else (lambda a, b: a @ b)


def _attention(op: TapeOp) -> Callable[..., Tensor]:
    causal = op.settings["causal"]
    return lambda q, k, v, mask=None: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def _pool(op: TapeOp) -> Callable[[Tensor], Tensor]:
    function = F.max_pool2d if op.kind == "MaxPool2d" else F.avg_pool2d
    kernel, stride, padding = op.settings["kernel"], op.settings["stride"], op.settings["padding"]
    return lambda x: function(x, kernel, stride, padding)


def _slice(op: TapeOp) -> Callable[[Tensor], Tensor]:
    index = (slice(None),) * op.settings["axis"] + (slice(op.settings["start"], op.settings["stop"]),)
    return lambda x: x[index]


def _scatter_rows(op: TapeOp) -> Callable[[Tensor, Tensor], Tensor]:
    shape = op.outputs[0].shape
    return lambda x, rows: x.new_zeros(shape).scatter(0, rows[:, None].expand(-1, shape[1]), x)


def _scatter_columns(op: TapeOp) -> Callable[[Tensor, Tensor], Tensor]:
    shape = op.outputs[0].shape
    return lambda x, columns: x.new_zeros(shape).scatter(1, columns, x)


_FUNCTIONS: dict[str, Callable[[TapeOp, torch.dtype], Callable[..., Any]]] = {
    "Add": lambda op, _: torch.add,
    "Subtract": lambda op, _: torch.sub,
    "Multiply": lambda op, _: torch.mul,
    "Scale": lambda op, _: _scale(op),
    "Shift": lambda op, _: _scale(op),
    "DivideBy": lambda op, _: lambda x: x / op.settings["divisor"],
    "ReLU": lambda op, _: F.relu,
    "ReLU6": lambda op, _: F.relu6,
    "Sigmoid": lambda op, _: torch.sigmoid,
    "Tanh": lambda op, _: torch.tanh,
    "GELU": lambda op, _: lambda x: F.gelu(x, approximate=op.settings.get("approximate", "none")),
    "SiLU": lambda op, _: F.silu,
    "Exp": lambda op, _: torch.exp,
    "Neg": lambda op, _: torch.neg,
    "MatMul": lambda op, _: _matmul(op),
    "ScaledDotProductAttention": lambda op, _: _attention(op),
    "Softmax": lambda op, _: lambda x: F.softmax(x, dim=op.settings["axis"]),
    "LogSoftmax": lambda op, _: lambda x: F.log_softmax(x, dim=op.settings["axis"]),
    "ReduceSum": lambda op, _: lambda x: x.sum(dim=op.settings["axis"]),
    "AdaptiveAvgPool2d": lambda op, _: lambda x: F.adaptive_avg_pool2d(x, 1),
    "MaxPool2d": lambda op, _: _pool(op),
    "AvgPool2d": lambda op, _: _pool(op),
    "TopK": lambda op, _: lambda x: tuple(x.topk(op.settings["k"], dim=op.settings["axis"])),
    "Concat": lambda op, _: lambda *xs: torch.cat(xs, dim=op.settings["axis"]),
    "Split": lambda op, _: lambda x: x.split(op.settings["size"], dim=op.settings["axis"]),
    "Unstack": lambda op, _: lambda x: x.unbind(op.settings["axis"]),
    "Select": lambda op, _: lambda x: x.select(op.settings["axis"], op.settings["place"]),
    "Slice": lambda op, _: _slice(op),
    "Transpose": lambda op, _: lambda x: x.permute(op.settings["axes"]),
    "Pad": lambda op, _: lambda x: F.pad(x, (op.settings["before"], op.settings["after"])),
    "Convert": lambda op, dtype: lambda x: x.to(dtype),
    "Reshape": lambda op, _: lambda x: x.reshape(op.outputs[0].shape),
    "Gather": lambda op, _: lambda x, rows: F.embedding(rows, x),
    "Repeat": lambda op, _: lambda x: x.repeat_interleave(op.settings["times"], dim=op.settings["axis"]),
    "Stack": lambda op, _: lambda *xs: torch.stack(xs, dim=op.settings["axis"]),
    "StopGradient": lambda op, _: lambda x: x.detach(),
    "SharedLayerNorm": lambda op, _: lambda x, scale, shift: F.layer_norm(x, x.shape[-1:], scale, shift),
    "ScatterRows": lambda op, _: _scatter_rows(op),
    "ScatterColumns": lambda op, _: _scatter_columns(op),
}


@torch.no_grad()
def _fill(leaf: nn.Module, op: TapeOp, generator: torch.Generator) -> None:
    """Random values that keep activations of ordinary size through any depth."""
    for weight in op.weights:
        if op.kind == "Constant":
            continue
        tensor: Tensor = getattr(leaf, weight.name)
        drawn = torch.empty(weight.shape)
        if weight.name == "running_var":
            drawn.uniform_(0.6, 1.4, generator=generator)
        elif weight.name == "weight" and op.op_class == "norm":
            drawn.uniform_(0.4, 1.0, generator=generator)  # below 1: residual sums would double the power every time
        elif weight.name in ("bias", "running_mean"):
            drawn.normal_(0.0, 0.1, generator=generator)
        else:
            drawn.normal_(op.settings.get("center", 0.0), _spread(op), generator=generator)
        tensor.copy_(drawn)


def _spread(op: TapeOp) -> float:
    """Standard deviation of an op's weights."""
    shape = op.weights[0].shape
    if op.kind == "Embedding":
        return 0.5
    if op.kind == "Variable":
        return float(op.settings["spread"])
    if op.kind == "ConvTranspose2d":
        return 1 / math.sqrt(shape[0])
    gain = 2.0 if op.kind == "Conv2d" else 1.0  # the ReLU that follows most convolutions halves the power
    return math.sqrt(gain / math.prod(shape[1:]))
