"""PyTorch modules as OpenVINO models, without the reports that OpenVINO's converter sends home."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from placewright.forked import Exclusive

_REPORTING = ("openvino.tools.ovc.convert_impl", "openvino.tools.ovc.telemetry_utils")
_REPORTER = "tm"  # what they call it
_converting = Exclusive()  # what is not sent holds for the whole process, as long as one converts
_SILENT = "openvino.tools.ovc.telemetry_stub"  # what the converter itself uses where nothing can be sent


def convert_silently(module: Any, **options: Any) -> Any:
    """As ``openvino.convert_model``, but nothing is sent.

    Users of ours did not agree to that. Besides, each report forks this process with all its threads, of which such a
    child may wait for one for ever, and without a network every report takes its time.
    """
    import openvino

    with _converting, _nothing_is_sent():
        return openvino.convert_model(module, **options)


def zoo_openvino(reference: str) -> tuple[Any, list[Any]]:
    """A zoo model as OpenVINO's, of fixed shapes, and inputs for it as arrays."""
    from placewright.zoo import zoo_module

    module, examples = zoo_module(reference)
    model = convert_silently(module, example_input=examples)
    model.reshape({port: tuple(x.shape) for port, x in zip(model.inputs, examples, strict=True)})
    return model, [x.numpy() for x in examples]


@contextlib.contextmanager
def _nothing_is_sent() -> Iterator[None]:
    before: list[tuple[Any, Any]] = []
    with contextlib.suppress(ImportError):  # another version may have no such parts
        silent = importlib.import_module(_SILENT)
        for part in map(importlib.import_module, _REPORTING):
            if hasattr(part, _REPORTER):
                before.append((part, getattr(part, _REPORTER)))
                setattr(part, _REPORTER, silent)
    try:
        yield
    finally:
        for part, reporting in before:
            setattr(part, _REPORTER, reporting)
