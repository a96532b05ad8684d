"""Inception-V3 without the auxiliary classifier, with torchvision's paths."""

from __future__ import annotations

from placewright.zoo.builder import Builder, Pair
from placewright.zoo.tape import Tape, Value

_INPUT_SCALING = [
    (0.229 / 0.5, (0.485 - 0.5) / 0.5),
    (0.224 / 0.5, (0.456 - 0.5) / 0.5),
    (0.225 / 0.5, (0.406 - 0.5) / 0.5),
]


def inception_v3(
    batch: int = 1, image: int = 299, classes: int = 1000, transform_input: bool = False, dtype: str = "float32"
) -> Tape:
    """Inception-V3; ``transform_input=1`` rescales the colours first, as published weights want it."""
    b = Builder("inception-v3", dtype)
    x = b.input("x", (batch, 3, image, image))
    if transform_input:
        x = _rescaled(b, x)
    x = _conv(b, "Conv2d_1a_3x3", x, 32, 3, stride=2)
    x = _conv(b, "Conv2d_2a_3x3", x, 32, 3)
    x = _conv(b, "Conv2d_2b_3x3", x, 64, 3, padding=1)
    x = b.max_pool("maxpool1", x, 3, 2)
    x = _conv(b, "Conv2d_3b_1x1", x, 80, 1)
    x = _conv(b, "Conv2d_4a_3x3", x, 192, 3)
    x = b.max_pool("maxpool2", x, 3, 2)
    for name, pool_width in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        with b.scope(name):
            x = _mixed_5(b, x, pool_width)
    with b.scope("Mixed_6a"):
        x = _mixed_6a(b, x)
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        with b.scope(name):
            x = _mixed_6(b, x, width)
    with b.scope("Mixed_7a"):
        x = _mixed_7a(b, x)
    for name in ("Mixed_7b", "Mixed_7c"):
        with b.scope(name):
            x = _mixed_7(b, x)
    x = b.global_pool("avgpool", x)
    return b.finish(b.linear("fc", b.reshape("flatten", x, batch, x.shape[1]), classes))


def _rescaled(b: Builder, x: Value) -> Value:
    n, _, h, w = x.shape
    channels = []
    with b.scope("transform_input"):
        for channel, (factor, offset) in enumerate(_INPUT_SCALING):
            with b.scope(channel):
                y = b.reshape("unsqueeze", b.select("select", x, channel, axis=1), n, 1, h, w)
                channels.append(b.scale("shift", b.scale("scale", y, factor), offset=offset))
        return b.concat("concat", channels)


def _conv(b: Builder, name: str, x: Value, width: int, kernel: Pair, stride: int = 1, padding: Pair = 0) -> Value:
    with b.scope(name):
        x = b.batch_norm("bn", b.conv("conv", x, width, kernel, stride=stride, padding=padding), eps=0.001)
        return b.relu("relu", x)


def _wide(b: Builder, name: str, x: Value, width: int, length: int) -> Value:
    return _conv(b, name, x, width, (1, length), padding=(0, length // 2))


def _high(b: Builder, name: str, x: Value, width: int, length: int) -> Value:
    return _conv(b, name, x, width, (length, 1), padding=(length // 2, 0))


def _pooled(b: Builder, x: Value, width: int) -> Value:
    return _conv(b, "branch_pool", b.avg_pool("avg_pool", x, 3, 1, 1), width, 1)


def _mixed_5(b: Builder, x: Value, pool_width: int) -> Value:
    one = _conv(b, "branch1x1", x, 64, 1)
    five = _conv(b, "branch5x5_2", _conv(b, "branch5x5_1", x, 48, 1), 64, 5, padding=2)
    three = _conv(b, "branch3x3dbl_2", _conv(b, "branch3x3dbl_1", x, 64, 1), 96, 3, padding=1)
    three = _conv(b, "branch3x3dbl_3", three, 96, 3, padding=1)
    return b.concat("concat", [one, five, three, _pooled(b, x, pool_width)])


def _mixed_6a(b: Builder, x: Value) -> Value:
    three = _conv(b, "branch3x3", x, 384, 3, stride=2)
    double = _conv(b, "branch3x3dbl_2", _conv(b, "branch3x3dbl_1", x, 64, 1), 96, 3, padding=1)
    double = _conv(b, "branch3x3dbl_3", double, 96, 3, stride=2)
    return b.concat("concat", [three, double, b.max_pool("max_pool", x, 3, 2)])


def _mixed_6(b: Builder, x: Value, width: int) -> Value:
    one = _conv(b, "branch1x1", x, 192, 1)
    seven = _wide(b, "branch7x7_2", _conv(b, "branch7x7_1", x, width, 1), width, 7)
    seven = _high(b, "branch7x7_3", seven, 192, 7)
    double = _high(b, "branch7x7dbl_2", _conv(b, "branch7x7dbl_1", x, width, 1), width, 7)
    double = _high(b, "branch7x7dbl_4", _wide(b, "branch7x7dbl_3", double, width, 7), width, 7)
    double = _wide(b, "branch7x7dbl_5", double, 192, 7)
    return b.concat("concat", [one, seven, double, _pooled(b, x, 192)])


def _mixed_7a(b: Builder, x: Value) -> Value:
    three = _conv(b, "branch3x3_2", _conv(b, "branch3x3_1", x, 192, 1), 320, 3, stride=2)
    seven = _wide(b, "branch7x7x3_2", _conv(b, "branch7x7x3_1", x, 192, 1), 192, 7)
    seven = _conv(b, "branch7x7x3_4", _high(b, "branch7x7x3_3", seven, 192, 7), 192, 3, stride=2)
    return b.concat("concat", [three, seven, b.max_pool("max_pool", x, 3, 2)])


def _mixed_7(b: Builder, x: Value) -> Value:
    one = _conv(b, "branch1x1", x, 320, 1)
    three = _conv(b, "branch3x3_1", x, 384, 1)
    three = b.concat("concat3x3", [_wide(b, "branch3x3_2a", three, 384, 3), _high(b, "branch3x3_2b", three, 384, 3)])
    double = _conv(b, "branch3x3dbl_2", _conv(b, "branch3x3dbl_1", x, 448, 1), 384, 3, padding=1)
    halves = [_wide(b, "branch3x3dbl_3a", double, 384, 3), _high(b, "branch3x3dbl_3b", double, 384, 3)]
    return b.concat("concat", [one, three, b.concat("concat3x3dbl", halves), _pooled(b, x, 192)])
