"""WaveNet: stacks of dilated causal convolutions with gates, residuals and skip connections."""

from __future__ import annotations

from placewright.errors import InputError
from placewright.zoo.builder import Builder
from placewright.zoo.tape import Tape, Value

_MAX_DILATION = 1 << 16


def wavenet(
    stacks: int = 2,
    layers: int = 18,
    batch: int = 4,
    samples: int = 4096,
    channels: int = 256,
    skip_channels: int = 256,
    levels: int = 256,
    dtype: str = "float32",
) -> Tape:
    """WaveNet of ``layers`` layers in all, in ``stacks`` within which the dilation doubles from 1."""
    name = f"wavenet-{stacks}x{layers}"
    if layers % stacks or (1 << min(40, layers // stacks - 1)) > _MAX_DILATION:
        raise InputError(
            f"zoo:{name}: 'layers' is {layers}, expected a multiple of 'stacks', {stacks}, up to 17 times it"
        )
    b = Builder(name, dtype)
    x = b.conv("causal", b.input("x", (batch, 1, samples)), channels, 1, bias=True)
    total: Value | None = None
    for stack in range(stacks):
        for layer in range(layers // stacks):
            with b.scope(f"stacks.{stack}.{layer}"):
                y = _gated(b, x, channels, 1 << layer)
                skip = b.conv("skip", y, skip_channels, 1, bias=True)
                total = skip if total is None else b.add("skip_add", total, skip)
                if (stack, layer) != (stacks - 1, layers // stacks - 1):
                    x = b.add("residual_add", x, b.conv("residual", y, channels, 1, bias=True))
    assert total is not None
    with b.scope("head"):
        y = b.conv("conv1", b.relu("relu1", total), skip_channels, 1, bias=True)
        y = b.conv("conv2", b.relu("relu2", y), levels, 1, bias=True)
        return b.finish(b.log_softmax("log_softmax", y, axis=1))


def _gated(b: Builder, x: Value, channels: int, dilation: int) -> Value:
    past = b.pad("pad", x, dilation, 0)
    signal = b.tanh("tanh", b.conv("filter", past, channels, 2, dilation=dilation, bias=True))
    return b.mul("mul", signal, b.sigmoid("sigmoid", b.conv("gate", past, channels, 2, dilation=dilation, bias=True)))
