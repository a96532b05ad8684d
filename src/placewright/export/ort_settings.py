"""ONNX Runtime: session settings that send every annotated node to its provider, and the annotated model."""

from __future__ import annotations

from pathlib import Path

from placewright.cluster import DeviceKind
from placewright.export.base import Exported, beside, devices_of, json_bytes, whole
from placewright.export.onnx_model import annotated_bytes, annotation
from placewright.placement import Placement
from placewright.text import shown_list

SETTING = "session.layer_assignment_settings"
_CPU = "CPUExecutionProvider"


def settings(placement: Placement, output: Path) -> Exported:
    """A JSON file: ``model`` (written beside it), ``providers``, and ``session_config`` for ``SessionOptions``."""
    cluster = placement.problem.cluster
    used = sorted(set(devices_of(placement).tolist()))
    target = {d: _target(cluster.kind_of(cluster.devices[d])) for d in used}
    rules: dict[str, list[str]] = {}
    devices: dict[str, list[str]] = {}
    for d in used:
        designator, provider = target[d]
        rules.setdefault(designator, []).append(f"={annotation(placement, d)}")
        devices.setdefault(provider, []).append(cluster.device_names[d])
    model = beside(output, ".onnx")
    # The processor last: a provider claims nodes before those that come after it.
    providers = [p for p in devices if p != _CPU] + [_CPU]
    document = {
        "model": whole(model.name),
        "providers": providers,
        "session_config": {
            SETTING: "; ".join(f"{designator}({', '.join(names)})" for designator, names in rules.items()),
            "session.record_ep_graph_assignment_info": "1",
        },
    }
    losses = [
        f"a session holds a provider once: {shown_list(names)} are one device to {provider}"
        for provider, names in devices.items()
        if len(names) > 1
    ]
    return Exported({output: json_bytes(document), model: annotated_bytes(placement, model)}, tuple(losses))


def _target(kind: DeviceKind) -> tuple[str, str]:
    """ONNX Runtime's word for such a device, and the provider that runs it."""
    given = kind.runtime_device.partition(":")[0].partition(".")[0]
    if given.endswith("ExecutionProvider"):
        return "accelerator", given
    if given.upper() == "CPU" or (kind.is_host and not given):
        return "cpu", _CPU
    if given.upper() in ("GPU", "NPU"):  # OpenVINO's words
        return given.lower(), "OpenVINOExecutionProvider"
    return "cuda", "CUDAExecutionProvider"
