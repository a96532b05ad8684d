"""An OpenVINO model cut into sub-models, one per segment of a placement.

Ops are named by their friendly names. Constants, and what is computed from constants alone, belong to every segment
that reads them, so they never cross.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from placewright.errors import InputError
from placewright.execute.openvino_layout import (
    ChannelsLast,
    Value,
    channels_last,
    joined,
    name_of,
    permuted_shape,
)
from placewright.execute.stages import Source, find_segments, in_planned_order
from placewright.text import shown


class Segment(NamedTuple):
    """Ops that run as one sub-model."""

    device: str
    model: Any  # openvino.Model
    op_names: tuple[str, ...]
    sources: tuple[Source, ...]  # one per input of the sub-model
    is_last: frozenset[Value] = frozenset()  # what crosses its borders channels last


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


def split_model(
    model: Any, placed: Mapping[str, str], segment_of: Mapping[str, int], is_last: Collection[Value] = ()
) -> SplitModel:
    """Cut a clone of the model along its segments; the model itself is left as it is.

    Values in ``is_last`` cross with their channels as the last dimension; results of the model are as they were.
    """
    cut = _Cut(model.clone(), segment_of, is_last)
    for op in cut.ops:
        cut.separate(op)
    results = tuple(cut.source_of(r.input_value(0)) for r in cut.results)
    return SplitModel(tuple(cut.segments(placed, model.get_friendly_name())), results)


class _Cut:
    """A model on its way to being several."""

    def __init__(self, model: Any, segment_of: Mapping[str, int], is_last: Collection[Value]) -> None:
        ordered = list(model.get_ordered_ops())
        self._segment_of = segment_of
        self._is_fixed = computed_from_constants(ordered)
        self.ops = [op for op in ordered if op.get_friendly_name() in segment_of]
        self.results = model.get_results()
        self._is_last = is_last
        n_segments = max(segment_of.values(), default=-1) + 1
        self._members: list[list[str]] = [[] for _ in range(n_segments)]
        self._parameters: list[list[Any]] = [[] for _ in range(n_segments)]
        self._sources: list[list[Source]] = [[] for _ in range(n_segments)]
        self._read_last: list[set[Value]] = [set() for _ in range(n_segments)]
        self._outputs: list[dict[tuple[Value, bool], Any]] = [{} for _ in range(n_segments)]
        self._model_inputs = {p.get_friendly_name(): i for i, p in enumerate(model.get_parameters())}
        self._stand_ins: dict[tuple[Value, int], Any] = {}
        self._joined: dict[Value, ChannelsLast] = {}  # what is made by joining tensors from elsewhere
        self._replaced: list[tuple[Any, Any]] = []  # when all are found: until then ops read what they read

    def separate(self, op: Any) -> None:
        """Let parameters stand for what an op reads from elsewhere."""
        here = self._segment_of[op.get_friendly_name()]
        self._members[here].append(op.get_friendly_name())
        read = {port.get_index(): self._read(port.get_source_output(), here) for port in op.inputs()}
        if (made := joined(op, read)) is not None:
            self._joined[name_of(op.output(0))] = made
            return
        has_company = any(self._lies_last_in(here, port.get_source_output()) for port in op.inputs())
        for port in op.inputs():
            value = read[port.get_index()]
            if isinstance(value, ChannelsLast):
                value = value.read_by(op, has_company)
            if value is not None:
                self._replaced.append((port, value))

    def source_of(self, value: Any, *, is_last: bool = False) -> Source:
        """Where a value comes from that the caller of the model gives, or that a segment makes."""
        name = value.get_node().get_friendly_name()
        if value.get_node().get_type_name() == "Parameter":
            return Source(-1, self._model_inputs[name])
        if name not in self._segment_of:
            raise InputError(
                f"a result of the model, '{shown(name)}', is computed from constants alone, so no device makes it; "
                "leave it out of the model's results to run it in parts"
            )
        outputs = self._outputs[self._segment_of[name]]
        outputs.setdefault((name_of(value), is_last), (len(outputs), value))
        return Source(self._segment_of[name], outputs[name_of(value), is_last][0])

    def segments(self, placed: Mapping[str, str], model_name: str) -> Iterator[Segment]:
        """The segments, once all ops have been separated."""
        import openvino as ov
        from openvino import opset13 as make

        for port, value in self._replaced:
            port.replace_source_output(value)
        for s, members in enumerate(self._members):
            results = [make.result(self._output(*key, value)) for key, (_, value) in self._outputs[s].items()]
            model = ov.Model(results, self._parameters[s], f"{model_name}.{s}")
            crossing = self._read_last[s] | {name for name, is_last in self._outputs[s] if is_last}
            yield Segment(placed[members[0]], model, tuple(members), tuple(self._sources[s]), frozenset(crossing))

    def _read(self, value: Any, here: int) -> Any:
        """What stands in a segment for a value that is not made there as it is, None for others."""
        producer = value.get_node()
        home = self._segment_of.get(producer.get_friendly_name())
        if home == here:
            return self._joined.get(name_of(value))
        if home is None and producer.get_type_name() != "Parameter":
            return None  # a constant may belong to several sub-models: compiling copies it
        key = (name_of(value), here)
        if key not in self._stand_ins:
            self._stand_ins[key] = self._stand_in(value, here)
        return self._stand_ins[key]

    def _stand_in(self, value: Any, here: int) -> Any:
        from openvino import opset13 as make

        is_last = name_of(value) in self._is_last
        shape = value.get_partial_shape()
        parameter = make.parameter(
            permuted_shape(shape) if is_last else shape,
            value.get_element_type(),
            name=f"{value.get_node().get_friendly_name()}.in",
        )
        self._read_last[here] |= {name_of(value)} if is_last else set()
        self._parameters[here].append(parameter)
        self._sources[here].append(self.source_of(value, is_last=is_last))
        return ChannelsLast(parameter.output(0)) if is_last else parameter.output(0)

    def _output(self, name: Value, is_last: bool, value: Any) -> Any:
        if name in self._joined:
            return self._joined[name].value if is_last else self._joined[name].usual
        return channels_last(value, self._is_fixed) if is_last else value

    def _lies_last_in(self, here: int, value: Any) -> bool:
        """Whether a segment makes the value itself, channels last."""
        return name_of(value) in self._is_last and self._segment_of.get(name_of(value)[0]) == here


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
