"""What an ONNX file may ask of those who read it: no files outside of its folder, and no code.

The libraries that read and run ONNX follow paths in the file themselves, each with its own checks, so it is checked
before any of them sees it.
"""

from __future__ import annotations

import ntpath
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.text import shown

# Operators that are made of code or of another library's binary, by domain ("" stands for any).
_CODE = {
    ("com.microsoft", "EPContext"): "a compiled part for a device",
    ("com.microsoft", "PythonOp"): "a call of Python code",
    ("com.microsoft", "PythonOpGrad"): "a call of Python code",
    ("com.microsoft", "ATen"): "a call by name",
    ("pyopmulti", "PyOp"): "a call of Python code",
}


def check_safe(model: Any, path: Path, where: str) -> None:
    """Refuse a model that names files outside of its own folder, or holds code; nothing is opened."""
    for graph in [*model.graphs(), *model.functions.values()]:
        for node in graph:
            what = _CODE.get((node.domain, node.op_type))
            if what is not None:
                raise InputError(
                    f"{where}: node '{shown(node.name or '')}' is {what} ({node.op_type}), which is not run"
                )
    for tensor in _tensors(model):
        location = getattr(tensor, "location", None)
        if location is not None:
            check_location(str(location), path.parent, f"{where}: weight '{shown(tensor.name or '')}'")


def check_location(location: str, folder: Path, what: str) -> None:
    """Refuse a path that does not lead to a place below ``folder``; links count for where they lead."""
    parts = location.replace("\\", "/").split("/")
    is_plain = location and location.isprintable() and not os.path.isabs(location) and not ntpath.isabs(location)
    if not is_plain or ".." in parts or ntpath.splitdrive(location)[0]:
        raise InputError(f"{what} lies in '{shown(location)}', outside of the model's folder, and is not read")
    real_folder, real = os.path.realpath(folder), os.path.realpath(folder / location)
    if os.path.commonpath([real_folder, real]) != real_folder:
        raise InputError(
            f"{what} lies in '{shown(location)}', a link that leads out of the model's folder, and is not read; put "
            "the file itself there"
        )
    if os.path.exists(real) and not os.path.isfile(real):
        raise InputError(f"{what} lies in '{shown(location)}', which is no regular file")


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors of a model: weights, and those that nodes hold."""
    for graph in model.graphs():
        for value in getattr(graph, "initializers", {}).values():
            if value.const_value is not None:
                yield value.const_value
    for graph in [*model.graphs(), *model.functions.values()]:
        for node in graph:
            for attribute in node.attributes.values():
                held = getattr(attribute, "value", None)
                yield from held if isinstance(held, (list, tuple)) else [held]
