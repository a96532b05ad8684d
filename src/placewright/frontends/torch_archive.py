"""``.pt2`` archives, read as data.

``torch.export.load`` unpickles what an archive tells it to, imports modules that it names, loads native code that it
holds, and evaluates sizes as code. So torch never sees the file: it is read once, by ``archive_entries``; what is known
of a program is taken out of it, by ``torch_document``, and made anew. Without torch that is enough for a graph. A
program that is to run also gets its tensors, over the bytes that were read, and is made by ``torch_loader``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.frontends.archive_entries import Bytes, Entry, OpenFile, read_entries
from placewright.frontends.base import Shapes, check_shape_names
from placewright.frontends.document import Misfit, check_depth, decoded
from placewright.frontends.module_paths import path_of_stack
from placewright.frontends.size_expressions import size_of
from placewright.frontends.tensor_pickle import RawTensor, read_saved
from placewright.frontends.torch_document import BITS, PROGRAM, SCHEMA
from placewright.frontends.torch_live import match_symbols
from placewright.frontends.torch_program import Node, Program, Ref, Value, Weight
from placewright.text import shown

_LARGEST_JSON_BYTES = 128 << 20
_MOST_ELEMENTS = 1 << 60
_DEEPEST = 200  # levels of lists and objects; a graph within a graph takes eight
_TOO_DEEP = "the program in this archive is nested too deeply"
_INTEGERS = {1, 2, 3, 4, 5, 12, 28, 34, 35}
_PLAIN = ("as_int", "as_ints", "as_float", "as_floats", "as_string", "as_strings", "as_bool", "as_bools")

# What an archive may hold, under one folder of any name; a program is called {} in it.
_ENTRIES = re.compile(
    r"models/[\w-]+\.json|data/weights/(weight_\d+|[\w-]+_weights_config\.json|[\w-]+\.pt)|"
    r"data/constants/(tensor_\d+|[\w-]+_constants_config\.json|[\w-]+\.pt)|data/sample_inputs/[\w-]+\.pt|"
    r"archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)|extra/.+",
    re.ASCII,
)
# Before torch 2.7, without such a folder.
_OLD_PROGRAM = "serialized_exported_program.json"
_OLD_ENTRIES = re.compile(
    rf"version|{re.escape(_OLD_PROGRAM)}|serialized_(state_dict|constants|example_inputs)\.(pt|json)|extra_files/.+"
)


class _Archive:
    """The entries of an archive by their names below its folder, and the name of its one program."""

    def __init__(self, data: Bytes, where: str) -> None:
        self.where = where
        self.entries = self._below_folder(read_entries(data, where))
        self.is_old = _OLD_PROGRAM in self.entries
        programs = [n for n in self.entries if n.startswith("models/") or n == _OLD_PROGRAM]
        if len(programs) != 1:
            raise InputError(
                f"{where}: holds {len(programs)} exported programs, expected one (written by torch.export.save)"
            )
        self.program = programs[0]
        self.name = self.program.removeprefix("models/").removesuffix(".json")
        order = self.entries.get("byteorder")
        if order is not None and bytes(order.data[:16]) != b"little":
            raise InputError(f"{where}: was written on a machine of another byte order")

    def _below_folder(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        form, found = _OLD_ENTRIES, entries
        if _OLD_PROGRAM not in entries:
            form = _ENTRIES
            folders = {name.partition("/")[0] for name in entries}
            if len(folders) != 1:
                raise InputError(
                    f"{self.where}: not a readable .pt2 archive: it has {len(folders)} folders, expected one"
                )
            found = {name.partition("/")[2]: entry for name, entry in entries.items()}
        odd = next((name for name in found if form.fullmatch(name) is None), None)
        if odd is not None:
            raise InputError(f"{self.where}: holds '{shown(odd)}', which a plain exported program does not have")
        return found

    def document(self) -> dict[str, Any]:
        """The program, made anew out of what is known of it."""
        entry = self.entries[self.program]
        if entry.size > _LARGEST_JSON_BYTES:
            raise InputError(f"{self.where}: its program has {entry.size} bytes, more than {_LARGEST_JSON_BYTES}")
        if not entry.is_whole():
            raise InputError(f"{self.where}: not a readable .pt2 archive: bad checksum of '{shown(self.program)}'")
        try:
            found = decoded(bytes(entry.data))
        except Misfit as error:
            raise InputError(f"{self.where}: the program in this archive {error}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{self.where}: the program in this archive is not valid JSON: {shown(str(error), 80)}"
            ) from error
        self._check_schema(found)
        try:
            check_depth(found, _DEEPEST)
            document: dict[str, Any] = PROGRAM(found)
        except Misfit as misfit:
            if misfit.what.startswith("calls "):
                raise InputError(f"{self.where}: {misfit.what}") from misfit
            raise InputError(f"{self.where}: the program in this archive is damaged ({misfit})") from misfit
        except RecursionError as error:
            raise InputError(f"{self.where}: {_TOO_DEEP}") from error
        return document

    def _check_schema(self, found: Any) -> None:
        version = found.get("schema_version") if isinstance(found, dict) else None
        major = version.get("major") if isinstance(version, dict) else None
        if type(major) is not int or major == SCHEMA:  # what is no number is refused with the rest
            return
        told = major if abs(major) < 1 << 64 else "of more than 64 bits"
        raise InputError(
            f"{self.where}: holds a program of schema {told}, expected {SCHEMA}; export it again with a torch that "
            "writes this schema, such as 2.13"
        )

    def tensors(self) -> tuple[dict[str, RawTensor], dict[str, RawTensor]]:
        """Weights and constants by the paths of the module's attributes."""
        from placewright.frontends.torch_tensors import raw_tensors

        if self.is_old:
            return self._saved("serialized_state_dict.pt"), self._saved("serialized_constants.pt")
        found = []
        for folder, kind in (("weights", "weight"), ("constants", "tensor")):
            whole = f"data/{folder}/{self.name}.pt"  # torch 2.7
            if whole in self.entries:
                found.append(self._saved(whole))
            else:
                config = f"{self.name}_{folder}_config.json"
                found.append(raw_tensors(self.entries, f"data/{folder}", kind, config, self.where))
        return found[0], found[1]

    def _saved(self, name: str) -> dict[str, RawTensor]:
        saved = self._read_saved(name)
        if not isinstance(saved, dict) or not all(isinstance(v, RawTensor) for v in saved.values()):
            raise InputError(f"{self.where}: '{name}' is not a dict of tensors")
        return saved

    def _read_saved(self, name: str) -> Any:
        if name not in self.entries:
            raise InputError(f"{self.where}: lacks '{name}'")
        return read_saved(self.entries[name].data, f"'{name}'", self.where)

    def examples(self) -> Any:
        """The inputs that the program was exported with, ``None`` if there are none."""
        name = "serialized_example_inputs.pt" if self.is_old else f"data/sample_inputs/{self.name}.pt"
        entry = self.entries.get(name)
        if entry is None or not entry.size:
            return None
        saved = self._read_saved(name)
        if not (isinstance(saved, tuple) and [type(part) for part in saved] == [tuple, dict]):
            raise InputError(f"{self.where}: '{name}' is not a tuple of inputs and a dict of named ones")
        return saved


def read_archive(path: Path, shapes: Shapes, where: str) -> Program:
    """The plain form of an archive written by ``torch.export.save``."""
    return _plain_program(_Archive(OpenFile(path, where), where).document(), shapes, where)[0]


def _plain_program(document: dict[str, Any], shapes: Shapes, where: str) -> tuple[Program, dict[str, int]]:
    """The plain form of a program, and what its open sizes are if its inputs have these shapes."""
    module = document["graph_module"]
    try:
        reader = _Reader(module["graph"], shapes, where)
        return reader.program(module["signature"]), reader.symbols
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        what = f"{type(error).__name__} {shown(str(error), 60)}"
        raise InputError(f"{where}: the program in this archive is damaged ({what})") from error


def load_program(path: Path, where: str, shapes: Shapes | None = None) -> Any:
    """The archive as a live ``torch.export.ExportedProgram``, made of what was read here.

    Sizes that it leaves open become those of ``shapes``, else those of its example inputs. Raises :class:`InputError`
    for anything but operators that torch has, on plain tensors. Containers of other classes than tuples, lists and
    dicts are not made: outputs in them come back in plain ones.
    """
    from placewright.frontends.torch_loader import exported_program
    from placewright.frontends.torch_tensors import Tensors

    archive = _Archive(OpenFile(path, where).in_memory(), where)
    document = archive.document()
    weights, constants = archive.tensors()
    made = Tensors(where)
    state = {name: made.tensor(raw, name) for name, raw in weights.items()}
    lifted = {name: made.tensor(raw, name) for name, raw in constants.items()}
    _, symbols = _plain_program(document, shapes or {}, where)  # which also says what does not fit together
    examples = None if shapes else _live(archive.examples(), made)
    try:
        return exported_program(document, state, lifted, examples, symbols, where)
    except RecursionError as error:
        raise InputError(f"{where}: {_TOO_DEEP}") from error


def _live(value: Any, made: Any) -> Any:
    """Raw tensors in tuples, lists and dicts as torch's."""
    if isinstance(value, RawTensor):
        return made.tensor(value, "example input")
    if isinstance(value, (tuple, list)):
        return type(value)(_live(item, made) for item in value)
    return {key: _live(item, made) for key, item in value.items()} if isinstance(value, dict) else value


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
        missing = next((name for name in weights if name not in program.values), None)
        if missing is not None:
            raise KeyError(missing)
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
        shape = tuple(self.size(d) for d in meta["sizes"])
        if any(n < 0 for n in shape) or math.prod(shape) >= _MOST_ELEMENTS:
            raise ValueError("a tensor of impossible sizes")
        return Value(shape, BITS[meta["dtype"]], meta["dtype"] in _INTEGERS)

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
