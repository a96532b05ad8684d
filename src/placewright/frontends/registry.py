"""Frontends by file suffix and by live object: the built-in ones, and third parties' by entry point."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.frontends.base import Frontend, Shapes, described
from placewright.frontends.training import STATE_PER_WEIGHT
from placewright.graph import OpGraph
from placewright.reading import reading
from placewright.text import shown

# Modules are imported when asked for; none of them imports its framework before it reads a model.
BUILT_IN = {
    "openvino": "placewright.frontends.openvino:OpenvinoFrontend",
    "onnx": "placewright.frontends.onnx:OnnxFrontend",
    "torch": "placewright.frontends.torch:TorchFrontend",
}
GROUP = "placewright.frontends"


@cache  # looking through all installed packages takes a while
def frontends() -> tuple[type[Frontend], ...]:
    """All frontends, built-in ones first."""
    classes: list[Any] = []
    for path in BUILT_IN.values():
        module, _, attribute = path.partition(":")
        classes.append(getattr(import_module(module), attribute))
    classes += [e.load() for e in sorted(entry_points(group=GROUP), key=lambda e: e.name) if e.name not in BUILT_IN]
    for loaded in classes:
        if not (isinstance(loaded, type) and issubclass(loaded, Frontend)):
            raise InputError(f"frontend '{shown(str(loaded))}' is not a placewright.frontends.base.Frontend class")
    return tuple(classes)


def model_suffixes() -> list[str]:
    """File name endings that some frontend reads."""
    return [suffix for frontend in frontends() for suffix in frontend.suffixes]


def find_frontend(source: Any) -> Frontend | None:
    """The frontend for a file name or a live model, ``None`` if there is none."""
    if isinstance(source, (str, Path)):
        suffix = Path(source).suffix.lower()
        found = next((f for f in frontends() if suffix in f.suffixes), None)
    else:
        found = next((f for f in frontends() if f.accepts(source)), None)
    return found() if found is not None else None


def read_model(source: Any, shapes: Shapes | None = None, *, optimizer: str | None = None) -> OpGraph:
    """Read a model file or a live model as a graph; nothing of the model is run.

    ``shapes`` fixes the shapes of inputs that the model leaves open. With an ``optimizer`` (sgd, momentum, adam) the
    graph is a training step: forward, backward and updates.
    """
    frontend = find_frontend(source)
    if frontend is None:
        raise InputError(f"{described(source)}: not a model; expected one of {', '.join(model_suffixes())}")
    frontend.check_installed()
    if optimizer is not None and optimizer not in STATE_PER_WEIGHT:
        known = ", ".join(STATE_PER_WEIGHT)
        raise InputError(f"optimizer '{shown(optimizer)}' is not known, expected one of {known}")
    is_file = isinstance(source, (str, Path))
    with reading(source, "a model") if is_file else nullcontext():  # what a live model does wrong is shown whole
        if is_file:
            source = Path(source)
        if optimizer is None:
            return frontend.read(source, shapes or {})
        return frontend.read_training(source, shapes or {}, optimizer)
