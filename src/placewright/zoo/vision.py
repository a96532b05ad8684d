"""Image networks. Paths are those of torchvision where it has the model."""

from __future__ import annotations

import math

from placewright.errors import InputError
from placewright.zoo.builder import Builder
from placewright.zoo.tape import Tape, Value


def resnet50(batch: int = 1, image: int = 224, classes: int = 1000, dtype: str = "float32") -> Tape:
    """ResNet-50 (version 1.5: the stride is on the 3x3 convolution)."""
    b = Builder("resnet-50", dtype)
    x = b.conv("conv1", b.input("x", (batch, 3, image, image)), 64, 7, stride=2, padding=3)
    x = b.relu("relu", b.batch_norm("bn1", x))
    x = b.max_pool("maxpool", x, 3, 2, 1)
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], start=1):
        for block in range(blocks):
            with b.scope(f"layer{stage}.{block}"):
                x = _bottleneck(b, x, width, stride=2 if stage > 1 and block == 0 else 1)
    return b.finish(_classifier(b, x, "avgpool", "fc", classes))


def _bottleneck(b: Builder, x: Value, width: int, stride: int) -> Value:
    y = b.relu("relu1", b.batch_norm("bn1", b.conv("conv1", x, width, 1)))
    y = b.relu("relu2", b.batch_norm("bn2", b.conv("conv2", y, width, 3, stride=stride, padding=1)))
    y = b.batch_norm("bn3", b.conv("conv3", y, 4 * width, 1))
    if x.shape != y.shape:
        x = b.batch_norm("downsample.1", b.conv("downsample.0", x, 4 * width, 1, stride=stride))
    return b.relu("relu", b.add("add", y, x))


def _classifier(b: Builder, x: Value, pool: str, linear: str, classes: int) -> Value:
    x = b.global_pool(pool, x)
    return b.linear(linear, b.reshape("flatten", x, x.shape[0], x.shape[1]), classes)


def vgg16(batch: int = 1, image: int = 224, classes: int = 1000, dtype: str = "float32") -> Tape:
    """VGG-16 without batch normalisation; the first linear layer fits the image (7x7 places at 224)."""
    b = Builder("vgg-16", dtype)
    x = b.input("x", (batch, 3, image, image))
    with b.scope("features"):
        place = 0
        for width, convolutions in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
            for _ in range(convolutions):
                x = b.relu(f"{place + 1}", b.conv(f"{place}", x, width, 3, padding=1, bias=True))
                place += 2
            x = b.max_pool(f"{place}", x, 2, 2)
            place += 1
    x = b.reshape("flatten", x, batch, math.prod(x.shape[1:]))
    with b.scope("classifier"):
        x = b.relu("1", b.linear("0", x, 4096))
        x = b.relu("4", b.linear("3", x, 4096))
        return b.finish(b.linear("6", x, classes))


def mobilenet(batch: int = 1, image: int = 224, classes: int = 1000, dtype: str = "float32") -> Tape:
    """MobileNet-V2 of width 1: inverted residual blocks with depthwise convolutions."""
    b = Builder("mobilenet", dtype)
    x = b.input("x", (batch, 3, image, image))
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    with b.scope("features"):
        x = _conv_relu6(b, "0", x, 32, 3, stride=2)
        place = 1
        for expansion, width, repeats, first_stride in plan:
            for repeat in range(repeats):
                with b.scope(place):
                    x = _inverted_residual(b, x, expansion, width, first_stride if repeat == 0 else 1)
                place += 1
        x = _conv_relu6(b, f"{place}", x, 1280, 1)
    return b.finish(_classifier(b, x, "avgpool", "classifier.1", classes))


def _conv_relu6(b: Builder, name: str, x: Value, width: int, kernel: int, stride: int = 1, groups: int = 1) -> Value:
    with b.scope(name):
        x = b.conv("0", x, width, kernel, stride=stride, padding=kernel // 2, groups=groups)
        return b.activation("2", b.batch_norm("1", x), "ReLU6")


def _inverted_residual(b: Builder, x: Value, expansion: int, width: int, stride: int) -> Value:
    wide, y, place = expansion * x.shape[1], x, 0
    with b.scope("conv"):
        if expansion > 1:
            y = _conv_relu6(b, "0", y, wide, 1)
            place = 1
        y = _conv_relu6(b, f"{place}", y, wide, 3, stride=stride, groups=wide)
        y = b.batch_norm(f"{place + 2}", b.conv(f"{place + 1}", y, width, 1))
    return b.add("add", x, y) if x.shape == y.shape else y


def unet(batch: int = 1, image: int = 256, classes: int = 2, width: int = 64, dtype: str = "float32") -> Tape:
    """U-Net with batch normalisation, four levels down and up; the image's side is a multiple of 16."""
    if image % 16:
        raise InputError(f"zoo:unet: option 'image' is {image}, expected a multiple of 16")
    b = Builder("unet", dtype)
    x = _double_conv(b, "inc", b.input("x", (batch, 3, image, image)), width)
    skipped = []
    for level in range(1, 5):
        skipped.append(x)
        with b.scope(f"down{level}.maxpool_conv"):
            x = _double_conv(b, "1", b.max_pool("0", x, 2, 2), width << level)
    for level, skip in enumerate(reversed(skipped), start=1):
        with b.scope(f"up{level}"):
            up = b.conv_transpose("up", x, x.shape[1] // 2, 2)
            x = _double_conv(b, "conv", b.concat("concat", [skip, up]), skip.shape[1])
    return b.finish(b.conv("outc.conv", x, classes, 1, bias=True))


def _double_conv(b: Builder, name: str, x: Value, width: int) -> Value:
    with b.scope(f"{name}.double_conv"):
        x = b.relu("2", b.batch_norm("1", b.conv("0", x, width, 3, padding=1)))
        return b.relu("5", b.batch_norm("4", b.conv("3", x, width, 3, padding=1)))
