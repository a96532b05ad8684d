"""Writes tapes: every method adds one operator, infers its output shapes and counts its work.

Work is 2 flops per multiply-add of convolutions and matrix products (a bias is free, as usual in such counts), and a
few flops per value elsewhere. Names are joined to paths by :meth:`Builder.scope`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from placewright.errors import InputError
from placewright.text import shown
from placewright.zoo.tape import FLOAT_BYTES, Tape, TapeOp, Value, Weight

MAX_OPS = 300_000
Pair = int | tuple[int, int]
_FLOPS_PER_VALUE = {"Softmax": 5, "LogSoftmax": 5, "LayerNorm": 7, "RMSNorm": 5, "BatchNorm2d": 2}
_ACTIVATION_FLOPS = {"ReLU": 1, "ReLU6": 2, "Sigmoid": 4, "Tanh": 6, "GELU": 8, "SiLU": 5, "Exp": 4, "Neg": 1}


class Builder:
    """Collects the ops of one model.

    >>> b = Builder("tiny")
    >>> with b.scope("block"):
    ...     y = b.relu("relu", b.linear("fc", b.input("x", (2, 8)), 4))
    >>> [op.path for op in b.finish(y).ops], y.shape
    (['x', 'block.fc', 'block.relu'], (2, 4))
    """

    def __init__(self, name: str, dtype: str = "float32") -> None:
        if dtype not in FLOAT_BYTES:
            raise InputError(f"zoo:{name}: 'dtype' is '{shown(dtype)}', expected one of {', '.join(FLOAT_BYTES)}")
        self.name = name
        self.dtype = dtype
        self._ops: list[TapeOp] = []
        self._paths: set[str] = set()
        self._prefix = ""

    @contextmanager
    def scope(self, name: object) -> Iterator[None]:
        """Put ``name.`` before the names of all ops added inside."""
        outer, self._prefix = self._prefix, f"{self._prefix}{name}."
        yield
        self._prefix = outer

    def finish(self, *outputs: Value) -> Tape:
        return Tape(self.name, self.dtype, tuple(self._ops), outputs)

    def add_op(
        self,
        name: str,
        kind: str,
        op_class: str,
        inputs: Sequence[Value],
        shape: tuple[int, ...] | list[tuple[int, ...]],
        *,
        flops: float = 0.0,
        weights: tuple[Weight, ...] = (),
        integer_ports: tuple[int, ...] = (),
        at_root: bool = False,
        **settings: Any,
    ) -> tuple[Value, ...]:
        """Add an op of any kind; ``shape`` is one shape or a list of them, one per output."""
        path = name if at_root else self._prefix + name
        shapes = shape if isinstance(shape, list) else [shape]
        for each in shapes:
            if min(each, default=1) < 1:
                raise InputError(
                    f"zoo:{self.name}: '{path}' would have the shape {each}: the input is too small for it"
                )
        if path in self._paths:
            raise ValueError(f"two ops at {path}")
        if len(self._ops) >= MAX_OPS or len(shapes) > MAX_OPS:
            raise InputError(f"zoo:{self.name}: these options make more than {MAX_OPS} operators or outputs")
        self._paths.add(path)
        position = len(self._ops)
        outputs = tuple(Value(position, port, s, port in integer_ports) for port, s in enumerate(shapes))
        self._ops.append(TapeOp(path, kind, op_class, tuple(inputs), outputs, float(flops), weights, settings))
        return outputs

    # What comes from outside or is stored.

    def input(self, name: str, shape: tuple[int, ...], upper: int = 0) -> Value:
        """A model input; with ``upper``, integers from 0 to ``upper - 1``."""
        ports = (0,) if upper else ()
        return self.add_op(name, "Input", "free", (), shape, integer_ports=ports, at_root=True, upper=upper)[0]

    def variable(self, name: str, shape: tuple[int, ...], spread: float = 0.0, center: float = 0.0) -> Value:
        """Weights that several ops read: an op of its own, with the weights as its output.

        A module draws them around ``center`` with standard deviation ``spread`` (by the first axis unless given).
        """
        weights, spread = (Weight("weight", shape),), spread or 1 / math.sqrt(shape[0])
        return self.add_op(name, "Variable", "free", (), shape, weights=weights, spread=spread, center=center)[0]

    def constant(self, name: str, shape: tuple[int, ...], fill: str, **settings: Any) -> Value:
        """A table that is not trained; ``fill`` names one of the tables in ``module.py``."""
        ports = (0,) if fill in ("positions", "zero_ids") else ()
        weights = (Weight("table", shape, is_trained=False, is_integer=bool(ports)),)
        return self.add_op(
            name, "Constant", "free", (), shape, weights=weights, integer_ports=ports, fill=fill, **settings
        )[0]

    # Products with weights.

    def conv(
        self,
        name: str,
        x: Value,
        channels: int,
        kernel: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> Value:
        """Convolution over [batch, channels, *space]; one or two space axes."""
        rank = len(x.shape) - 2
        sizes, strides, pads = _spread(kernel, rank), _spread(stride, rank), _spread(padding, rank)
        reach = [dilation * (k - 1) + 1 for k in sizes]
        space = tuple((n + 2 * p - r) // s + 1 for n, p, r, s in zip(x.shape[2:], pads, reach, strides, strict=True))
        shape = (x.shape[0], channels, *space)
        weight = Weight("weight", (channels, x.shape[1] // groups, *sizes))
        flops = 2 * math.prod(shape) * math.prod(weight.shape[1:])
        depthwise = groups > 1 and groups == x.shape[1]
        op_class = "depthwise" if depthwise else "conv1x1" if math.prod(sizes) == 1 else "conv"
        return self.add_op(
            name, f"Conv{rank}d", op_class, (x,), shape, flops=flops, weights=_with_bias(weight, channels, bias),
            stride=strides, padding=pads, dilation=dilation, groups=groups,
        )[0]  # fmt: skip

    def conv_transpose(self, name: str, x: Value, channels: int, kernel: int) -> Value:
        """Upsampling by ``kernel`` with a transposed convolution of equal kernel and stride, with bias."""
        n, c, h, w = x.shape
        weight = Weight("weight", (c, channels, kernel, kernel))
        flops = 2 * n * h * w * math.prod(weight.shape)
        shape = (n, channels, h * kernel, w * kernel)
        return self.add_op(
            name, "ConvTranspose2d", "conv", (x,), shape, flops=flops, weights=_with_bias(weight, channels, True),
            stride=(kernel, kernel),
        )[0]  # fmt: skip

    def linear(self, name: str, x: Value, features: int, bias: bool = True) -> Value:
        weight = Weight("weight", (features, x.shape[-1]))
        shape = (*x.shape[:-1], features)
        flops = 2 * math.prod(shape) * x.shape[-1]
        weights = _with_bias(weight, features, bias)
        return self.add_op(name, "Linear", "matmul", (x,), shape, flops=flops, weights=weights)[0]

    def embedding(self, name: str, ids: Value, rows: int, width: int) -> Value:
        weights = (Weight("weight", (rows, width)),)
        return self.add_op(name, "Embedding", "embedding", (ids,), (*ids.shape, width), weights=weights)[0]

    # Products of activations, or with variables.

    def matmul(self, name: str, a: Value, b: Value, transpose_b: bool = False) -> Value:
        """Product of the last two axes; leading axes of ``a`` and ``b`` are broadcast."""
        inner, columns = (b.shape[-1], b.shape[-2]) if transpose_b else (b.shape[-2], b.shape[-1])
        if a.shape[-1] != inner:
            raise ValueError(f"{self._prefix}{name}: {a.shape} x {b.shape}")
        shape = (*_broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], columns)
        flops = 2 * math.prod(shape) * inner
        return self.add_op(name, "MatMul", "matmul", (a, b), shape, flops=flops, transpose_b=transpose_b)[0]

    def attention(self, name: str, q: Value, k: Value, v: Value, causal: bool, mask: Value | None = None) -> Value:
        """Fused scaled dot-product attention over [batch, heads, length, width]; scaled by 1/sqrt(width)."""
        shape = (*q.shape[:-1], v.shape[-1])
        flops = 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])
        inputs = (q, k, v) if mask is None else (q, k, v, mask)
        return self.add_op(name, "ScaledDotProductAttention", "attention", inputs, shape, flops=flops, causal=causal)[0]

    # One value at a time.

    def add(self, name: str, a: Value, b: Value) -> Value:
        return self._binary(name, "Add", a, b)

    def sub(self, name: str, a: Value, b: Value) -> Value:
        return self._binary(name, "Subtract", a, b)

    def mul(self, name: str, a: Value, b: Value) -> Value:
        return self._binary(name, "Multiply", a, b)

    def scale(self, name: str, x: Value, factor: float = 1.0, offset: float = 0.0) -> Value:
        """``x * factor + offset``."""
        kind = "Scale" if factor != 1.0 else "Shift"
        flops = math.prod(x.shape) * ((factor != 1.0) + (offset != 0.0))
        return self.add_op(name, kind, "elementwise", (x,), x.shape, flops=flops, factor=factor, offset=offset)[0]

    def divide_by(self, name: str, x: Value, divisor: float) -> Value:
        return self.add_op(name, "DivideBy", "elementwise", (x,), x.shape, flops=math.prod(x.shape), divisor=divisor)[0]

    def relu(self, name: str, x: Value) -> Value:
        return self.activation(name, x, "ReLU")

    def sigmoid(self, name: str, x: Value) -> Value:
        return self.activation(name, x, "Sigmoid")

    def tanh(self, name: str, x: Value) -> Value:
        return self.activation(name, x, "Tanh")

    def activation(self, name: str, x: Value, kind: str, **settings: Any) -> Value:
        """``kind`` is ReLU, ReLU6, Sigmoid, Tanh, GELU (``approximate="tanh"`` for GPT-2's), SiLU, Exp or Neg."""
        flops = _ACTIVATION_FLOPS[kind] * math.prod(x.shape)
        return self.add_op(name, kind, "elementwise", (x,), x.shape, flops=flops, **settings)[0]

    # Normalisations, reductions, pools.

    def batch_norm(self, name: str, x: Value, eps: float = 1e-5) -> Value:
        c = (x.shape[1],)
        trained = (Weight("weight", c), Weight("bias", c))
        statistics = (Weight("running_mean", c, is_trained=False), Weight("running_var", c, is_trained=False))
        return self._per_value(name, "BatchNorm2d", "norm", x, (*trained, *statistics), eps=eps)

    def layer_norm(self, name: str, x: Value, eps: float = 1e-5) -> Value:
        width = (x.shape[-1],)
        return self._per_value(name, "LayerNorm", "norm", x, (Weight("weight", width), Weight("bias", width)), eps=eps)

    def shared_layer_norm(self, name: str, x: Value, scale: Value, shift: Value) -> Value:
        """Layer normalisation with variables for scale and shift."""
        flops = _FLOPS_PER_VALUE["LayerNorm"] * math.prod(x.shape)
        return self.add_op(name, "SharedLayerNorm", "norm", (x, scale, shift), x.shape, flops=flops)[0]

    def rms_norm(self, name: str, x: Value, eps: float = 1e-5) -> Value:
        return self._per_value(name, "RMSNorm", "norm", x, (Weight("weight", (x.shape[-1],)),), eps=eps)

    def softmax(self, name: str, x: Value, axis: int = -1) -> Value:
        return self._per_value(name, "Softmax", "softmax", x, (), axis=axis)

    def log_softmax(self, name: str, x: Value, axis: int = -1) -> Value:
        return self._per_value(name, "LogSoftmax", "softmax", x, (), axis=axis)

    def reduce_sum(self, name: str, x: Value, axis: int) -> Value:
        shape = tuple(n for i, n in enumerate(x.shape) if i != axis % len(x.shape))
        return self.add_op(name, "ReduceSum", "reduce", (x,), shape, flops=math.prod(x.shape), axis=axis)[0]

    def global_pool(self, name: str, x: Value) -> Value:
        """Mean over all space axes, which stay with length 1."""
        shape = (*x.shape[:2], 1, 1)
        return self.add_op(name, "AdaptiveAvgPool2d", "reduce", (x,), shape, flops=math.prod(x.shape))[0]

    def max_pool(self, name: str, x: Value, kernel: int, stride: int, padding: int = 0) -> Value:
        return self._pool(name, "MaxPool2d", x, kernel, stride, padding)

    def avg_pool(self, name: str, x: Value, kernel: int, stride: int, padding: int = 0) -> Value:
        return self._pool(name, "AvgPool2d", x, kernel, stride, padding)

    def top_k(self, name: str, x: Value, k: int, axis: int = -1) -> tuple[Value, Value]:
        """The ``k`` largest values along an axis and their places."""
        axis = axis % len(x.shape)
        shape = tuple(k if i == axis else n for i, n in enumerate(x.shape))
        flops = math.prod(x.shape)
        outputs = self.add_op(
            name, "TopK", "reduce", (x,), [shape, shape], flops=flops, integer_ports=(1,), k=k, axis=axis
        )
        return outputs[0], outputs[1]

    # Data moved.

    def concat(self, name: str, xs: Sequence[Value], axis: int = 1) -> Value:
        axis = axis % len(xs[0].shape)
        total = sum(x.shape[axis] for x in xs)
        shape = tuple(total if i == axis else n for i, n in enumerate(xs[0].shape))
        return self.add_op(name, "Concat", "move", xs, shape, axis=axis)[0]

    def split(self, name: str, x: Value, parts: int, axis: int = -1) -> tuple[Value, ...]:
        """Equal parts along an axis."""
        axis = axis % len(x.shape)
        size, rest = divmod(x.shape[axis], parts)
        if rest:
            raise InputError(
                f"zoo:{self.name}: '{self._prefix}{name}' cannot cut {x.shape[axis]} into {parts} equal parts"
            )
        shape = tuple(size if i == axis else n for i, n in enumerate(x.shape))
        return self.add_op(name, "Split", "move", (x,), [shape] * parts, axis=axis, size=size)

    def unstack(self, name: str, x: Value, axis: int) -> tuple[Value, ...]:
        """One output for each place along an axis, which goes."""
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        return self.add_op(name, "Unstack", "move", (x,), [shape] * x.shape[axis], axis=axis)

    def slice(self, name: str, x: Value, start: int, stop: int, axis: int) -> Value:
        axis = axis % len(x.shape)
        shape = tuple(stop - start if i == axis else n for i, n in enumerate(x.shape))
        return self.add_op(name, "Slice", "move", (x,), shape, start=start, stop=stop, axis=axis)[0]

    def select(self, name: str, x: Value, place: int, axis: int) -> Value:
        """One place along an axis, which goes."""
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        return self.add_op(name, "Select", "move", (x,), shape, place=place, axis=axis)[0]

    def permute(self, name: str, x: Value, *axes: int) -> Value:
        return self.add_op(name, "Transpose", "move", (x,), tuple(x.shape[a] for a in axes), axes=axes)[0]

    def pad(self, name: str, x: Value, before: int, after: int) -> Value:
        """Zeros along the last axis."""
        shape = (*x.shape[:-1], x.shape[-1] + before + after)
        return self.add_op(name, "Pad", "move", (x,), shape, before=before, after=after)[0]

    def cast(self, name: str, x: Value) -> Value:
        """Integers to the model's floating-point type."""
        return self.add_op(name, "Convert", "move", (x,), x.shape)[0]

    def reshape(self, name: str, x: Value, *shape: int) -> Value:
        if math.prod(shape) != math.prod(x.shape):
            raise ValueError(f"{self._prefix}{name}: {x.shape} to {shape}")
        return self.add_op(name, "Reshape", "free", (x,), shape)[0]

    def repeat(self, name: str, x: Value, times: int, axis: int) -> Value:
        """Every place along an axis several times in a row."""
        shape = tuple(times * n if i == axis else n for i, n in enumerate(x.shape))
        return self.add_op(name, "Repeat", "move", (x,), shape, times=times, axis=axis)[0]

    def stack(self, name: str, xs: Sequence[Value], axis: int) -> Value:
        """Equal shapes along a new axis."""
        shape = (*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:])
        return self.add_op(name, "Stack", "move", xs, shape, axis=axis)[0]

    def stop_gradient(self, name: str, x: Value) -> Value:
        """The same values, through which training sends no gradient."""
        return self.add_op(name, "StopGradient", "free", (x,), x.shape)[0]

    def gather_rows(self, name: str, x: Value, rows: Value) -> Value:
        """The rows of a matrix that integers name."""
        return self.add_op(name, "Gather", "embedding", (x, rows), (*rows.shape, x.shape[1]))[0]

    def scatter_rows(self, name: str, x: Value, rows: Value, total: int) -> Value:
        """The reverse of :meth:`gather_rows`: rows of ``x`` into a matrix of zeros with ``total`` rows."""
        return self.add_op(name, "ScatterRows", "embedding", (x, rows), (total, x.shape[1]), total=total)[0]

    def scatter_columns(self, name: str, x: Value, columns: Value, total: int) -> Value:
        """In each row, the values of ``x`` into ``total`` zeros at the columns given."""
        return self.add_op(name, "ScatterColumns", "embedding", (x, columns), (x.shape[0], total), total=total)[0]

    def _binary(self, name: str, kind: str, a: Value, b: Value) -> Value:
        shape = _broadcast(a.shape, b.shape)
        return self.add_op(name, kind, "elementwise", (a, b), shape, flops=math.prod(shape))[0]

    def _per_value(
        self, name: str, kind: str, op_class: str, x: Value, weights: tuple[Weight, ...], **settings: Any
    ) -> Value:
        flops = _FLOPS_PER_VALUE[kind] * math.prod(x.shape)
        return self.add_op(name, kind, op_class, (x,), x.shape, flops=flops, weights=weights, **settings)[0]

    def _pool(self, name: str, kind: str, x: Value, kernel: int, stride: int, padding: int) -> Value:
        n, c, *space = x.shape
        shape = (n, c, *((s + 2 * padding - kernel) // stride + 1 for s in space))
        flops = kernel * kernel * math.prod(shape)
        return self.add_op(
            name, kind, "pool", (x,), shape, flops=flops, kernel=kernel, stride=stride, padding=padding
        )[0]  # fmt: skip


def _spread(size: Pair, rank: int) -> tuple[int, ...]:
    return (size,) * rank if isinstance(size, int) else size


def _with_bias(weight: Weight, channels: int, bias: bool) -> tuple[Weight, ...]:
    return (weight, Weight("bias", (channels,))) if bias else (weight,)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a == b:
        return a
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    shorter = (1,) * (len(longer) - len(shorter)) + shorter
    if any(m != n and 1 not in (m, n) for m, n in zip(longer, shorter, strict=True)):
        raise ValueError(f"shapes {a} and {b} do not fit")
    return tuple(max(m, n) for m, n in zip(longer, shorter, strict=True))
