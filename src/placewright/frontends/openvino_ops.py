"""OpenVINO's operation types: what sort of work each is and how much."""

from __future__ import annotations

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
        Abs Acos Acosh Add And Asin Asinh Atan Atanh Bitwise BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr
        BitwiseRightShift BitwiseXor Ceiling Clamp Cos Cosh Divide Elu Equal Erf Exp FakeConvert FakeQuantize Floor
        FloorMod Greater GreaterEqual HSigmoid HSwish HardSigmoid IsFinite IsInf IsNaN Less LessEqual Log LogicalAnd
        LogicalNot LogicalOr LogicalXor Maximum Minimum Mish Mod Multiply Negative NotEqual PRelu Power ReLU Relu
        Round Select Selu Sigmoid Sign Sin Sinh SoftPlus SoftSign Sqrt SquaredDifference Subtract Tan Tanh
        ThresholdedRelu Xor CumSum Bucketize OneHot""",
    "gelu": "Gelu",
    "silu": "Swish",
    "softmax": "Softmax SoftMax LogSoftmax",
    "batch_norm": "BatchNormInference",
    "norm": "MVN",
    "affine_norm": "GroupNormalization",
    "rms_norm": "NormalizeL2 LRN GRN RMS RMSNorm",
    "reduce": """
        ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum TopK
        NonZero Unique SearchSorted""",
    "global_pool": "AdaptiveAvgPool AdaptiveMaxPool",
    "embedding": """
        Gather GatherElements GatherND GatherTree EmbeddingBagOffsets EmbeddingBagOffsetsSum EmbeddingBagPacked
        EmbeddingBagPackedSum EmbeddingSegmentsSum ScatterElementsUpdate ScatterNDUpdate ScatterUpdate""",
    "move": """
        BatchToSpace Broadcast Col2Im Concat Convert ConvertLike ConvertPromoteTypes DepthToSpace Eye Interpolate
        Pad Range Reverse ReverseSequence Roll ShuffleChannels Slice SliceScatter SpaceToBatch SpaceToDepth Split
        StridedSlice Tile Transpose VariadicSplit GridSample Identity""",
    "free": "Parameter Result Reshape Squeeze Unsqueeze ReadValue Assign",
    "constant": "Constant Const",
    "shape": "ShapeOf",
}
KIND_OF_TYPE = {t: kind for kind, types in _KIND_TYPES.items() for t in types.split()}
SOURCES = {"RandomUniform", "Multinomial"}  # computed anew at every run
CONTROL = {"If", "Loop", "TensorIterator"}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "AUGRU": 3}


def openvino_work(type_name: str, attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    """Work of one operation, from its type, attributes and shapes; control flow is the caller's."""
    if type_name in _SPECIAL:
        return _SPECIAL[type_name](attributes, inputs, outputs)
    kind = "elementwise" if type_name in SOURCES else KIND_OF_TYPE.get(type_name)
    return kind_work(kind, inputs, outputs) if kind is not None else unknown_work(outputs)


def _matmul(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    left = inputs[0]
    transposed = bool(attributes.get("transpose_a")) and len(left) > 1
    return matmul_work(outputs[0], left[-2] if transposed else left[-1])


def _convolution(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    return conv_work(outputs[0], inputs[1][2:], inputs[1][1])


def _group_convolution(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    groups, _, channels, *kernel = inputs[1]
    return conv_work(outputs[0], tuple(kernel), channels, groups)


def _transposed(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    return transposed_conv_work(inputs[0], outputs[0], inputs[1][2:], inputs[1][1])


def _group_transposed(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    groups, _, channels, *kernel = inputs[1]
    return transposed_conv_work(inputs[0], outputs[0], tuple(kernel), channels, groups)


def _pool(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    return pool_work(outputs[0], attributes.get("kernel", ()))


def _attention(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    return attention_work(inputs[0], inputs[1], inputs[2])


def _einsum(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
    return einsum_work(str(attributes.get("equation", "")), inputs, outputs[0])


def _sequence(gates: int) -> Callable[[dict[str, Any], list[Shape], list[Shape]], Work]:
    def work(attributes: dict[str, Any], inputs: list[Shape], outputs: list[Shape]) -> Work:
        directions = 2 if str(attributes.get("direction", "")).lower() == "bidirectional" else 1
        rows = 1.0
        for d in inputs[0][:-1]:
            rows *= d
        return recurrent_work(gates, rows, inputs[0][-1], int(attributes["hidden_size"]), directions)

    return work


_SPECIAL: dict[str, Callable[[dict[str, Any], list[Shape], list[Shape]], Work]] = {
    "MatMul": _matmul,
    "Convolution": _convolution,
    "BinaryConvolution": _convolution,
    "DeformableConvolution": lambda a, i, o: conv_work(o[0], i[2][2:], i[2][1]),
    "GroupConvolution": _group_convolution,
    "ConvolutionBackpropData": _transposed,
    "GroupConvolutionBackpropData": _group_transposed,
    "AvgPool": _pool,
    "MaxPool": _pool,
    "ScaledDotProductAttention": _attention,
    "Einsum": _einsum,
    **{f"{cell}Cell": _sequence(gates) for cell, gates in _GATES.items()},
    **{f"{cell}Sequence": _sequence(gates) for cell, gates in _GATES.items()},
}
