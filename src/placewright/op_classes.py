"""Sorts of work that operators do, whatever a framework calls them: what cost models tell apart.

A frontend gives every op one of these names; ``""`` means that it does not know the op's type.
"""

from __future__ import annotations

OP_CLASSES: dict[str, str] = {
    "conv": "convolution with a kernel larger than 1",
    "conv1x1": "convolution with a kernel of 1",
    "depthwise": "convolution with one input channel per group",
    "matmul": "matrix product, with weights or between activations",
    "attention": "fused scaled dot-product attention",
    "recurrent": "a whole recurrent layer or cell",
    "elementwise": "arithmetic and activations, one value at a time",
    "norm": "batch, layer, group or root-mean-square normalisation",
    "softmax": "softmax and its logarithm",
    "reduce": "sums, means and other reductions, argmax and top-k",
    "pool": "pooling",
    "embedding": "table lookup, gather, scatter",
    "move": "data moved or re-laid: concatenate, split, transpose, pad, cast, resize",
    "free": "no work at run time: constants, parameters, results, reshapes, views",
    "control": "control flow kept whole",
}
