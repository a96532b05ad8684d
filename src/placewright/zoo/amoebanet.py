"""A network of evolved cells in the manner of AmoebaNet-A: each cell reads the two before it."""

from __future__ import annotations

from placewright.errors import InputError
from placewright.zoo.builder import Builder
from placewright.zoo.tape import Tape, Value

# A cell: five sums of two transformed states each. States 0 and 1 are its inputs, the newer one first; sums follow.
_Plan = tuple[tuple[tuple[int, str], tuple[int, str]], ...]
_NORMAL: _Plan = (
    ((1, "avg_3x3"), (1, "max_3x3")),
    ((1, "identity"), (0, "sep_3x3")),
    ((0, "sep_5x5"), (2, "sep_3x3")),
    ((3, "sep_3x3"), (1, "avg_3x3")),
    ((0, "sep_3x3"), (4, "identity")),
)
_REDUCTION: _Plan = (
    ((1, "avg_3x3"), (0, "sep_3x3")),
    ((1, "max_3x3"), (0, "sep_7x7")),
    ((0, "sep_7x7"), (1, "avg_3x3")),
    ((1, "max_3x3"), (0, "max_3x3")),
    ((2, "sep_3x3"), (1, "sep_3x3")),
)


def amoebanet(
    batch: int = 16,
    image: int = 224,
    cells: int = 18,
    width: int = 190,
    classes: int = 1000,
    dtype: str = "float32",
) -> Tape:
    """AmoebaNet-like image network: ``cells`` normal cells in three groups with two reductions between."""
    if cells % 3:
        raise InputError(f"zoo:amoebanet: option 'cells' is {cells}, expected a multiple of 3")
    b = Builder("amoebanet", dtype)
    x = b.conv("stem.conv", b.input("x", (batch, 3, image, image)), max(4, width // 6), 3, stride=2, padding=1)
    older = newer = b.batch_norm("stem.bn", x)
    for name, divisor in (("stem.cell0", 4), ("stem.cell1", 2)):
        with b.scope(name):
            older, newer = newer, _cell(b, newer, older, max(1, width // divisor), reduction=True)
    for group in range(3):
        for cell in range(cells // 3):
            with b.scope(f"groups.{group}.{cell}"):
                older, newer = newer, _cell(b, newer, older, width << group, reduction=False)
        if group < 2:
            with b.scope(f"groups.{group}.reduction"):
                older, newer = newer, _cell(b, newer, older, width << (group + 1), reduction=True)
    x = b.global_pool("avgpool", b.relu("relu", newer))
    return b.finish(b.linear("fc", b.reshape("flatten", x, batch, x.shape[1]), classes))


def _cell(b: Builder, newer: Value, older: Value, width: int, reduction: bool) -> Value:
    states = [_fitted(b, "newer", newer, width, newer.shape[-1]), _fitted(b, "older", older, width, newer.shape[-1])]
    used = set()
    for index, pair in enumerate(_REDUCTION if reduction else _NORMAL):
        with b.scope(index):
            sides = []
            for side, (state, transform) in zip("ab", pair, strict=True):
                used.add(state)
                with b.scope(side):
                    sides.append(_transformed(b, states[state], transform, 2 if reduction and state < 2 else 1))
            states.append(b.add("add", *sides))
    return b.concat("concat", [s for index, s in enumerate(states) if index >= 2 and index not in used])


def _fitted(b: Builder, name: str, x: Value, width: int, side: int) -> Value:
    """A state with the cell's width, and the place count of its newer input."""
    with b.scope(name):
        stride = 1 if x.shape[-1] == side else 2
        return b.batch_norm("bn", b.conv("conv", b.relu("relu", x), width, 1, stride=stride))


def _transformed(b: Builder, x: Value, transform: str, stride: int) -> Value:
    if transform == "identity":
        return x
    kind, kernel = transform.split("_")[0], int(transform[-1])
    if kind == "avg":
        return b.avg_pool("pool", x, kernel, stride, kernel // 2)
    if kind == "max":
        return b.max_pool("pool", x, kernel, stride, kernel // 2)
    width = x.shape[1]
    for half in range(2):
        with b.scope(half):
            y = b.conv("depthwise", b.relu("relu", x), width, kernel, stride, kernel // 2, groups=width)
            x = b.batch_norm("bn", b.conv("pointwise", y, width, 1))
            stride = 1
    return x
