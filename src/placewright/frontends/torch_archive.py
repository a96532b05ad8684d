"""``.pt2`` archives, read as data.

``torch.export.load`` would unpickle tensors and example inputs and evaluate size expressions as code. Only the
program's JSON is read here, and no part of torch: nothing in the file can run, and weights stay where they are.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.frontends.base import Shapes, check_file, check_shape_names
from placewright.frontends.module_paths import path_of_stack
from placewright.frontends.size_expressions import size_of
from placewright.frontends.torch_live import match_symbols
from placewright.frontends.torch_program import Node, Program, Ref, Value, Weight
from placewright.text import shown

_SCHEMA = 8
_TENSORS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_LARGEST_JSON_BYTES = 1 << 30
_BITS = {
    1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 16, 7: 32, 8: 64, 9: 32, 10: 64, 11: 128, 12: 8, 13: 16, 28: 16,
    29: 8, 30: 8, 31: 8, 32: 8, 33: 8, 34: 32, 35: 64,
}  # fmt: skip
_INTEGERS = {1, 2, 3, 4, 5, 12, 28, 34, 35}
_PLAIN = ("as_int", "as_ints", "as_float", "as_floats", "as_string", "as_strings", "as_bool", "as_bools")


def read_archive(path: Path, shapes: Shapes, where: str) -> Program:
    """The plain form of an archive written by ``torch.export.save``."""
    check_file(path)
    document = _document(path, where)
    try:
        version = document["schema_version"]
        if version["major"] != _SCHEMA:
            raise InputError(
                f"{where}: holds a program of schema {version['major']}, expected {_SCHEMA}; export it again with "
                "a torch that writes this schema, such as 2.13"
            )
        module = document["graph_module"]
        return _Reader(module["graph"], shapes, where).program(module["signature"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__} {shown(str(error), 60)}"
        raise InputError(f"{where}: the program in this archive is damaged ({what})") from error


_RUNNABLE = ("torch.ops.", "_operator.", "math.", "torch.sym_")  # names that a program may call


def load_program(path: Path, where: str) -> Any:
    """The archive as a live ``torch.export.ExportedProgram``, if loading and running it can execute nothing but ops.

    torch is told to unpickle tensors only; objects of other sorts, sizes as expressions (which torch evaluates as
    code) and calls of anything but ops are refused with :class:`InputError`.
    """
    import torch

    document = _document(path, where)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    objects = [n for n in names if "/constants/" in f"/{n}" and not n.endswith(".json") and "/tensor_" not in n]
    if objects:
        raise InputError(f"{where}: holds an object that is no tensor ('{shown(objects[0])}'), which is not loaded")
    for key, value in _entries(document):
        if key == "expr_str":
            raise InputError(f"{where}: has open sizes; to run it, export it with fixed shapes")
        if key == "target" and isinstance(value, str) and not value.startswith(_RUNNABLE):
            raise InputError(f"{where}: calls '{shown(value)}', which is no operator, and is not run")
        if key == "target" and isinstance(value, str) and not _is_known(value):
            raise InputError(
                f"{where}: calls '{shown(value)}', an operator that torch does not know here, so it cannot be run; "
                "export the model without custom operators"
            )
    before = os.environ.get(_TENSORS_ONLY)
    os.environ[_TENSORS_ONLY] = "1"
    try:
        return torch.export.load(path)
    except Exception as error:
        raise InputError(f"{where}: torch does not load it: {shown(str(error).splitlines()[0], 160)}") from error
    finally:
        if before is None:
            del os.environ[_TENSORS_ONLY]
        else:
            os.environ[_TENSORS_ONLY] = before


def _is_known(target: str) -> bool:
    """Whether torch has an operator; those of other packages are not imported for it."""
    import torch

    _, _, name = target.partition("torch.ops.")
    if not name or name.startswith("higher_order."):
        return True
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    """All keys and values of a JSON document, however deep."""
    todo = [document]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            yield from part.items()
            todo += part.values()
        elif isinstance(part, list):
            todo += part


def _document(path: Path, where: str) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            models = [
                info
                for info in archive.infolist()
                if (info.filename.endswith(".json") and "/models/" in f"/{info.filename}")
                or info.filename.endswith("serialized_exported_program.json")
            ]
            if len(models) != 1:
                raise InputError(
                    f"{where}: holds {len(models)} exported programs, expected one (written by torch.export.save)"
                )
            if models[0].file_size > _LARGEST_JSON_BYTES:
                raise InputError(f"{where}: its program has {models[0].file_size} bytes, more than a program can have")
            return json.loads(archive.read(models[0]))
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{where}: not a readable .pt2 archive: {shown(str(error), 100)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: the program in this archive is not valid JSON: {shown(str(error), 80)}") from error


class _Reader:
    """One graph of the file, or of a body inside it."""

    def __init__(self, graph: dict[str, Any], shapes: Shapes, where: str) -> None:
        self.graph, self.shapes, self.where = graph, shapes, where
        self.symbols: dict[str, int] = {}

    def program(self, signature: dict[str, Any]) -> Program:
        weights: dict[str, Weight] = {}
        inputs: list[str] = []
        for spec in signature["input_specs"]:
            for kind, entry in spec.items():
                if kind == "user_input":
                    inputs += [r.name for r in _flat(self.argument(entry["arg"])) if isinstance(r, Ref)]
                elif kind in ("parameter", "buffer", "tensor_constant"):
                    weights[entry["arg"]["name"]] = Weight(entry[f"{kind}_name"], kind == "parameter")
        check_shape_names(self.shapes, inputs, self.where)
        for name, shape in self.shapes.items():
            sizes = [_open_size(d) for d in self.graph["tensor_values"][name]["sizes"]]
            self.symbols.update(match_symbols(name, sizes, shape, self.where))
        program = self.body(inputs)
        program.weights = weights
        for spec in signature["output_specs"]:
            if "buffer_mutation" in spec:
                entry = spec["buffer_mutation"]
                program.replaced[entry["arg"]["name"]] = entry["buffer_name"]
        return program

    def body(self, inputs: list[str]) -> Program:
        values = {name: self.value(meta) for name, meta in self.graph["tensor_values"].items()}
        results = {r.name for o in self.graph["outputs"] for r in _flat(self.argument(o)) if isinstance(r, Ref)}
        return Program([self.node(n) for n in self.graph["nodes"]], values, inputs, results=results)

    def node(self, node: dict[str, Any]) -> Node:
        outputs = [r.name for o in node["outputs"] for r in _flat(self.argument(o)) if isinstance(r, Ref)]
        arguments = {i["name"] or f"argument{k}": self.argument(i["arg"]) for k, i in enumerate(node["inputs"])}
        stack = [entry.split(",") for entry in node["metadata"].get("nn_module_stack", "").split(";") if entry]
        return Node(
            name=node.get("name") or outputs[0],
            target=str(node["target"]).removeprefix("torch.ops."),
            arguments=arguments,
            outputs=outputs,
            module_path=path_of_stack([entry[1] for entry in stack if len(entry) > 1]),
        )

    def argument(self, argument: dict[str, Any]) -> Any:
        ((kind, content),) = argument.items()
        if kind in _PLAIN:
            return content
        if kind == "as_tensor":
            return Ref(content["name"])
        if kind == "as_name":
            return Ref(content)
        if kind == "as_tensors":
            return [Ref(item["name"]) for item in content]
        if kind in ("as_optional_tensors", "as_sym_ints"):
            return [self.argument(item) for item in content]
        if kind in ("as_optional_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"):
            return self.argument(content)
        if kind == "as_nested_tensors":
            return [[Ref(item["name"]) for item in row] for row in content]
        if kind == "as_graph":
            inner = _Reader(content["graph"], {}, self.where)
            inner.symbols = self.symbols
            return inner.body([r.name for i in content["graph"]["inputs"] for r in _flat(inner.argument(i))])
        return None

    def value(self, meta: dict[str, Any]) -> Value:
        is_integer = meta["dtype"] in _INTEGERS
        return Value(tuple(self.size(d) for d in meta["sizes"]), _BITS[meta["dtype"]], is_integer)

    def size(self, dimension: dict[str, Any]) -> int:
        """A size; an open one follows the given shapes, else the example inputs of the export, else counts as 1."""
        if "as_int" in dimension:
            return int(dimension["as_int"])
        expression = dimension["as_expr"]
        known = size_of(expression["expr_str"], self.symbols)
        hint = (expression.get("hint") or {}).get("as_int")
        return known if known is not None else int(hint) if hint is not None else 1


def _open_size(dimension: dict[str, Any]) -> int | str:
    return int(dimension["as_int"]) if "as_int" in dimension else str(dimension["as_expr"]["expr_str"])


def _flat(item: Any) -> list[Any]:
    if isinstance(item, list):
        return [inner for part in item for inner in _flat(part)]
    return [item]
