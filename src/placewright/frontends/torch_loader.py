"""From a checked program and tensors to a live ``torch.export.ExportedProgram``: the only place that asks torch for it.

torch gets a document that was made here, tensors that were made here, and no bytes of a file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from placewright.errors import InputError
from placewright.frontends.base import one_line
from placewright.frontends.size_expressions import size_of, symbol_of
from placewright.frontends.torch_document import SCHEMA
from placewright.frontends.torch_schema import schema_object
from placewright.frontends.torch_specs import Tree, keyword_names, written_tree
from placewright.frontends.torch_targets import check_runnable
from placewright.text import shown, shown_list

OLDEST, TOO_NEW = (2, 6), (2, 15)  # versions of torch whose deserializer takes what is handed over here
_STACK_ENTRY = re.compile(r"[\w.@ -]*", re.ASCII)
_OPEN = "has open sizes"
_FIX = "to run it, export it with fixed shapes"

log = logging.getLogger(__name__)


def exported_program(
    document: dict[str, Any],
    state: dict[str, Any],
    constants: dict[str, Any],
    examples: Any,
    symbols: Mapping[str, int],
    where: str,
) -> Any:
    """The live program; ``document`` has passed the checks of ``torch_document``.

    Open sizes become what ``symbols`` says of them, else those of the example inputs of the export; containers become
    tuples, lists and dicts.
    """
    deserializer = _deserializer(where)
    module = document["graph_module"]
    for graph in graphs(module["graph"]):
        for node in graph["nodes"]:
            check_runnable(node, where)
    _check_tensors(module, {**constants, **state}, where)
    sizes = _Sizes(module["graph"], symbols, where)
    sizes.check_ranges(document["range_constraints"])
    ready = {
        "graph_module": {
            "graph": sizes.fixed(module["graph"]),
            "signature": module["signature"],
            "module_call_graph": [{"fqn": "", "signature": _call(module, where)}],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {},
        "range_constraints": {},
        "schema_version": document["schema_version"],
        "verifiers": document["verifiers"] or ["ATEN"],
        "torch_version": "",
        "guards_code": [],
    }
    try:
        return deserializer().deserialize(schema_object(ready), state, constants, examples)
    except Exception as error:
        raise InputError(f"{where}: torch does not load it: {one_line(error)}") from error


def _deserializer(where: str) -> Any:
    """Torch's class of deserializers, if it is of a version that is known to take what is handed over here."""
    import torch

    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if not OLDEST <= version < TOO_NEW:
        raise InputError(
            f"{where}: .pt2 archives run with torch {_text(OLDEST)} up to, but not including, {_text(TOO_NEW)}; "
            f"this is torch {shown(torch.__version__)}"
        )
    try:
        from torch._export.serde import schema, serialize
    except ImportError as error:
        raise InputError(
            f"{where}: torch {shown(torch.__version__)} cannot make programs: {one_line(error)}"
        ) from error
    if schema.SCHEMA_VERSION[0] != SCHEMA:
        raise InputError(
            f"{where}: its schema is {SCHEMA}, that of torch {torch.__version__} {schema.SCHEMA_VERSION[0]}"
        )
    return serialize.ExportedProgramDeserializer


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def graphs(graph: dict[str, Any]) -> list[dict[str, Any]]:
    """A graph and all graphs that its nodes call."""
    found, todo = [], [graph]
    while todo:
        found.append(todo.pop())
        todo += [inner for node in found[-1]["nodes"] for i in node["inputs"] for inner in _inner(i["arg"])]
    return found


def _inner(argument: dict[str, Any]) -> list[dict[str, Any]]:
    if "as_graph" in argument:
        return [argument["as_graph"]["graph"]]
    if "as_string_to_argument" in argument:
        return [g for item in argument["as_string_to_argument"].values() for g in _inner(item)]
    return []


def _check_tensors(module: dict[str, Any], tensors: Mapping[str, Any], where: str) -> None:
    """Every weight must be there, as large and of the type that the program says."""
    metas = module["graph"]["tensor_values"]
    for spec in module["signature"]["input_specs"]:
        ((kind, entry),) = spec.items()
        if kind not in ("parameter", "buffer", "tensor_constant"):
            continue
        name, meta = entry[f"{kind}_name"], metas.get(entry["arg"]["name"])
        if name not in tensors or meta is None:
            raise InputError(f"{where}: {kind} '{shown(name)}' of its program is missing")
        sizes = [d.get("as_int") for d in meta["sizes"]]
        if sizes != list(tensors[name].shape):
            has = "×".join(map(str, tensors[name].shape))
            raise InputError(f"{where}: {kind} '{shown(name)}' has the shape {has or '()'}, its program wants another")


def _call(module: dict[str, Any], where: str) -> dict[str, Any]:
    """How the program is called, with containers that torch makes without importing anything."""
    call = module["module_call_graph"]
    if call is None:
        raise InputError(f"{where}: does not say how its program is called; export it again")
    inputs, outputs = call["in_spec"], call["out_spec"]
    lost = inputs.lost_classes()
    if lost:
        raise InputError(
            f"{where}: takes inputs in containers of {shown_list(lost)}, which are not made from a file; export it "
            "with tuples, lists and dicts"
        )
    _check_shape_of_call(inputs, module["signature"]["input_specs"], where)
    n_outputs = sum("user_output" in s or "loss_output" in s for s in module["signature"]["output_specs"])
    if outputs.n_leaves != n_outputs:
        raise InputError(f"{where}: says that it has {outputs.n_leaves} outputs, and has {n_outputs}")
    if outputs.lost_classes():
        log.info("%s: its outputs of %s become plain containers", where, shown_list(outputs.lost_classes()))
    return {
        "inputs": call["inputs"],
        "outputs": call["outputs"],
        "in_spec": written_tree(inputs),
        "out_spec": written_tree(outputs),
        "forward_arg_names": call["forward_arg_names"],
    }


def _check_shape_of_call(inputs: Tree, specs: list[dict[str, Any]], where: str) -> None:
    n_inputs = sum("user_input" in s or "constant_input" in s for s in specs)
    is_pair = [c.form for c in inputs.children] == ["tuple", "dict"]
    names = keyword_names(inputs)
    if inputs.form != "tuple" or not is_pair or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise InputError(f"{where}: its inputs are not a tuple of positional ones and a dict of named ones")
    if inputs.n_leaves != n_inputs:
        raise InputError(f"{where}: says that it has {inputs.n_leaves} inputs, and has {n_inputs}")


class _Sizes:
    """Numbers for the sizes that a program leaves open: the given ones, else those that the file notes."""

    def __init__(self, graph: dict[str, Any], symbols: Mapping[str, int], where: str) -> None:
        self.where = where
        self.given, self.symbols = symbols, dict(symbols)
        for part in graphs(graph):
            sizes = [size for meta in part["tensor_values"].values() for size in meta["sizes"]]
            for size in [*sizes, *part["sym_int_values"].values()]:
                if "as_expr" in size:
                    self._learn(size["as_expr"])

    def _learn(self, expression: dict[str, Any]) -> None:
        symbol = symbol_of(expression["expr_str"])
        hint = (expression["hint"] or {}).get("as_int")
        if symbol is None or hint is None or symbol in self.given:
            return
        if self.symbols.setdefault(symbol, hint) != hint:
            raise InputError(f"{self.where}: {_OPEN} that contradict each other ('{shown(symbol)}'); {_FIX}")

    def check_ranges(self, ranges: Mapping[str, dict[str, int | None]]) -> None:
        """Refuse sizes that the program was not exported for."""
        for symbol, number in self.symbols.items():
            limits = ranges.get(symbol, {})
            low, high = limits.get("min_val"), limits.get("max_val")
            if (low is not None and number < low) or (high is not None and number > high):
                told = f"{'any' if low is None else low} to {'any' if high is None else high}"
                raise InputError(
                    f"{self.where}: the open size '{shown(symbol)}' is {number}, and it was exported for {told}"
                )

    def _number(self, value: dict[str, Any], kind: str) -> dict[str, Any]:
        """A size as a number, by arithmetic on whole numbers and nothing else."""
        if "as_expr" not in value:
            return value
        expression = value["as_expr"]["expr_str"]
        number = size_of(expression, self.symbols)
        if number is None or abs(number) >= 2**63:
            raise InputError(f"{self.where}: {_OPEN} ('{shown(expression, 60)}'); {_FIX}")
        made = {"as_int": int, "as_float": float, "as_bool": bool}[kind](number)
        return {kind: made}

    def fixed(self, graph: dict[str, Any]) -> dict[str, Any]:
        """The graph with numbers for sizes."""
        return {
            **graph,
            "nodes": [self._node(node) for node in graph["nodes"]],
            "tensor_values": {name: self._meta(meta) for name, meta in graph["tensor_values"].items()},
            "sym_int_values": {n: self._number(v, "as_int") for n, v in graph["sym_int_values"].items()},
            "sym_bool_values": {n: self._number(v, "as_bool") for n, v in graph["sym_bool_values"].items()},
            "sym_float_values": {n: self._number(v, "as_float") for n, v in graph["sym_float_values"].items()},
            "custom_obj_values": {},
        }

    def _meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        return {
            **meta,
            "sizes": [self._number(d, "as_int") for d in meta["sizes"]],
            "strides": [self._number(d, "as_int") for d in meta["strides"]],
            "storage_offset": self._number(meta["storage_offset"], "as_int"),
        }

    def _node(self, node: dict[str, Any]) -> dict[str, Any]:
        inputs = [{**i, "arg": self._argument(i["arg"])} for i in node["inputs"]]
        return {**node, "inputs": inputs, "metadata": _stack_of(node["metadata"])}

    def _argument(self, argument: dict[str, Any]) -> dict[str, Any]:
        if "as_graph" in argument:
            inner = argument["as_graph"]
            return {"as_graph": {"name": inner["name"], "graph": self.fixed(inner["graph"])}}
        if "as_string_to_argument" in argument:
            items = argument["as_string_to_argument"].items()
            return {"as_string_to_argument": {key: self._argument(item) for key, item in items}}
        if "as_operator" in argument:
            raise InputError(f"{self.where}: hands an operator to another one, which is not run")
        return argument


def _stack_of(metadata: dict[str, str]) -> dict[str, str]:
    """The modules that a node came from: their paths, if all are plain, under a class that everybody knows."""
    stack = []
    for entry in metadata.get("nn_module_stack", "").split(";"):
        key, _, rest = entry.partition(",")
        path, comma, _ = rest.partition(",")
        if not comma or not (_STACK_ENTRY.fullmatch(key) and _STACK_ENTRY.fullmatch(path)):
            return {}
        stack.append(f"{key},{path},torch.nn.modules.module.Module")
    return {"nn_module_stack": ";".join(stack)}
