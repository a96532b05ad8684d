"""Tensors that cross between OpenVINO sub-models channels last, where that is how the plugin computes anyway.

On processors with wide vectors the CPU plugin lets images lie channels last from one convolution to the next.
Parameters and results of a model lie channels first, so every cut costs a change of layout on both sides, more than the
copy. A tensor that crosses therefore has its dimensions permuted. A transposition behind the parameter, or before the
result, says so; the plugin drops it where the op beside it wants just that. Ops that take any layout (pooling, joining)
would take the parameter's; an identity convolution before them keeps the plugin to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

Value = tuple[str, int]  # an output of an op: the op's name and its number

_CONVOLVING = frozenset({"Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData"})
_JOINING = "Concat"
_ELEMENTWISE = frozenset(
    {
        *("Abs", "Add", "Clamp", "Divide", "Elu", "Gelu", "HSigmoid", "HSwish", "Maximum", "Minimum", "Mish"),
        *("Multiply", "PRelu", "Relu", "Sigmoid", "SoftPlus", "Subtract", "Swish", "Tanh"),
    }
)
_KEEPING = _ELEMENTWISE | {_JOINING, "AvgPool", "MaxPool"}  # their result lies as what they read
_RANKS = range(3, 6)  # with one, two or three dimensions of space
_PROBE_CHANNELS, _PROBE_SIZE = 64, 16
_TRANSPOSED = ".channels_last."  # between a value's name and number, in the name of the transposition before a result


def computes_channels_last(compile_model: Callable[[Any], Any]) -> bool:
    """Whether a device lets results of convolutions lie channels last, and drops the transpositions that say so here.

    It is asked to compile a few.
    """
    import openvino as ov
    from openvino import opset13 as make

    image = make.parameter([1, _PROBE_SIZE, _PROBE_SIZE, _PROBE_CHANNELS], np.float32, name="image")
    weight = make.constant(np.ones((_PROBE_CHANNELS, _PROBE_CHANNELS, 3, 3), dtype=np.float32))

    def convolution(x: Any) -> Any:
        return make.convolution(x, weight, [1, 1], [1, 1], [1, 1], [1, 1])

    first = make.relu(convolution(ChannelsLast(image.output(0)).usual))
    second = make.add(convolution(first), first)
    results = [make.result(channels_last(op.output(0), ())) for op in (first, second)]
    nodes = list(compile_model(ov.Model(results, [image], "probe")).get_runtime_model().get_ordered_ops())
    layouts = {_information(node, "outputLayouts") for node in nodes if _kind(node) == "Convolution"}
    return layouts == {"acdb"} and not any(_kind(node) == "Transpose" for node in nodes)


def kept_transpositions(compiled: Any) -> set[Value]:
    """Results that a compiled sub-model really transposes to let them lie channels last: a slow detour."""
    found = set()
    for node in compiled.get_runtime_model().get_ordered_ops():
        if _kind(node) == "Transpose":
            for name in _information(node, "originalLayersNames").split(","):
                value, _, number = name.rpartition(_TRANSPOSED)
                found |= {(value, int(number))} if value and number.isdecimal() else set()
    return found


def _kind(node: Any) -> str:
    return _information(node, "layerType")


def _information(node: Any, key: str) -> str:
    information = node.get_rt_info()
    return str(information[key].astype(str)) if key in information else ""


def values_channels_last(ops: Sequence[Any]) -> set[Value]:
    """The values that lie channels last in an uncut model: results of convolutions, and what keeps their layout."""
    import openvino as ov

    found: set[Value] = set()
    for op in ops:
        kind = op.get_type_name()
        if kind not in _CONVOLVING and kind not in _KEEPING:
            continue
        value = op.output(0)
        shape, rank = value.get_partial_shape(), value.get_partial_shape().rank
        if rank.is_dynamic or rank.get_length() not in _RANKS or shape[1].is_dynamic:
            continue
        if value.get_element_type() != ov.Type.f32:
            continue
        keeps = kind in _KEEPING and any(name_of(v) in found for v in op.input_values())
        if kind == _JOINING and not _joins_channels(op):
            continue
        if kind in _CONVOLVING or keeps:
            found.add(name_of(value))
    return found


class ChannelsLast:
    """A value inside a sub-model whose last dimension is the channels, as ops of the model can read it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._usual: Any = None
        self._held: Any = None

    @property
    def usual(self) -> Any:
        """The same value in the model's own order of dimensions."""
        from openvino import opset13 as make

        if self._usual is None:
            rank = self.value.get_partial_shape().rank.get_length()
            self._usual = make.transpose(self.value, np.array([0, rank - 1, *range(1, rank - 1)])).output(0)
        return self._usual

    @property
    def held(self) -> Any:
        """As ``usual``, for readers that would otherwise make the plugin lay it channels first."""
        if self._held is None:
            self._held = _held(self.usual)
        return self._held

    def read_by(self, op: Any, has_company: bool) -> Any:
        """What ``op`` should read; it ``has_company`` if another input lies channels last by itself."""
        kind = op.get_type_name()
        # Fused into the convolution that makes the other input, an elementwise op follows its layout.
        follows = has_company and kind != _JOINING
        return self.held if kind in _KEEPING and not follows else self.usual


def permuted_shape(shape: Any) -> Any:
    """A partial shape with the channels last."""
    import openvino as ov

    dimensions = list(shape)
    return ov.PartialShape([dimensions[0], *dimensions[2:], dimensions[1]])


def channels_last(value: Any, is_fixed: Collection[str]) -> Any:
    """The value with its channels as the last dimension; ``is_fixed`` names what is computed from constants alone."""
    from openvino import opset13 as make

    rank = value.get_partial_shape().rank.get_length()
    name, number = name_of(value)
    # Behind a sum that is fused into a convolution the plugin would really transpose.
    given = _held(value) if _is_sum(value.get_node(), is_fixed) else value
    order = np.array([0, *range(2, rank), 1])
    return make.transpose(given, order, name=f"{name}{_TRANSPOSED}{number}").output(0)


def _held(value: Any) -> Any:
    """The same value by a convolution with ones, channel by channel, which keeps the plugin to its layout."""
    from openvino import opset13 as make

    shape = value.get_partial_shape()
    n_space = shape.rank.get_length() - 2
    ones = np.ones((shape[1].get_length(), 1, 1, *[1] * n_space), dtype=np.float32)
    steps, pads = [1] * n_space, [0] * n_space
    return make.group_convolution(value, make.constant(ones), steps, pads, pads, steps).output(0)


def _is_sum(op: Any, is_fixed: Collection[str]) -> bool:
    """Whether an op adds two values that are computed, or is an elementwise op behind such a one."""
    while op.get_type_name() in _ELEMENTWISE:
        inputs = [v.get_node() for v in op.input_values()]
        computed = [node for node in inputs if node.get_friendly_name() not in is_fixed]
        if len(computed) > 1:
            return bool(op.get_type_name() == "Add")
        if not computed:
            return False
        op = computed[0]
    return False


def joined(op: Any, read: Mapping[int, Any]) -> ChannelsLast | None:
    """What ``op`` makes, if all it does is to join what it ``read``, by number of the input, along the channels."""
    from openvino import opset13 as make

    parts = [read[number] for number in sorted(read)]
    if op.get_type_name() != _JOINING or not all(isinstance(p, ChannelsLast) for p in parts) or not _joins_channels(op):
        return None
    values = [p.value for p in parts]
    return ChannelsLast(make.concat(values, values[0].get_partial_shape().rank.get_length() - 1).output(0))


def _joins_channels(op: Any) -> bool:
    rank = op.output(0).get_partial_shape().rank.get_length()
    return bool(op.get_attributes()["axis"] % rank == 1)


def name_of(value: Any) -> Value:
    """The name of an op's output."""
    return value.get_node().get_friendly_name(), value.get_index()
