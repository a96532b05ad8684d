"""An OpenVINO model cut into sub-models, one per segment of a placement.

Ops are named by their friendly names. Constants, and what is computed from constants alone, belong to every segment
that reads them, so they never cross.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from placewright.errors import InputError
from placewright.execute.stages import Source, find_segments, in_planned_order
from placewright.text import shown


class Segment(NamedTuple):
    """Ops that run as one sub-model."""

    device: str
    model: Any  # openvino.Model
    op_names: tuple[str, ...]
    sources: tuple[Source, ...]  # one per input of the sub-model


class SplitModel(NamedTuple):
    """Segments in an order in which they can run, and where the model's results come out."""

    segments: tuple[Segment, ...]
    results: tuple[Source, ...]


def whole_placement(model: Any, device_of_name: Mapping[str, str]) -> dict[str, str]:
    """The device of every op of the model, given those of the ops that compute.

    What is not named follows its neighbours: constants and what is computed from constants alone go with their first
    reader, parameters too, results with their producer. Raises :class:`InputError` for an op that computes and is not
    placed, naming it.
    """
    ops = list(model.get_ordered_ops())
    is_fixed = computed_from_constants(ops)
    placed: dict[str, str] = {}
    for op in reversed(ops):  # readers first
        name, kind = op.get_friendly_name(), op.get_type_name()
        if kind == "Result":
            continue
        follows = name in is_fixed or kind == "Parameter"
        if not follows and name in device_of_name:
            placed[name] = device_of_name[name]
            continue
        reader = next((r for r in _readers(op) if r in placed), None) if follows or kind == "ReadValue" else None
        if reader is not None:
            placed[name] = placed[reader]
        elif name in device_of_name:
            placed[name] = device_of_name[name]
        elif follows:
            placed[name] = next(iter(placed.values()), next(iter(device_of_name.values()), ""))
        else:
            raise InputError(f"the placement has no device for operator '{shown(name)}' ({shown(kind)}) of the model")
    for op in ops:
        if op.get_type_name() == "Result":
            placed[op.get_friendly_name()] = placed[op.input_value(0).get_node().get_friendly_name()]
    return placed


def model_segments(
    model: Any, placed: Mapping[str, str], start_order: Mapping[str, float] | None = None
) -> dict[str, int]:
    """The segment of every op that computes; constants belong to whoever reads them.

    ``start_order`` gives ops' planned starts; every device works in that order.
    """
    ops = list(model.get_ordered_ops())
    is_fixed = computed_from_constants(ops)
    computing = {
        op.get_friendly_name(): op
        for op in ops
        if op.get_friendly_name() not in is_fixed and op.get_type_name() not in ("Parameter", "Result")
    }
    producers = {name: [v.get_node().get_friendly_name() for v in op.input_values()] for name, op in computing.items()}
    order = in_planned_order(producers, start_order)
    return find_segments(((name, producers[name], _readers(computing[name])) for name in order), placed)


def split_model(model: Any, placed: Mapping[str, str], segment_of: Mapping[str, int]) -> SplitModel:
    """Cut a clone of the model along its segments; the model itself is left as it is."""
    import openvino as ov
    from openvino import opset13 as make

    clone = model.clone()
    ops = list(clone.get_ordered_ops())
    n_segments = max(segment_of.values(), default=-1) + 1
    members: list[list[str]] = [[] for _ in range(n_segments)]
    parameters: list[list[Any]] = [[] for _ in range(n_segments)]
    sources: list[list[Source]] = [[] for _ in range(n_segments)]
    outputs: list[list[Any]] = [[] for _ in range(n_segments)]
    model_inputs = {p.get_friendly_name(): i for i, p in enumerate(clone.get_parameters())}
    output_number: dict[tuple[str, int], int] = {}
    stand_ins: dict[tuple[str, int, int], Any] = {}

    def source_of(value: Any) -> Source:
        node = value.get_node()
        name = node.get_friendly_name()
        if node.get_type_name() == "Parameter":
            return Source(-1, model_inputs[name])
        home, key = segment_of[name], (name, value.get_index())
        if key not in output_number:
            output_number[key] = len(outputs[home])
            outputs[home].append(value)
        return Source(home, output_number[key])

    # Parameters stand for what comes from elsewhere; inputs are replaced after all have been found.
    replaced: list[tuple[Any, Any]] = []
    for op in ops:
        name = op.get_friendly_name()
        if name not in segment_of:
            continue
        here = segment_of[name]
        members[here].append(name)
        for port in op.inputs():
            value = port.get_source_output()
            producer = value.get_node()
            origin = producer.get_friendly_name()
            if segment_of.get(origin) == here:
                continue
            if origin not in segment_of and producer.get_type_name() != "Parameter":
                continue  # a constant may belong to several sub-models: compiling copies it
            key = (origin, value.get_index(), here)
            if key not in stand_ins:
                stand_ins[key] = make.parameter(
                    value.get_partial_shape(), value.get_element_type(), name=f"{origin}.in"
                )
                parameters[here].append(stand_ins[key])
                sources[here].append(source_of(value))
            replaced.append((port, stand_ins[key].output(0)))
    results = tuple(source_of(r.input_value(0)) for r in clone.get_results())
    for port, value in replaced:
        port.replace_source_output(value)
    segments = tuple(
        Segment(
            device=placed[members[s][0]],
            model=ov.Model([make.result(v) for v in outputs[s]], parameters[s], f"{model.get_friendly_name()}.{s}"),
            op_names=tuple(members[s]),
            sources=tuple(sources[s]),
        )
        for s in range(n_segments)
    )
    return SplitModel(segments, results)


def computed_from_constants(ops: list[Any]) -> set[str]:
    """Names of constants and of ops that read nothing else."""
    fixed: set[str] = set()
    for op in ops:
        inputs = [v.get_node().get_friendly_name() for v in op.input_values()]
        is_constant = op.get_type_name() == "Constant"
        if is_constant or (inputs and all(i in fixed for i in inputs) and op.get_type_name() != "Result"):
            fixed.add(op.get_friendly_name())
    return fixed


def _readers(op: Any) -> list[str]:
    return [t.get_node().get_friendly_name() for o in op.outputs() for t in o.get_target_inputs()]
