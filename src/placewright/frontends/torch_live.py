"""Live torch graphs (``torch.fx``) as plain programs."""

from __future__ import annotations

import operator
from typing import Any

from placewright.errors import InputError
from placewright.frontends.base import Shapes, check_shape_names
from placewright.frontends.module_paths import path_of_stack
from placewright.frontends.size_expressions import size_of, symbol_of
from placewright.frontends.torch_program import Node, Program, Ref, Value, Weight
from placewright.text import shown


def exported_program(program: Any, shapes: Shapes, where: str) -> Program:
    """The plain form of a ``torch.export.ExportedProgram``."""
    signature = program.graph_signature
    weights, inputs = {}, []
    for spec in signature.input_specs:
        kind, name = spec.kind.name, getattr(spec.arg, "name", "")
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            weights[name] = Weight(spec.target, kind == "PARAMETER")
        elif kind == "USER_INPUT":
            inputs.append(name)
    check_shape_names(shapes, inputs, where)
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    inputs = [name for name in inputs if name in placeholders]
    symbols = _symbols({name: placeholders[name].meta.get("val") for name in inputs}, shapes, where)
    plain = fx_program(program.graph_module, inputs, weights, symbols)
    plain.replaced = {spec.arg.name: spec.target for spec in signature.output_specs if "MUTATION" in spec.kind.name}
    return plain


def fx_program(module: Any, inputs: list[str], weights: dict[str, Weight], symbols: dict[str, int]) -> Program:
    """The plain form of a graph module; ``inputs`` and ``weights`` say what its placeholders are."""
    alias = _folded_items(module.graph)
    program = Program([], {}, list(inputs), weights)
    bodies: dict[str, Program] = {}
    for node in module.graph.nodes:
        if node.op == "output":
            program.results = {alias.get(n.name, n.name) for n in node.all_input_nodes}
        elif node.op == "get_attr":
            attribute = _attribute(module, node.target)
            if hasattr(attribute, "graph"):
                bodies[node.name] = _body(attribute, symbols)
            else:
                program.weights[node.name] = Weight(str(node.target), False)
                program.values[node.name] = _value(attribute, symbols)
        elif node.op == "placeholder":
            program.values[node.name] = _value(node.meta.get("val"), symbols)
        elif node.name not in alias:
            _add_call(program, node, alias, bodies, symbols)
    return program


def _add_call(
    program: Program, node: Any, alias: dict[str, str], bodies: dict[str, Program], symbols: dict[str, int]
) -> None:
    made = node.meta.get("val")
    several = isinstance(made, (list, tuple))
    outputs = [f"{node.name}:{i}" for i in range(len(made))] if several else [node.name]
    for user in node.users:
        if user.name in alias and several and user.args[0] is node:
            outputs[user.args[1]] = alias[user.name]
    for name, item in zip(outputs, made if several else [made], strict=True):
        program.values[name] = _value(item, symbols)
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    program.nodes.append(
        Node(
            name=node.name,
            target=_target(node.target),
            arguments=_arguments(node, alias, bodies),
            outputs=outputs,
            module_path=path_of_stack([entry[0] for entry in stack.values()]),
        )
    )


def _body(module: Any, symbols: dict[str, int]) -> Program:
    inputs = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    return fx_program(module, inputs, {}, symbols)


def _folded_items(graph: Any) -> dict[str, str]:
    """For every ``getitem`` of a call with several results, the name of the value it stands for."""
    alias: dict[str, str] = {}
    first: dict[tuple[str, int], str] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is operator.getitem:
            source, index = node.args
            if isinstance(source.meta.get("val"), (list, tuple)) and source.op == "call_function":
                alias[node.name] = first.setdefault((source.name, index), node.name)
    return alias


def _arguments(node: Any, alias: dict[str, str], bodies: dict[str, Program]) -> dict[str, Any]:
    schema = getattr(node.target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else []
    names += [f"argument{i}" for i in range(len(names), len(node.args))]
    return {
        **{name: _plain(item, alias, bodies) for name, item in zip(names, node.args, strict=False)},
        **{name: _plain(item, alias, bodies) for name, item in node.kwargs.items()},
    }


def _plain(item: Any, alias: dict[str, str], bodies: dict[str, Program]) -> Any:
    if isinstance(item, (list, tuple)):
        return [_plain(i, alias, bodies) for i in item]
    if hasattr(item, "all_input_nodes"):
        return bodies[item.name] if item.name in bodies else Ref(alias.get(item.name, item.name))
    return item if item is None or isinstance(item, (bool, int, float, str)) else str(item)


def _target(target: Any) -> str:
    if hasattr(target, "_schema"):
        return str(target)
    if type(target).__module__.startswith(("torch._ops", "torch._higher_order_ops")):
        return f"higher_order.{target.name() if callable(getattr(target, 'name', None)) else target.__name__}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', str(target))}"


def _attribute(module: Any, path: str) -> Any:
    for part in str(path).split("."):
        module = getattr(module, part)
    return module


def _value(item: Any, symbols: dict[str, int]) -> Value:
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        is_integer = not (item.dtype.is_floating_point or item.dtype.is_complex)
        return Value(tuple(_size(d, symbols) for d in item.shape), int(item.dtype.itemsize) * 8, is_integer)
    return Value((), 0)


def _size(dimension: Any, symbols: dict[str, int]) -> int:
    """A size; an open one follows the given shapes, else the example inputs of the export, else counts as 1."""
    if isinstance(dimension, int):
        return dimension
    known = size_of(str(dimension), symbols)
    hint = dimension.node.hint if hasattr(dimension, "node") else None
    return known if known is not None else int(hint) if hint is not None else 1


def _symbols(inputs: dict[str, Any], shapes: Shapes, where: str) -> dict[str, int]:
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        dimensions = [d if isinstance(d, int) else str(d) for d in getattr(inputs.get(name), "shape", ())]
        symbols.update(match_symbols(name, dimensions, shape, where))
    return symbols


def match_symbols(name: str, dimensions: list[int | str], shape: tuple[int, ...], where: str) -> dict[str, int]:
    """What the open sizes of an input are if it has this shape; a shape that cannot be is refused."""
    fits = len(dimensions) == len(shape) and all(
        d == s for d, s in zip(dimensions, shape, strict=True) if isinstance(d, int)
    )
    if not fits:
        has = ",".join(map(str, dimensions))
        given = ",".join(map(str, shape))
        raise InputError(
            f"{where}: --shape gives input '{shown(name)}' {given}, but the program was exported for {has}"
        )
    symbols = {symbol_of(d): s for d, s in zip(dimensions, shape, strict=True) if isinstance(d, str)}
    return {symbol: size for symbol, size in symbols.items() if symbol is not None}
