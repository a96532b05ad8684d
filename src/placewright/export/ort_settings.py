"""ONNX Runtime: session settings that send every annotated node to its provider, and the annotated model."""

from __future__ import annotations

from pathlib import Path

from placewright.execute.live import ort_setups
from placewright.export.base import Exported, beside, devices_of, json_bytes, whole
from placewright.export.onnx_model import annotated_bytes, annotation
from placewright.placement import Placement
from placewright.text import shown_list

SETTING = "session.layer_assignment_settings"
_DESIGNATORS = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda", "DmlExecutionProvider": "dml"}


def settings(placement: Placement, output: Path) -> Exported:
    """A JSON file: ``model`` (written beside it), ``providers``, and ``session_config`` for ``SessionOptions``."""
    cluster = placement.problem.cluster
    used = sorted(set(devices_of(placement).tolist()))
    setups = ort_setups(cluster)
    provider = {d: setups[cluster.device_names[d]].provider for d in used}
    rules: dict[str, list[str]] = {}
    for d in used:
        rules.setdefault(_DESIGNATORS.get(provider[d], "accelerator"), []).append(f"={annotation(placement, d)}")
    model = beside(output, ".onnx")
    # The processor last: a provider claims nodes before those that come after it.
    providers = sorted(dict.fromkeys(provider.values()), key=lambda p: p == "CPUExecutionProvider")
    document = {
        "model": whole(model.name),
        "providers": [*providers, *([] if "CPUExecutionProvider" in providers else ["CPUExecutionProvider"])],
        "session_config": {
            SETTING: "; ".join(f"{designator}({', '.join(names)})" for designator, names in rules.items()),
            "session.record_ep_graph_assignment_info": "1",
        },
    }
    shared = [names for names in rules.values() if len(names) > 1]
    losses = [
        f"ONNX Runtime has one device for {shown_list([n[1:] for n in names])}: a session holds a provider once"
        for names in shared
    ]
    return Exported({output: json_bytes(document), model: annotated_bytes(placement, model)}, tuple(losses))
