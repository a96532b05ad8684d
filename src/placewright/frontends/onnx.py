"""ONNX files and live ``onnx_ir.Model`` objects. Weights kept in other files are never opened."""

from __future__ import annotations

import ast
import math
import sys
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
from placewright.frontends.flops import Shape, bits_bytes
from placewright.frontends.module_paths import join_scopes, path_of_name
from placewright.frontends.onnx_ops import CONTROL, DOMAINS, KIND_OF_TYPE, SOURCES, onnx_work
from placewright.frontends.onnx_shapes import Inference, infer_shapes, known_shape
from placewright.graph import OpGraph
from placewright.text import shown

MOST_NODES = 1_000_000
_SCOPES = "pkg.torch.onnx.name_scopes"


class OnnxFrontend(Frontend):
    """One op per node and one per input. A node without a name of its own is called after its first output."""

    name = "onnx"
    suffixes = (".onnx",)
    requires = ("onnx_ir",)
    extra = "onnx"

    @classmethod
    def accepts(cls, source: Any) -> bool:
        onnx_ir = sys.modules.get("onnx_ir")
        return onnx_ir is not None and isinstance(source, onnx_ir.Model)

    def read(self, source: Any, shapes: Shapes) -> OpGraph:
        where = described(source)
        if isinstance(source, Path):
            check_file(source)
        with Inference(where) as inference:
            model = _read_file(source, where) if isinstance(source, Path) else source.clone()
            _fix_inputs(model.graph, shapes, where)
            try:
                model = inlined(model)
                guessed = infer_shapes(model, bool(shapes), inference)
            except InputError:
                raise
            except Exception as error:
                raise InputError(f"{where}: shapes cannot be inferred: {one_line(error)}") from error
        reader = _Reader(where)
        records = reader.records(model.graph)
        metadata = {
            "unknown_shapes": reader.unknown_shapes,
            "unknown_iterations": reader.unknown_iterations,
            "guessed_shapes": guessed,
            "opset": dict(model.opset_imports),
        }
        return assemble(model_name(source, model.graph.name or "model"), records, self.name, where, metadata)


def _read_file(path: Path, where: str) -> Any:
    import onnx_ir

    try:
        model = onnx_ir.load(path)
    except Exception as error:
        raise InputError(f"{where}: not a readable ONNX model: {one_line(error)}") from error
    from placewright.frontends.onnx_safety import check_safe

    check_safe(model, path, where)
    if not list(model.graph):
        raise InputError(f"{where}: not a readable ONNX model: its graph has no nodes")
    return model


def _inputs(graph: Any) -> list[Any]:
    """The inputs proper: old files list the weights among them."""
    return [value for value in graph.inputs if value.name not in graph.initializers]


def _fix_inputs(graph: Any, shapes: Shapes, where: str) -> None:
    import onnx_ir

    check_shape_names(shapes, [value.name for value in _inputs(graph)], where)
    for value in _inputs(graph):
        if _type_name(value) == "UNDEFINED":
            raise InputError(f"{where}: input '{shown(value.name)}' has no element type; export the model with one")
        known = None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
        if value.name in shapes:
            wanted = shapes[value.name]
            fits = known is None or (
                len(known) == len(wanted) and all(k in (None, w) for k, w in zip(known, wanted, strict=True))
            )
            if not fits:
                given = ",".join(map(str, wanted))
                has = ",".join("?" if k is None else str(k) for k in known or [])
                raise InputError(f"{where}: --shape gives input '{shown(value.name)}' {given}, but the model has {has}")
            value.shape = onnx_ir.Shape(list(wanted))
        elif known is None:
            raise InputError(
                f"{where}: input '{shown(value.name)}' has no fixed number of dimensions; pass its shape, for example "
                f"--shape '{shown(value.name)}=1,3,224,224'"
            )
        elif None in known:
            raise dynamic_shape_error(where, value.name, known)


def inlined(model: Any) -> Any:
    """Replace calls of the model's own functions by their nodes, for only nodes can be placed."""
    if not model.functions:
        return model
    from onnx_ir.passes.common import InlinePass

    n_nodes = _inlined_size(model.graph, dict(model.functions), {})
    if n_nodes > MOST_NODES:
        raise InputError(f"its functions stand for {n_nodes:.3g} nodes, expected at most {MOST_NODES}")
    return InlinePass()(model).model


def _inlined_size(nodes: Any, functions: dict[Any, Any], known: dict[Any, float]) -> float:
    """Nodes of a graph or function once calls of functions are replaced: functions may double each other's."""
    total = 0.0
    for node in nodes:
        total += 1 + sum(_inlined_size(body, functions, known) for a in node.attributes.values() for body in _bodies(a))
        called = node.op_identifier()
        if called in functions:
            if called not in known:
                known[called] = math.inf  # until it is known: a function that calls itself has no end
                known[called] = _inlined_size(functions[called], functions, known)
            total += known[called]
    return total


class _Reader:
    """Turns the nodes of a graph, and of bodies inside, into records."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.unknown_shapes = 0
        self.unknown_iterations = 0
        self.charged: set[int] = set()  # initializers whose bytes some node already bears

    def records(self, graph: Any) -> list[OpRecord]:
        inputs, nodes = _inputs(graph), list(graph)
        results = {id(value) for value in graph.outputs}
        names = unique_names(
            [value.name for value in inputs] + [node.name or "" for node in nodes],
            [value.name for value in inputs] + [_first_output(node) for node in nodes],
        )
        records: list[OpRecord] = []
        place: dict[int, tuple[int, int]] = {}
        for name, value in zip(names, inputs, strict=False):
            place[id(value)] = (len(records), 0)
            info = self.tensor(value)._replace(is_result=id(value) in results)
            records.append(OpRecord(name, "Input", "free", outputs=[info], role="input"))
        for i, node in enumerate(nodes, start=len(inputs)):
            place.update((id(value), (i, o)) for o, value in enumerate(node.outputs))
        for name, node in zip(names[len(inputs) :], nodes, strict=True):
            record = self.record(name, node)
            record.outputs = [self.tensor(v)._replace(is_result=id(v) in results) for v in node.outputs]
            read = [v for v in node.inputs if v is not None] + _captured(node)
            record.inputs = [place[id(v)] for v in read if id(v) in place]
            if record.role == "compute" and all(v.is_initializer() for v in read):
                record.role = "constant"
            for value in read:
                size = self.weight_bytes(value)
                record.weight_bytes += size
                record.trained_bytes += 0.0 if _is_integer(value) else size
            records.append(record)
        return records

    def record(self, name: str, node: Any) -> OpRecord:
        domain, op_type = node.domain, node.op_type
        full = op_type if domain in ("", "ai.onnx") else f"{domain}.{op_type}"
        record = OpRecord(name, full, "", module_path=_module_path(name, node), role=_role(domain, op_type))
        attributes = {a.name: a.value for a in node.attributes.values()}
        if domain in DOMAINS and op_type in CONTROL:
            body = self.control(op_type, node, attributes)
            record.op_class, record.flops = "control", body.flops
            record.weight_bytes, record.unknown_inside = body.weight_bytes, body.unknown
            return record
        if domain in DOMAINS and op_type in ("Constant", "ConstantOfShape"):
            made = self.tensor(node.outputs[0])
            record.op_class, record.weight_bytes = "free", made.size_bytes
            record.trained_bytes = 0.0 if made.is_integer else made.size_bytes
            return record
        inputs = [None if v is None else self.shape(v) for v in node.inputs]
        outputs = [self.shape(v) for v in node.outputs]
        try:
            record.op_class, record.flops = onnx_work(domain, op_type, attributes, inputs, outputs)
        except (IndexError, KeyError, ValueError, TypeError) as error:
            raise InputError(
                f"{self.where}: node '{shown(name)}' of type {shown(full)} has inputs that do not fit it"
            ) from error
        return record

    def control(self, op_type: str, node: Any, attributes: dict[str, Any]) -> BodyWork:
        if op_type == "If":
            branches = [self.body(node, name) for name in ("then_branch", "else_branch")]
            dearest = max(b.flops for b in branches)
            return BodyWork(dearest, sum(b.weight_bytes for b in branches), branches[0].unknown + branches[1].unknown)
        body = self.body(node, "body")
        runs = _loop_runs(node) if op_type == "Loop" else self.scan_runs(node, attributes)
        if runs is None:
            self.unknown_iterations += 1
        return body._replace(flops=body.flops * (1 if runs is None else runs))

    def body(self, node: Any, name: str) -> BodyWork:
        """The work of a graph inside a node."""
        attribute = node.attributes.get(name)
        bodies = [] if attribute is None else _bodies(attribute)
        if len(bodies) != 1 or isinstance(attribute.value, (list, tuple)):
            what = f"node '{shown(node.name or _first_output(node))}' of type {shown(node.op_type)}"
            raise InputError(f"{self.where}: {what} has no graph '{name}'")
        return body_work(self.records(bodies[0]), self.where)

    def scan_runs(self, node: Any, attributes: dict[str, Any]) -> int | None:
        scanned = list(node.inputs)[-int(attributes["num_scan_inputs"]) :]
        axes = attributes.get("scan_input_axes") or [0]
        shape = known_shape(scanned[0]) if scanned and scanned[0] is not None else None
        return shape[axes[0]] if shape else None

    def weight_bytes(self, value: Any) -> float:
        """Bytes of an initializer for its first reader; later ones bear nothing."""
        if not value.is_initializer() or id(value) in self.charged:
            return 0.0
        self.charged.add(id(value))
        constant = value.const_value
        if _type_name(value) == "UNDEFINED":
            raise InputError(f"{self.where}: initializer '{shown(value.name or '')}' has no element type")
        return float(constant.nbytes) if constant is not None else self.tensor(value).size_bytes

    def tensor(self, value: Any) -> TensorInfo:
        shape = self.shape(value)
        is_read = bool(value.uses()) or value.is_graph_output()
        if is_read and (known_shape(value) is None or _type_name(value) == "STRING"):  # texts are of any length
            self.unknown_shapes += 1
        return TensorInfo(value.name or "", shape, bits_bytes(shape, _bits(value)), _is_integer(value))

    def shape(self, value: Any) -> Shape:
        """The shape; sizes that only the data decide count as 1."""
        constant = value.const_value
        if value.shape is None and constant is not None:
            return tuple(constant.shape)
        return tuple(d if isinstance(d, int) else 1 for d in value.shape) if value.shape is not None else ()


def _role(domain: str, op_type: str) -> Role:
    kind = KIND_OF_TYPE.get(op_type, "") if domain in DOMAINS else ""
    if kind == "constant":
        return "constant"
    if kind == "shape":
        return "shape"
    return "source" if op_type in SOURCES or domain not in DOMAINS else "compute"


def _type_name(value: Any) -> str:
    return value.dtype.name if value.dtype is not None else ""


def _bits(value: Any) -> int:
    """Bits of one element, whatever the type: a text counts as a pointer, what is not known as 32."""
    other = {"STRING": 64, "UNDEFINED": 32, "": 32}
    name = _type_name(value)
    return other[name] if name in other else round(value.dtype.itemsize * 8)


def _is_integer(value: Any) -> bool:
    kind = value.dtype if value.dtype is not None or value.const_value is None else value.const_value.dtype
    return kind is not None and not kind.is_floating_point()


def _first_output(node: Any) -> str:
    return next((value.name for value in node.outputs if value.name), "")


def _module_path(name: str, node: Any) -> str:
    scopes = node.metadata_props.get(_SCOPES, "")
    if not scopes:
        return path_of_name(name)
    try:
        paths = ast.literal_eval(scopes)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    modules = [p for p in paths[:-1] if isinstance(p, str) and p] if isinstance(paths, list) else []
    return join_scopes(modules[-1:])


def _captured(node: Any) -> list[Any]:
    """Values of outer graphs that the bodies of a node read: inputs in all but name."""
    found: dict[int, Any] = {}
    for attribute in node.attributes.values():
        for body in _bodies(attribute):
            own = {id(v) for v in body.inputs} | {id(v) for v in body.initializers.values()}
            own |= {id(v) for inner in body for v in inner.outputs}
            read = [v for inner in body for v in [*inner.inputs, *_captured(inner)] if v is not None]
            read += [v for v in body.outputs if v is not None]
            found.update((id(v), v) for v in read if id(v) not in own)
    return list(found.values())


def _bodies(attribute: Any) -> list[Any]:
    from onnx_ir import AttributeType

    if attribute.type == AttributeType.GRAPH:
        return [attribute.value]
    return list(attribute.value) if attribute.type == AttributeType.GRAPHS else []


def _loop_runs(node: Any) -> int | None:
    """The trip count of a Loop where it is a constant in the file itself."""
    import onnx_ir

    trip = node.inputs[0] if node.inputs else None
    if trip is None:
        return None
    constant = trip.const_value
    producer = trip.producer()
    if constant is None and producer is not None and producer.op_type == "Constant" and "value" in producer.attributes:
        constant = producer.attributes["value"].value
    if constant is None or isinstance(constant, onnx_ir.ExternalTensor) or constant.size != 1:
        return None
    return max(0, int(constant.numpy().reshape(-1)[0]))
