"""What all exports share: the result type, segments, colours, and names that are safe to show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.evaluate.judging import find_segments
from placewright.placement import Placement
from placewright.text import shown

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")


class Exported(NamedTuple):
    """Contents by file, the one that was asked for first, and in sentences what the format cannot say."""

    files: Mapping[Path, bytes]
    losses: tuple[str, ...] = ()


def devices_of(placement: Placement) -> NDArray[np.int32]:
    """The device number of every op; an :class:`InputError` if there is no placement."""
    if placement.device_of_op is None:
        raise InputError("there is nothing to export: " + (placement.note or placement.status))
    return placement.device_of_op


def model_of(placement: Placement) -> str:
    """The model that the placement was made for, as it was named."""
    model = placement.problem.origin.get("model")
    if not isinstance(model, str):
        raise InputError("the placement does not say which model it is for; pass --model")
    return model


def segments_of(placement: Placement) -> NDArray[np.int32]:
    """[ops]: the segment that each op belongs to, in an order in which segments can run."""
    problem = placement.problem
    return find_segments(problem, devices_of(placement))[1]


def colour(device: int) -> str:
    """The colour of a device, the same in all formats."""
    return COLOURS[device % len(COLOURS)]


def whole(name: str) -> str:
    """A name as it is, but for lone surrogates, which no UTF-8 file can hold."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def json_bytes(document: Any) -> bytes:
    """A JSON file for people and programs."""
    return (json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode()


def beside(output: Path, ending: str) -> Path:
    """The path of a second file: the first one's name with another ending."""
    return output.with_name(output.stem + ending)


def refuse_overwriting(path: Path, model: str) -> None:
    """An :class:`InputError` if an export would replace the model that it was made from."""
    if path.resolve() == Path(model).resolve():
        raise InputError(f"{shown(str(path), 200)}: is the model itself; give the export another name")
