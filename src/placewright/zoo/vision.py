"""Image networks. Paths are those of torchvision where it has the model."""

from __future__ import annotations

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
