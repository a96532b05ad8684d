"""OpenVINO IR files (``.xml`` with ``.bin``) and live ``openvino.Model`` objects."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.frontends.assemble import BodyWork, OpRecord, Role, TensorInfo, assemble, body_work, unique_names
from placewright.frontends.base import (
    Frontend,
    Shapes,
    check_file,
    check_shape_names,
    described,
    dynamic_shape_error,
    model_name,
    one_line,
)
from placewright.frontends.flops import Shape, Work, bits_bytes
from placewright.frontends.module_paths import path_of_name
from placewright.frontends.openvino_ops import CONTROL, KIND_OF_TYPE, SOURCES, openvino_work
from placewright.graph import OpGraph
from placewright.text import shown

_WITH_WEIGHTS = {"conv", "conv1x1", "depthwise", "matmul"}


class OpenvinoFrontend(Frontend):
    """One op per IR layer, named by its friendly name. Weights are mapped into memory, not read."""

    name = "openvino"
    suffixes = (".xml",)
    requires = ("openvino",)
    extra = "openvino"

    @classmethod
    def accepts(cls, source: Any) -> bool:
        openvino = sys.modules.get("openvino")
        return openvino is not None and isinstance(source, openvino.Model)

    def read(self, source: Any, shapes: Shapes) -> OpGraph:
        where = described(source)
        model = _read_file(source, where) if isinstance(source, Path) else source
        if shapes:
            model = _reshaped(model.clone() if model is source else model, shapes, where)
        for parameter in model.get_parameters():
            _check_static(parameter, where)
        reader = _Reader(where)
        records = reader.records(model)
        metadata = {"unknown_shapes": reader.unknown_shapes, "unknown_iterations": reader.unknown_iterations}
        return assemble(model_name(source, model.get_friendly_name()), records, self.name, where, metadata)


def _read_file(path: Path, where: str) -> Any:
    import openvino

    check_file(path)
    text = path.read_bytes()
    # Other readers of the library would try their luck on a file that is not an IR, and print about it.
    if b"<net" not in text[:4096]:
        raise InputError(f"{where}: not an OpenVINO IR: expected an XML file with a <net> element")
    weights = path.with_suffix(".bin")
    if not weights.is_file() and b'type="Const"' in text:
        raise InputError(f"{where}: its weights are missing: expected the file {shown(str(weights), 200)}")
    try:
        return openvino.Core().read_model(path)
    except Exception as error:
        raise InputError(f"{where}: OpenVINO cannot read this model: {one_line(error)}") from error


def _reshaped(model: Any, shapes: Shapes, where: str) -> Any:
    by_name: dict[str, Any] = {}
    for parameter in model.get_parameters():
        names = {parameter.get_friendly_name(), *parameter.output(0).get_names()}
        by_name.update((name, parameter.output(0)) for name in names)
    check_shape_names(shapes, list(by_name), where)
    try:
        model.reshape({by_name[name]: list(shape) for name, shape in shapes.items()})
    except Exception as error:
        raise InputError(f"{where}: the model does not take these shapes: {one_line(error)}") from error
    return model


def _check_static(parameter: Any, where: str) -> None:
    shape = parameter.get_output_partial_shape(0)
    if shape.is_static:
        return
    name = parameter.get_friendly_name()
    if shape.rank.is_dynamic:
        raise InputError(
            f"{where}: input '{shown(name)}' has no fixed number of dimensions; pass its shape, for example "
            f"--shape '{shown(name)}=1,3,224,224'"
        )
    raise dynamic_shape_error(where, name, [d.get_length() if d.is_static else None for d in shape])


class _Reader:
    """Turns the operations of a model, and of bodies inside, into records."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.unknown_shapes = 0
        self.unknown_iterations = 0

    def records(self, model: Any) -> list[OpRecord]:
        ops = model.get_ordered_ops()
        number = {op.get_name(): i for i, op in enumerate(ops)}  # unique, unlike friendly names
        names = unique_names([op.get_friendly_name() for op in ops], [op.get_name() for op in ops])
        records = []
        for name, op in zip(names, ops, strict=True):
            record = self.record(name, op)
            sources = [i.get_source_output() for i in op.inputs()]
            record.inputs = [(number[s.get_node().get_name()], s.get_index()) for s in sources]
            records.append(record)
        _inherit_paths(records)
        return records

    def record(self, name: str, op: Any) -> OpRecord:
        type_name = op.get_type_name()
        outputs = [self.tensor(name, i, output) for i, output in enumerate(op.outputs())]
        record = OpRecord(name, type_name, "free", outputs=outputs, module_path=path_of_name(name))
        kind = KIND_OF_TYPE.get(type_name, "")
        if kind == "constant":
            record.role = "constant"
            record.weight_bytes = outputs[0].size_bytes
            record.trained_bytes = 0.0 if outputs[0].is_integer else record.weight_bytes
            return record
        record.role = _role(type_name, kind)
        attributes = op.get_attributes()
        if "variable_id" in attributes:
            record.together, record.role = (f"variable {attributes['variable_id']}",), "source"
        if type_name in CONTROL:
            body = self.control(type_name, op)
            record.op_class, record.flops = "control", body.flops
            record.weight_bytes, record.unknown_inside = body.weight_bytes, body.unknown
            return record
        shapes = [self.shape(i.get_partial_shape()) for i in op.inputs()]
        record.op_class, record.flops = self.work(record, attributes, shapes)
        return record

    def work(self, record: OpRecord, attributes: dict[str, Any], inputs: list[Shape]) -> Work:
        try:
            return openvino_work(record.type, attributes, inputs, [o.shape for o in record.outputs])
        except (IndexError, KeyError, ValueError, TypeError) as error:
            raise InputError(
                f"{self.where}: op '{shown(record.name)}' of type {shown(record.type)} has inputs that do not fit it"
            ) from error

    def control(self, type_name: str, op: Any) -> BodyWork:
        if type_name == "If":
            branches = [body_work(self.records(op.get_function(i)), self.where) for i in (0, 1)]
            dearest = max(b.flops for b in branches)
            return BodyWork(dearest, sum(b.weight_bytes for b in branches), branches[0].unknown + branches[1].unknown)
        body = body_work(self.records(op.get_function()), self.where)
        runs = op.get_num_iterations()
        if runs < 0:
            self.unknown_iterations += 1
        return body._replace(flops=body.flops * max(runs, 1), unknown=Counter(body.unknown))

    def tensor(self, op_name: str, index: int, output: Any) -> TensorInfo:
        shape = self.shape(output.get_partial_shape(), count=True)
        element = output.get_element_type()
        names = sorted(output.get_names())
        return TensorInfo(
            names[0] if names else f"{op_name}:{index}",
            shape,
            bits_bytes(shape, element.bitwidth),
            not element.is_real(),
        )

    def shape(self, partial: Any, count: bool = False) -> Shape:
        """The shape; where only the data decide, the largest known size, else 1 (and the tensor is counted)."""
        if partial.is_static:
            return tuple(partial.to_shape())
        sizes = [] if partial.rank.is_dynamic else [int(d.get_max_length()) for d in partial]
        if count and (not sizes or min(sizes) < 0):
            self.unknown_shapes += 1
        return tuple(s if s >= 0 else 1 for s in sizes)


def _inherit_paths(records: list[OpRecord]) -> None:
    """Folding a normalisation into a convolution costs it its name: it takes the path of the op that alone reads it."""
    readers: dict[int, set[int]] = {}
    for v, record in enumerate(records):
        for u, _ in record.inputs:
            readers.setdefault(u, set()).add(v)
    for u, record in enumerate(records):
        if not record.module_path and record.op_class in _WITH_WEIGHTS and len(readers.get(u, ())) == 1:
            record.module_path = records[next(iter(readers[u]))].module_path


def _role(type_name: str, kind: str) -> Role:
    if type_name == "Parameter":
        return "input"
    if type_name == "Result":
        return "result"
    if kind == "shape":
        return "shape"
    return "source" if type_name in SOURCES else "compute"
