"""Archives as strangers might write them: each would run code, or read too much, if a loader believed it.

A row of ``CRAFTED`` changes the entries of an ordinary export, a row of ``MALFORMED`` its bytes. Whatever would run
makes the file ``marker``.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Entries = dict[str, bytes]
PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
EXAMPLES = "data/sample_inputs/model.pt"


class Trap:
    """Makes the marker when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def code(marker: Path) -> str:
    """An expression that makes the marker when it is evaluated."""
    return f"__import__('pathlib').Path({str(marker)!r}).touch() or 3"


def entries_of(path: Path) -> Entries:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def written(entries: Entries, folder: str = "base") -> bytes:
    """An archive of these entries, stored as torch stores them."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in entries.items():
            archive.writestr(f"{folder}/{name}", data)
    return stream.getvalue()


def edited(entries: Entries, name: str, edit: Callable[[Any], Any]) -> Entries:
    """The entries with one JSON document changed in place."""
    document = json.loads(entries[name])
    edit(document)
    return {**entries, name: json.dumps(document).encode()}


def program(edit: Callable[[Any, Path], Any]) -> Callable[[Entries, Path], Entries]:
    """A row that changes the program."""
    return lambda entries, marker: edited(entries, PROGRAM, lambda document: edit(document, marker))


def graph(edit: Callable[[Any, Path], Any]) -> Callable[[Entries, Path], Entries]:
    """A row that changes the program's graph."""
    return program(lambda document, marker: edit(document["graph_module"]["graph"], marker))


def call(edit: Callable[[Any, Path], Any]) -> Callable[[Entries, Path], Entries]:
    """A row that changes how the program is called."""
    return program(lambda document, marker: edit(document["graph_module"]["module_call_graph"][0]["signature"], marker))


def target(name: str) -> Callable[[Entries, Path], Entries]:
    """A row whose first node calls something else."""
    return graph(lambda g, _: g["nodes"][0].update(target=name))


def spec(field: str, name: str, context: Any) -> Callable[[Entries, Path], Entries]:
    """A row whose inputs or outputs are in a container of another class."""
    leaf = {"type": None, "context": None, "children_spec": []}
    odd = {"type": name, "context": context, "children_spec": [leaf]}
    plain = {"type": "builtins.tuple", "context": "null", "children_spec": [odd]}
    nothing = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    inputs = {"type": "builtins.tuple", "context": "null", "children_spec": [plain, nothing]}
    return call(lambda c, _: c.update({field: json.dumps([1, inputs if field == "in_spec" else odd])}))


def constant(name: str, *, use_pickle: bool = True) -> Callable[[Entries, Path], Entries]:
    """A row with a constant that is a pickle, under some name."""

    def edit(entries: Entries, marker: Path) -> Entries:
        row = {"path_name": name, "is_param": False, "use_pickle": use_pickle, "tensor_meta": None}
        with_row = edited(entries, CONSTANTS, lambda document: document["config"].update(c=row))
        return {**with_row, f"data/constants/{name}": pickle.dumps(Trap(marker))}

    return edit


def added(name: str, content: Callable[[Path], bytes] | None = None) -> Callable[[Entries, Path], Entries]:
    """A row with one more entry, by default a pickle."""
    make = content or (lambda marker: pickle.dumps(Trap(marker)))
    return lambda entries, marker: {**entries, name: make(marker)}


def second_program(name: str) -> Callable[[Entries, Path], Entries]:
    """A row with another program, whose sizes are code."""

    def edit(entries: Entries, marker: Path) -> Entries:
        return {**entries, name: edited(entries, PROGRAM, lambda d: _open(d, code(marker)))[PROGRAM]}

    return edit


def _open(document: Any, expression: str, hint: Any = None) -> None:
    values = document["graph_module"]["graph"]["tensor_values"]
    values["x"]["sizes"][0] = {"as_expr": {"expr_str": expression, "hint": hint}}


def size(expression: Callable[[Path], str]) -> Callable[[Entries, Path], Entries]:
    """A row with an expression for a size."""
    return program(lambda document, marker: _open(document, expression(marker)))


def saved(value: Any, **options: Any) -> bytes:
    """What torch.save writes."""
    import torch

    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def torch_save(marker: Path) -> bytes:
    """What torch.save would write of a trap."""
    return saved((Trap(marker),))


def shared_tuples(_: Path) -> bytes:
    """Example inputs of 2^40 values in some hundred bytes: every tuple holds the one before it twice."""
    value: Any = (1, 2)
    for _ in range(40):
        value = (value, value)
    return saved(((value,), {}))


def weight(**fields: Any) -> Callable[[Entries, Path], Entries]:
    """A row whose first weight is described otherwise."""

    def edit(document: Any) -> None:
        row = next(iter(document["config"].values()))
        row.update({k: v for k, v in fields.items() if k in row})
        row["tensor_meta"].update({k: v for k, v in fields.items() if k in row["tensor_meta"]})

    return lambda entries, _: edited(entries, WEIGHTS, edit)


def renamed_input(name: str) -> Callable[[Entries, Path], Entries]:
    """A row whose input is called otherwise, everywhere: names become code when torch makes a function of a graph."""
    return lambda entries, _: {**entries, PROGRAM: entries[PROGRAM].replace(b'"x"', json.dumps(name).encode())}


def renamed_weight(name: str) -> Callable[[Entries, Path], Entries]:
    """A row with a weight of another name."""

    def edit(entries: Entries, _: Path) -> Entries:
        new = json.dumps(name).encode()
        return {**entries, **{n: entries[n].replace(b'"l.weight"', new) for n in (PROGRAM, WEIGHTS)}}

    return edit


def keyword_argument(name: str) -> Callable[[Entries, Path], Entries]:
    """A row with ``torch.cond`` whose arguments have names: those become code as they are."""
    argument = {"name": name, "arg": {"as_int": 1}, "kind": 2}
    return graph(lambda g, _: g["nodes"][0].update(target="torch.ops.higher_order.cond", inputs=[argument]))


def _deep(document: Any, _: Path) -> None:
    node = document["graph_module"]["graph"]["nodes"][0]
    inner: Any = {"as_none": True}
    for _i in range(300):
        inner = {"as_string_to_argument": {"a": inner}}
    node["inputs"].append({"name": "deep", "arg": inner, "kind": 1})


def no_weights(entries: Entries, _: Path) -> Entries:
    """A row that lacks what its program reads."""
    return {n: d for n, d in entries.items() if not n.startswith("data/weights/")}


def custom_object(document: Any, _: Path) -> None:
    """A row with an input that is an object of some class."""
    spec_of = {"custom_obj": {"arg": {"name": "o", "class_fqn": "os.system"}, "custom_obj_name": "o"}}
    document["graph_module"]["signature"]["input_specs"].append(spec_of)


def argument(kind: str, content: Any) -> Callable[[Entries, Path], Entries]:
    """A row whose first node has one more argument."""
    row = {"name": "more", "arg": {kind: content}, "kind": 1}
    return graph(lambda g, _: g["nodes"][0]["inputs"].append(row))


def _whole(n: int) -> dict[str, int]:
    return {"as_int": n}


_EVIL_ENUM = json.dumps({"__enum__": True, "fqn": "evil_module:C", "name": "A"})
_EVIL_FACTORY = {"default_factory_module": "evil_module", "default_factory_name": "C", "dict_context": ["a"]}

# What ``place`` may let pass: it reads neither tensors nor example inputs, and need not run what it places.
UNREAD_BY_PLACE = (
    "weights-", "weight-", "no-weights", "constant-legacy", "examples-", "checksum", "old-format", "op-unknown",
    "op-from-file", "op-print", "op-network", "op-profiler", "op-packet", "op-higher", "op-delegate", "input-class",
    "size-code", "size-attribute", "size-huge", "size-deep", "value-code",
)  # fmt: skip

CRAFTED: dict[str, Callable[[Entries, Path], Entries]] = {
    # a and b: pickled constants, under all sorts of names
    "constant-json": constant("opaque_obj_0.json"),
    "constant-in-folder": constant("opaque_obj_0/tensor_0"),
    "constant-opaque": constant("opaque_obj_0"),
    "constant-custom": constant("custom_obj_0"),
    "constant-custom-json": constant("custom_obj_0.json"),
    "constant-upper-case": lambda entries, marker: {
        **{n: d for n, d in constant("opaque_obj_0")(entries, marker).items() if not n.endswith("opaque_obj_0")},
        "data/CONSTANTS/opaque_obj_0": pickle.dumps(Trap(marker)),
    },
    "constant-traversal": constant("../weights/weight_0"),
    "constant-legacy": added("data/constants/model.pt"),
    "constant-legacy-saved": added("data/constants/model.pt", torch_save),
    # weights and example inputs
    "weights-pickled": weight(use_pickle=True),
    "weights-pickled-data": lambda entries, marker: {
        **weight(use_pickle=True)(entries, marker),
        "data/weights/weight_0": pickle.dumps(Trap(marker)),
    },
    "weights-legacy": added("data/weights/model.pt", torch_save),
    "weights-upper-case": added("data/Weights/model.pt", torch_save),
    "examples-pickled": added(EXAMPLES),
    "examples-saved": added(EXAMPLES, torch_save),
    "examples-shared": added(EXAMPLES, shared_tuples),
    "examples-text": added(EXAMPLES, lambda _: saved("text")),
    "examples-legacy": added(EXAMPLES, lambda _: saved(((), {}), _use_new_zipfile_serialization=False)),
    "examples-archive": lambda entries, _: {**entries, EXAMPLES: written(entries)},
    "nested-archive": lambda entries, _: {**entries, "data/inner.pt2": written(entries)},
    # c: a second program
    "program-jso_": second_program("models/evil.jso_"),
    "program-json": second_program("models/evil.json"),
    "program-upper-case": second_program("Models/evil.json"),
    "program-in-folder": second_program("models/more/evil.json"),
    "program-of-old": second_program("serialized_exported_program.json"),
    # d: native code
    "native-so": lambda entries, _: {
        **entries,
        "data/aotinductor/model/x.wrapper.so": b"\x7fELF",
        "data/aotinductor/model/x.wrapper_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}',
    },
    "native-cpp": added("data/aotinductor/model/x.wrapper.cpp", lambda _: b"int main() { return 0; }"),
    "native-elsewhere": added("data/constants/x.so", lambda _: b"\x7fELF"),
    # f: specifications that name modules
    "spec-enum": spec("in_spec", "builtins.dict", _EVIL_ENUM),
    "spec-enum-outputs": spec("out_spec", "builtins.dict", _EVIL_ENUM),
    "spec-enum-nested": spec("out_spec", "builtins.list", f"[[{_EVIL_ENUM}]]"),
    "spec-enum-of-a-stranger": spec("out_spec", "evil_module.C", _EVIL_ENUM),
    "spec-default": spec("in_spec", "collections.defaultdict", _EVIL_FACTORY),
    "spec-default-outputs": spec("out_spec", "collections.defaultdict", _EVIL_FACTORY),
    "spec-name-is-code": spec("out_spec", "__import__('evil_module')", "null"),
    "spec-is-text": call(lambda c, _: c.update(in_spec="__import__('evil_module')")),
    "spec-deep": call(lambda c, _: c.update(in_spec='[1, {"type": null, "children_spec": [' * 50_000)),
    "input-class": spec("in_spec", "evil_module.C", "null"),
    # sizes that are code
    "size-code": size(code),
    "size-attribute": size(lambda _: "().__class__.__mro__[1].__subclasses__()"),
    "size-huge": size(lambda _: "9**9**9**9"),
    "size-long": size(lambda _: "1" + "+1" * 100_000),
    "size-deep": size(lambda _: "(" * 5000 + "1" + ")" * 5000),
    "size-digits": program(
        lambda d, _: d["graph_module"]["graph"]["tensor_values"]["x"].update(sizes=[_whole(10**400)])
    ),
    "size-negative": program(lambda d, _: d["graph_module"]["graph"]["tensor_values"]["x"].update(sizes=[_whole(-3)])),
    "value-code": graph(lambda g, m: g["sym_int_values"].update(x={"as_expr": {"expr_str": code(m), "hint": None}})),
    # what a program calls
    "target-system": target("os.system"),
    "target-torch-system": target("torch.os.system"),
    "target-builtins": target("builtins.eval"),
    "target-getattr": target("_operator.__builtins__.get"),
    "target-getitem": target("_operator.getitem"),
    "target-attrgetter": target("_operator.attrgetter"),
    "target-load-library": target("torch.ops.load_library"),
    "target-import-module": target("torch.ops.import_module"),
    "target-dunder": target("torch.ops.aten.__class__"),
    "target-load": target("torch.load"),
    "target-hub": target("torch.hub.load"),
    "target-extension": target("#edge:aten.add"),
    "target-object": graph(lambda g, _: g["nodes"][0].update(target={"a": 1})),
    "op-from-file": target("torch.ops.aten.from_file.default"),
    "op-print": target("torch.ops.aten._print.default"),
    "op-unknown": target("torch.ops.mylib.run.default"),
    "op-network": target("torch.ops._c10d_functional.broadcast.default"),
    "op-profiler": target("torch.ops.profiler._record_function_enter.default"),
    "op-packet": target("torch.ops.aten.relu.__class__"),
    "op-higher": target("torch.ops.higher_order.triton_kernel_wrapper_mutation"),
    "op-delegate": target("torch.ops.higher_order.executorch_call_delegate"),
    "argument-operator": argument("as_operator", "os.system"),
    "argument-object": argument("as_custom_obj", {"name": "o", "class_fqn": "os.system"}),
    "argument-kind": argument("as_code", "1"),
    "argument-deep": program(_deep),
    "object": program(custom_object),
    # names that would become code
    "name-of-input": renamed_input("x):\n    import os\n    def f(y"),
    "name-of-input-call": renamed_input("x=print()"),
    "name-of-input-keyword": renamed_input("class"),
    "name-of-input-self": renamed_input("self"),
    "name-of-input-dunder": renamed_input("__import__('os')"),
    "name-of-weight": renamed_weight('l.x" + str(__import__("os").getpid()) + "'),
    "name-of-weight-dunder": renamed_weight("__class__.weight"),
    "name-of-argument": keyword_argument("a=__import__('os').getpid(), b"),
    "name-of-forward-argument": call(lambda c, _: c.update(forward_arg_names=["x=print()"])),
    "name-is-a-list": graph(lambda g, _: g["nodes"][0].update(name=["a"])),
    # what is not there, or does not fit
    "weight-beyond": weight(sizes=[_whole(1 << 20), _whole(1 << 20)]),
    "weight-offset": weight(storage_offset=_whole(1 << 40)),
    "weight-negative-stride": weight(strides=[_whole(-4), _whole(1)]),
    "weight-repeated": weight(sizes=[_whole(1 << 40), _whole(4)], strides=[_whole(0), _whole(0)]),
    "weight-file": weight(path_name="/etc/passwd"),
    "weight-elsewhere": weight(path_name="../../models/model.json"),
    "weight-other-shape": weight(sizes=[_whole(2), _whole(8)], strides=[_whole(8), _whole(1)]),
    "weight-type": weight(dtype=99),
    "no-weights": no_weights,
    "verifier": program(lambda d, _: d.update(verifiers=["evil_module"])),
    "json-deep": lambda entries, _: {**entries, PROGRAM: b"[" * 100_000 + b"]" * 100_000},
    "json-many-values": lambda entries, _: {**entries, PROGRAM: b"[" + b"[]," * 13_000_000 + b"1]"},
    "json-number": lambda entries, _: {**entries, PROGRAM: b'{"a": ' + b"9" * 100_000 + b"}"},
}


def archive_of(names: list[str], contents: list[bytes]) -> bytes:
    """An archive of entries under any names."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in zip(names, contents, strict=True):
            archive.writestr(name, content)
    return stream.getvalue()


def two_directories(entries: Entries, marker: Path) -> bytes:
    """e: the end leads to a directory of other entries than the one that stands just before it."""
    evil = {f"base/{n}": d for n, d in constant("opaque_obj_0")(entries, marker).items()}
    bad, good = archive_of(list(evil), list(evil.values())), written(entries)
    n_bad, _, bad_size, bad_start = struct.unpack("<HHLL", bad[-14:-2])
    at, shift = good.rindex(b"PK\x05\x06"), len(bad)
    directory = bytearray(good[struct.unpack("<L", good[at + 16 : at + 20])[0] : at])
    offset = 0
    while offset < len(directory):
        (old,) = struct.unpack_from("<L", directory, offset + 42)
        struct.pack_into("<L", directory, offset + 42, old + shift)
        n_name, n_extra, n_comment = struct.unpack_from("<HHH", directory, offset + 28)
        offset += 46 + n_name + n_extra + n_comment
    end = struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, n_bad, n_bad, bad_size, bad_start, 0)
    return bad + good[: at - len(directory)] + bytes(directory) + end


def duplicate(second: str) -> Callable[[Entries, Path], bytes]:
    def make(entries: Entries, marker: Path) -> bytes:
        stream = io.BytesIO(written(entries))
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr(zipfile.ZipInfo(second), pickle.dumps(Trap(marker)))
        return stream.getvalue()

    return make


def link(entries: Entries, _: Path) -> bytes:
    stream = io.BytesIO(written(entries))
    info = zipfile.ZipInfo("base/extra/link")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(stream, "a") as archive:
        archive.writestr(info, "/etc/passwd")
    return stream.getvalue()


def compressed(entries: Entries, name: str, content: bytes) -> bytes:
    stream = io.BytesIO(written(entries))
    with zipfile.ZipFile(stream, "a") as archive:
        archive.writestr(f"base/{name}", content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def patched(entries: Entries, at: int, form: str, value: int) -> bytes:
    """One number of the first row of the directory changed."""
    data = bytearray(written(entries))
    struct.pack_into(form, data, struct.unpack("<L", data[-6:-2])[0] + at, value)
    return bytes(data)


MALFORMED: dict[str, Callable[[Entries, Path], bytes]] = {
    "two-directories": two_directories,
    "prepended": lambda entries, _: b"#!/bin/sh\n" + written(entries),
    "prepended-archive": lambda entries, marker: written(constant("opaque_obj_0")(entries, marker)) + written(entries),
    "appended": lambda entries, _: written(entries) + b"\0",
    "comment": lambda entries, _: written(entries)[:-2] + b"\x04\x00PK\x05\x06",
    "duplicate": duplicate(f"base/{PROGRAM}"),
    "duplicate-upper-case": duplicate("base/models/MODEL.json"),
    "duplicate-folder": duplicate("other/models/model.json"),
    "absolute": duplicate("/etc/passwd"),
    "traversal": duplicate("base/../../evil"),
    "backslash": duplicate("base\\models\\evil.json"),
    "link": link,
    "bomb": lambda entries, _: compressed(entries, "data/weights/weight_9", bytes(1 << 30)),
    "compressed-program": lambda entries, _: compressed(
        {n: d for n, d in entries.items() if n != PROGRAM}, PROGRAM, entries[PROGRAM]
    ),
    "many-entries": lambda entries, _: archive_of([f"base/extra/{i}" for i in range(100_000)], [b""] * 100_000),
    "encrypted": lambda entries, _: patched(entries, 8, "<H", 1),
    "method": lambda entries, _: patched(entries, 10, "<H", 93),
    "overlapping": lambda entries, _: patched(entries, 42, "<L", 1),
    "beyond": lambda entries, _: patched(entries, 42, "<L", 1 << 31),
    "larger": lambda entries, _: patched(entries, 24, "<L", 1 << 31),
    "smaller": lambda entries, _: patched(entries, 24, "<L", 1),
    "checksum": lambda entries, _: patched(entries, 16, "<L", 1),
    "truncated": lambda entries, _: written(entries)[:-100],
    "pickle": lambda _, marker: pickle.dumps(Trap(marker)),
    "saved": lambda _, marker: torch_save(marker),
    "old-format": lambda entries, marker: archive_of(
        ["version", "serialized_exported_program.json", "serialized_state_dict.pt", "serialized_constants.pt"],
        [b"8.1", entries[PROGRAM], torch_save(marker), pickle.dumps(Trap(marker))],
    ),
}
