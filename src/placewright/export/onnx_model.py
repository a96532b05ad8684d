"""The ONNX model itself, with the plan in it: device configurations (IR version 11) and node metadata."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from placewright.errors import InputError, MissingExtraError
from placewright.execute.live import devices_by_name
from placewright.execute.onnxruntime import node_names, whole_placement
from placewright.export.base import Exported, devices_of, model_of, refuse_overwriting, whole
from placewright.frontends.onnx import inlined
from placewright.frontends.onnx_safety import check_safe
from placewright.placement import Placement
from placewright.reading import reading
from placewright.text import shown

CONFIGURATION = "placewright"
LAYER = "layer_ann"  # what ONNX Runtime's layer assignment reads
_IR_VERSION = 11  # the first with device configurations


def annotated(placement: Placement, output: Path) -> Exported:
    """Every node says its device, as a device configuration and in its metadata; weights stay where they are."""
    return Exported({output: annotated_bytes(placement, output)})


def annotated_bytes(placement: Placement, output: Path) -> bytes:
    """The annotated model as it is written to ``output``."""
    devices_of(placement)
    name = model_of(placement)
    if not name.endswith(".onnx"):
        raise InputError(f"{shown(name, 200)}: only a model read from an .onnx file can be written as one")
    refuse_overwriting(output, name)
    try:
        import onnx_ir
    except ImportError as error:
        raise MissingExtraError("onnx_ir", "onnx") from error
    with reading(name, "a model"):
        model = inlined(onnx_ir.load(name))
    _check_weights(onnx_ir, model, Path(name), output)
    _annotate(onnx_ir, model, placement)
    return bytes(onnx_ir.to_proto(model).SerializeToString())


def annotation(placement: Placement, device: int) -> str:
    """What nodes on a device carry as their layer: its name, or a number if that has characters of the grammar."""
    name = placement.problem.cluster.device_names[device]
    return name if re.fullmatch(r"[\w.-]+", name) else f"device{device}"


def _check_weights(onnx_ir: Any, model: Any, source: Path, output: Path) -> None:
    check_safe(model, source, shown(str(source), 200))
    outside = [v for v in model.graph.initializers.values() if isinstance(v.const_value, onnx_ir.ExternalTensor)]
    if outside and output.parent.resolve() != source.parent.resolve():
        where = shown(str(source.parent), 200)
        raise InputError(
            f"{shown(str(output), 200)}: the weights of {shown(source.name)} lie in files beside it; write into "
            f"the same folder ({where}), for ONNX looks for them nowhere else"
        )


def _annotate(onnx_ir: Any, model: Any, placement: Placement) -> None:
    from onnx_ir import NodeDeviceConfiguration, ShardingSpec

    problem, device = placement.problem, devices_of(placement)
    cluster_names = [whole(name) for name in problem.cluster.device_names]
    number = {name: d for d, name in enumerate(problem.cluster.device_names)}
    names = node_names(model.graph)
    placed = whole_placement(model.graph, names, devices_by_name(problem.graph, device.tolist(), problem.cluster))
    stages = {} if placement.stage is None else dict(zip(problem.graph.op_names, placement.stage.tolist(), strict=True))
    model.ir_version = max(_IR_VERSION, model.ir_version or 0)
    for old in [c for c in model.device_configurations if c.name == CONFIGURATION]:
        model.remove_device_configuration(old)
    configuration = model.add_device_configuration(CONFIGURATION, device_names=cluster_names)
    for node in model.graph:
        name = names[id(node)]
        node.name = name
        d = number[placed[name]]
        stage = stages.get(name)
        results = tuple(ShardingSpec(value=v, device=(d,)) for v in node.outputs if v.name)
        node.device_configurations = (
            *node.device_configurations,
            NodeDeviceConfiguration(configuration, results, stage),
        )
        node.metadata_props["placewright.device"] = cluster_names[d]
        node.metadata_props[LAYER] = annotation(placement, d)
        if stage is not None:
            node.metadata_props["placewright.stage"] = str(stage)
