"""Models that can be run: their graph, and how to put them on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placewright.cluster import DeviceKind
from placewright.costs.measure.runner import Runner
from placewright.errors import InputError
from placewright.execute.refusals import Refusals
from placewright.extras import require
from placewright.graph import OpGraph
from placewright.text import shown

RUNTIMES = ("openvino", "torch")
_ZOO = "zoo:"


@dataclass(frozen=True)
class Source:
    """A model that a runtime can run: its graph, and what puts it on a kind of device."""

    graph: OpGraph
    runtime: str
    make_runner: Callable[[DeviceKind], Runner]


def open_source(model: str, runtime: str | None, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Source:
    """Open a model for measuring. Without a ``runtime``: torch for ``zoo:`` and ``.pt2``, OpenVINO for other files."""
    suffix = Path(model).suffix.lower()
    chosen = runtime or ("torch" if model.startswith(_ZOO) or suffix == ".pt2" else "openvino")
    if chosen not in RUNTIMES:
        raise InputError(f"unknown runtime '{shown(chosen)}', expected {' or '.join(RUNTIMES)}")
    require(chosen)
    with Refusals(chosen, model).told("measure"):
        source = _source(model, chosen, suffix, shapes or {})
    return _with_children(source, model, shapes or {})


def _source(model: str, chosen: str, suffix: str, shapes: Mapping[str, tuple[int, ...]]) -> Source:
    if model.startswith(_ZOO):
        return _zoo_source(model.removeprefix(_ZOO), chosen)
    if suffix == ".pt2" and chosen == "torch":
        return _exported_source(model, shapes)
    if suffix in (".xml", ".onnx") and chosen == "openvino":
        return _openvino_source(model, shapes)
    raise InputError(
        f"{shown(model, 200)}: cannot be run by {chosen}: expected zoo:NAME, a .pt2 file for torch, "
        "or an .xml or .onnx file for openvino"
    )


def _with_children(source: Source, model: str, shapes: Mapping[str, tuple[int, ...]]) -> Source:
    """Kinds with an instruction set of their own are measured in a process of their own."""

    def make(kind: DeviceKind) -> Runner:
        if not kind.instruction_set:
            return source.make_runner(kind)
        from placewright.costs.measure.remote_runner import RemoteRunner

        return RemoteRunner(model, source.runtime, shapes, kind)

    return replace(source, make_runner=make)


def _zoo_source(reference: str, runtime: str) -> Source:
    from placewright.frontends.openvino_conversion import zoo_openvino
    from placewright.zoo import zoo_graph

    graph = zoo_graph(reference)
    if runtime == "torch":
        return zoo_torch_source(reference)
    if graph.is_backward.any():
        raise InputError(f"zoo:{shown(reference)}: OpenVINO does not train: measure it with --runtime torch")
    model, inputs = zoo_openvino(reference)
    return Source(graph, runtime, _openvino_maker(model, inputs, graph))


def zoo_torch_source(reference: str) -> Source:
    """Open a zoo model, inference or training step, for measuring in torch; needs no other package."""
    from placewright.costs.measure.torch_runner import ModuleRunner
    from placewright.costs.measure.training_runner import TrainingRunner, tape_inputs
    from placewright.zoo import zoo_graph, zoo_module, zoo_tape

    graph = zoo_graph(reference)
    module, inputs = zoo_module(reference)
    if not graph.is_backward.any():
        return Source(graph, "torch", lambda kind: ModuleRunner(module, inputs, graph, kind))
    inputs_of = tape_inputs(zoo_tape(reference))
    return Source(graph, "torch", lambda kind: TrainingRunner(module, inputs, graph, kind, inputs_of))


def _exported_source(path: str, shapes: Mapping[str, tuple[int, ...]]) -> Source:
    from placewright.costs.measure.torch_runner import ExportedRunner
    from placewright.frontends.registry import read_model
    from placewright.frontends.torch_archive import load_program

    graph = read_model(path, shapes)
    program = load_program(Path(path), shown(path, 200), shapes)
    return Source(graph, "torch", lambda kind: ExportedRunner(program, graph, kind))


def _openvino_source(path: str, shapes: Mapping[str, tuple[int, ...]]) -> Source:
    import openvino as ov

    from placewright.execute.openvino_values import check_types
    from placewright.frontends.registry import read_model

    graph = read_model(path, shapes)
    model = ov.Core().read_model(path)
    if shapes:
        model.reshape(dict(shapes))
    check_types(model, shown(path, 200), are_compared=False)
    return Source(graph, "openvino", _openvino_maker(model, None, graph))


def _openvino_maker(model: Any, inputs: Any, graph: OpGraph) -> Callable[[DeviceKind], Runner]:
    def make(kind: DeviceKind) -> Runner:
        from placewright.costs.measure.openvino_runner import OpenvinoRunner

        return OpenvinoRunner(model, inputs, graph, kind)

    return make
