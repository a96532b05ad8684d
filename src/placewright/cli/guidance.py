"""What to do next, after a command: a line or two on stderr, ready to be copied."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import InputError
from placewright.extras import has_package
from placewright.text import shown

if TYPE_CHECKING:
    from placewright.cluster import DeviceKind
    from placewright.problems import Problem

_READERS = {
    ".onnx": ("openvino", "onnxruntime"),
    ".xml": ("openvino",),
    ".pt2": ("torch",),
    "zoo": ("openvino", "torch"),
}
_ALSO = {("zoo", "openvino"): "torch", (".onnx", "onnxruntime"): "onnx_ir"}  # what a runtime needs to open a model


def run_words(model: str, placement: str, problem: Problem) -> list[str] | None:
    """The words that run a placement for real; None where no installed runtime has the model and all its devices."""
    kind = "zoo" if model.startswith("zoo:") else Path(model).suffix.lower()
    if problem.graph.is_backward.any() or (kind == "zoo" and not _has_operators(model)):
        return None
    for number, runtime in enumerate(_READERS.get(kind, ())):
        needed = [runtime, _ALSO.get((kind, runtime), runtime)]
        if all(map(has_package, needed)) and all(_has_device(runtime, k) for k in problem.cluster.kinds):
            return ["run", model, placement, *(["--runtime", runtime] if number else [])]
    return None


def _has_operators(model: str) -> bool:
    from placewright.zoo import zoo_tape

    try:
        zoo_tape(model.removeprefix("zoo:"))
    except InputError:
        return False
    return True


def _has_device(runtime: str, kind: DeviceKind) -> bool:
    """Whether a device of a kind is on this machine, for a runtime."""
    name = kind.runtime_device or ("CPU" if kind.is_host else kind.name)
    if name.upper() == "CPU":
        return True
    if runtime == "torch":
        import torch

        return torch.cuda.is_available() and name.lower().startswith(("cuda", "gpu"))
    if runtime == "openvino":
        import openvino

        return name.upper().partition(".")[0] in {d.partition(".")[0] for d in openvino.Core().available_devices}
    return False


def next_steps(*steps: tuple[str, Sequence[str]]) -> None:
    """Print steps, each (what for, words after ``placewright``)."""
    for i, (why, words) in enumerate(steps):
        command = shown(" ".join(["placewright", *(shlex.quote(w) for w in words)]), 400)
        print(f"{'next:' if i == 0 else '     '} {command}   # {why}", file=sys.stderr)
