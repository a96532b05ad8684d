"""ONNX's operator types, and the contributed ones of onnxruntime: what sort of work each is and how much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from placewright.frontends.flops import (
    Shape,
    Work,
    attention_work,
    conv_work,
    einsum_work,
    kind_work,
    matmul_work,
    pool_work,
    recurrent_work,
    transposed_conv_work,
    unknown_work,
)

_KIND_TYPES = {
    "elementwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
        Ceil Celu Clip Cos Cosh CumSum DequantizeLinear Div Dropout DynamicQuantizeLinear Elu Equal Erf Exp Floor
        Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish
        Mod Mul Neg Not Or PRelu Pow QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus
        Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where Xor OneHot RotaryEmbedding""",
    "gelu": "Gelu FastGelu BiasGelu QuickGelu",
    "silu": "Swish",
    "softmax": "Softmax LogSoftmax Hardmax",
    "batch_norm": "BatchNormalization",
    "norm": "MeanVarianceNormalization",
    "affine_norm": """
        InstanceNormalization GroupNormalization LayerNormalization SkipLayerNormalization EmbedLayerNormalization""",
    "rms_norm": """
        LRN LpNormalization RMSNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization""",
    "reduce": """
        ArgMax ArgMin NonZero ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
        ReduceProd ReduceSum ReduceSumSquare TopK Unique""",
    "global_pool": "GlobalAveragePool GlobalLpPool GlobalMaxPool",
    "embedding": "Gather GatherElements GatherND Scatter ScatterElements ScatterND TensorScatter",
    "move": """
        Cast CastLike CenterCropPad Col2Im Compress Concat DepthToSpace Expand EyeLike GridSample Identity Pad Range
        Resize ReverseSequence Slice SpaceToDepth Split Tile Transpose Trilu Upsample""",
    "free": "Flatten Reshape Squeeze Unsqueeze Input",
    "constant": "Constant",
    "shape": "Shape Size",
}
KIND_OF_TYPE = {t: kind for kind, types in _KIND_TYPES.items() for t in types.split()}
SOURCES = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial"}
CONTROL = {"If", "Loop", "Scan"}
DOMAINS = {"", "ai.onnx", "com.microsoft"}  # the types above mean what they say in these


def onnx_work(
    domain: str, op_type: str, attributes: dict[str, Any], inputs: list[Shape | None], outputs: list[Shape]
) -> Work:
    """Work of one node; inputs that the node leaves out are ``None``. Control flow is the caller's."""
    if domain not in DOMAINS:
        return unknown_work(outputs)
    if op_type in _SPECIAL:
        return _SPECIAL[op_type](attributes, [i if i is not None else () for i in inputs], outputs)
    kind = "elementwise" if op_type in SOURCES else KIND_OF_TYPE.get(op_type)
    given = [i for i in inputs if i is not None]
    return kind_work(kind, given, outputs) if kind is not None else unknown_work(outputs)


def _matmul(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    left = inputs[0]
    return matmul_work(outputs[0], left[-2] if attributes.get("transA") and len(left) > 1 else left[-1])


def _gemm(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    inner = inputs[0][0] if attributes.get("transA") else inputs[0][1]
    return matmul_work(outputs[0], inner, bias=len(inputs) > 2 and inputs[2] != ())


def _conv(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape], weight: int = 1) -> Work:
    kernel = inputs[weight][2:]
    groups = int(attributes.get("group", 1))
    bias = len(inputs) > weight + 1 and inputs[weight + 1] != ()
    return conv_work(outputs[0], kernel, inputs[weight][1], groups, bias=bias)


def _conv_transpose(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    kernel, groups = inputs[1][2:], int(attributes.get("group", 1))
    bias = len(inputs) > 2 and inputs[2] != ()
    return transposed_conv_work(inputs[0], outputs[0], kernel, inputs[1][1], groups, bias=bias)


def _pool(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    return pool_work(outputs[0], attributes["kernel_shape"])


def _attention(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    """The standard operator: (batch, heads, positions, width), or heads folded into the width."""
    query, key, value = (_with_heads(i, attributes) for i in inputs[:3])
    return attention_work(query, key, value)


def _with_heads(shape: Shape, attributes: dict[str, Any]) -> Shape:
    if len(shape) == 4:
        return shape
    heads = int(attributes.get("q_num_heads") or attributes.get("num_heads") or 1)
    batch, positions, width = shape
    return (batch, heads, positions, width // heads)


def _self_attention(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    """onnxruntime's fused operator that also projects its input to query, key and value."""
    batch, positions, width = inputs[0]
    projected = inputs[1][1] // 3
    heads = (batch, 1, positions, projected)
    projection = matmul_work((batch, positions, 3 * projected), width, bias=True)
    return Work("attention", projection.flops + attention_work(heads, heads, heads).flops)


def _onnx_attention(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    fused = len(inputs) > 1 and len(inputs[0]) == 3 and len(inputs[1]) == 2
    return (_self_attention if fused else _attention)(attributes, inputs, outputs)


def _recurrent(gates: int) -> Callable[[dict[str, Any], list[Shape], list[Shape]], Work]:
    def work(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
        directions = inputs[1][0]
        hidden = int(attributes.get("hidden_size") or inputs[1][1] // gates)
        return recurrent_work(gates, math.prod(inputs[0][:2]), inputs[0][2], hidden, directions)

    return work


_SPECIAL: dict[str, Callable[[dict[str, Any], list[Shape], list[Shape]], Work]] = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "MatMulNBits": lambda a, i, o: matmul_work(o[0], int(a["K"])),
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "Conv": _conv,
    "FusedConv": _conv,
    "ConvInteger": lambda a, i, o: _conv(a, i[:2], o),
    "QLinearConv": lambda a, i, o: _conv(a, i[:4], o, weight=3),
    "DeformConv": lambda a, i, o: _conv(a, i[:2], o),
    "ConvTranspose": _conv_transpose,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LpPool": _pool,
    "Attention": _onnx_attention,
    "MultiHeadAttention": _attention,
    "GroupQueryAttention": _attention,
    "Einsum": lambda a, i, o: einsum_work(str(a["equation"]), i, o[0]),
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
}
