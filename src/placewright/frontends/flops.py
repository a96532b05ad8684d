"""How much arithmetic an op does and what sort of work it is: the same formulas for every framework.

A multiply-add is two flops. Frontends map each op type of their framework to one of ``KINDS`` or to one of the
functions below; types that are in neither are *unknown*: counted as one flop per output element and reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

Shape = tuple[int, ...]


class Work(NamedTuple):
    """What an op does: a class of ``op_classes.py`` and the flops of one run."""

    op_class: str
    flops: float


class Kind(NamedTuple):
    """Work that follows from the sizes alone: flops per element of the output, or of the first input."""

    op_class: str
    per_output: float = 0.0
    per_input: float = 0.0


KINDS: dict[str, Kind] = {
    "elementwise": Kind("elementwise", per_output=1),
    "silu": Kind("elementwise", per_output=2),  # sigmoid, product
    "gelu": Kind("elementwise", per_output=5),  # scale, erf, add, two products
    "softmax": Kind("softmax", per_output=5),  # maximum, difference, exponential, sum, quotient
    "batch_norm": Kind("norm", per_output=2),  # scale, shift: the statistics are known
    "norm": Kind("norm", per_output=6),  # mean, centred square, its mean, difference, scale
    "affine_norm": Kind("norm", per_output=8),  # and then scale and shift
    "rms_norm": Kind("norm", per_output=4),  # square, mean, scale, weight
    "reduce": Kind("reduce", per_input=1),
    "global_pool": Kind("pool", per_input=1),
    "embedding": Kind("embedding"),
    "scatter_add": Kind("embedding", per_input=1),
    "move": Kind("move"),
    "free": Kind("free"),
    "constant": Kind("free"),
    "shape": Kind("free"),
}


def elements(shape: Sequence[int]) -> float:
    """Number of elements of a tensor.

    >>> elements((2, 3))
    6.0
    """
    return float(math.prod(shape))


def kind_work(kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Work:
    """Work of an op of a plain kind."""
    chosen = KINDS[kind]
    flops = chosen.per_output * (elements(outputs[0]) if outputs else 0.0)
    flops += chosen.per_input * (elements(inputs[0]) if inputs else 0.0)
    return Work(chosen.op_class, flops)


def unknown_work(outputs: Sequence[Shape]) -> Work:
    """Work of an op of an unknown type: something is done to every output element."""
    return Work("", sum(elements(shape) for shape in outputs))


def matmul_work(output: Shape, inner: int, bias: bool = False) -> Work:
    """A matrix product with ``inner`` multiply-adds per output element.

    >>> matmul_work((2, 4), 8)
    Work(op_class='matmul', flops=128.0)
    """
    return Work("matmul", elements(output) * (2 * inner + bias))


def conv_work(output: Shape, kernel: Shape, in_channels_per_group: int, groups: int = 1, bias: bool = False) -> Work:
    """A convolution; ``kernel`` holds the spatial sizes.

    >>> conv_work((1, 8, 4, 4), (3, 3), 16)
    Work(op_class='conv', flops=36864.0)
    """
    flops = elements(output) * (2 * in_channels_per_group * math.prod(kernel) + bias)
    return Work(_conv_class(kernel, in_channels_per_group, groups), flops)


def transposed_conv_work(
    input_: Shape, output: Shape, kernel: Shape, out_channels_per_group: int, groups: int = 1, bias: bool = False
) -> Work:
    """A transposed convolution: every input element is spread over a kernel for every output channel of its group."""
    flops = 2 * elements(input_) * out_channels_per_group * math.prod(kernel) + bias * elements(output)
    return Work(_conv_class(kernel, out_channels_per_group, groups), flops)


def attention_work(query: Shape, key: Shape, value: Shape) -> Work:
    """Fused attention; the last two dimensions are positions and width.

    >>> attention_work((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)).flops
    1216.0
    """
    scores = elements(query[:-1]) * key[-2]
    return Work("attention", scores * (2 * query[-1] + 2 * value[-1]) + 6 * scores)  # and a scaled softmax


def pool_work(output: Shape, kernel: Sequence[int]) -> Work:
    """Pooling: one flop per element of the window."""
    return Work("pool", elements(output) * math.prod(kernel))


def recurrent_work(gates: int, rows: float, input_size: int, hidden: int, directions: int = 1) -> Work:
    """A recurrent layer; ``rows`` is steps times batch. LSTM has 4 gates, GRU 3, a plain cell 1."""
    products = 2.0 * gates * hidden * (input_size + hidden)
    pointwise = 3.0 * gates * hidden
    return Work("recurrent", directions * rows * (products + pointwise))


def einsum_work(equation: str, inputs: Sequence[Shape], output: Shape) -> Work:
    """A sum of products over named indices.

    >>> einsum_work("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], (2, 3, 5)).flops
    240.0
    """
    sizes: dict[str, int] = {}
    terms = equation.replace(" ", "").split("->")[0].split(",")
    for term, shape in zip(terms, inputs, strict=False):
        if "." in term or len(term) != len(shape):
            return Work("matmul", 2 * elements(output))
        sizes.update(zip(term, shape, strict=True))
    return Work("matmul", 2.0 * math.prod(sizes.values()) * max(1, len(terms) - 1))


def control_work(bodies: Sequence[tuple[float, float]]) -> Work:
    """Control flow kept whole: (flops, runs) of every body; of alternatives the caller passes the dearest."""
    return Work("control", sum(flops * runs for flops, runs in bodies))


def bits_bytes(shape: Sequence[int], bits: int) -> float:
    """Bytes of a tensor whose elements have ``bits`` bits; small elements are packed.

    >>> bits_bytes((3,), 4)
    2.0
    """
    return float(math.ceil(math.prod(shape) * bits / 8))


def _conv_class(kernel: Shape, channels_per_group: int, groups: int) -> str:
    if groups > 1 and channels_per_group == 1:
        return "depthwise"
    return "conv1x1" if math.prod(kernel) == 1 else "conv"
