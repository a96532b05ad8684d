"""Formats by name. Modules are imported when asked for, so that listing names costs nothing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from placewright.errors import InputError, suggestion
from placewright.export.base import Exported
from placewright.files import write_whole_bytes
from placewright.placement import Placement
from placewright.text import shown


class Format(NamedTuple):
    """Where a format's function lives, and what it is for."""

    function: str
    summary: str


FORMATS = {
    "openvino-affinity": Format("openvino_affinity:affinity", "OpenVINO HETERO: affinity by friendly name, and code"),
    "onnx": Format("onnx_model:annotated", "the ONNX model with device configurations and node metadata"),
    "ort-settings": Format("ort_settings:settings", "ONNX Runtime: session settings and the annotated model"),
    "device-map": Format("device_map:device_map", "Hugging Face Accelerate: module name to device"),
    "split-spec": Format("split_spec:split_spec", "torch.distributed.pipelining: where the stages begin"),
    "trace": Format("trace:trace", "Perfetto or chrome://tracing: who computes and copies when"),
    "model-explorer": Format("model_explorer:model_explorer", "Model Explorer: graph, node data, copies as overlays"),
    "dot": Format("dot:dot", "Graphviz: ops, or segments where there are many, coloured by device"),
    "csv": Format("table:table", "one row per op, for spreadsheets and data frames"),
}


def export_placement(placement: Placement, to: str, output: str | Path) -> Exported:
    """Write a placement in another tool's format and return what was written and what was lost.

    >>> import tempfile
    >>> from placewright import load, place
    >>> placement = place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single")
    >>> exported = export_placement(placement, "csv", tempfile.mkdtemp() + "/ops.csv")
    >>> [path.name for path in exported.files], exported.losses
    (['ops.csv'], ())
    """
    if to not in FORMATS:
        raise InputError(f"unknown format '{shown(to)}'; {suggestion(to, FORMATS)}")
    module, _, function = FORMATS[to].function.partition(":")
    make = getattr(import_module(f"placewright.export.{module}"), function)
    exported: Exported = make(placement, Path(output))
    if placement.faults:
        broken = f"the placement is not valid: {placement.faults[0].message}"
        exported = exported._replace(losses=(broken, *exported.losses))
    for path, content in exported.files.items():
        write_whole_bytes(path, content)
    return exported
