"""Changed files: trees of JSON and TOML, tables of SQLite, fields of protobufs, entries of archives, raw bytes.

Every mutator takes the content of a good file and a source of randomness, and returns another content. All but the raw
bytes are written by a writer of the format, so the reader gets beyond its syntax.
"""

from __future__ import annotations

import copy
import io
import json
import math
import random
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

EXTREMES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 255, 1024, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64,
    10**18, 10**400, -(2**63), 0.5, -0.0, 1e-308, 1e308, -1e308, math.inf, -math.inf, math.nan, "", "a", "0", "1", "no",
    "x" * 5000, "\0", "a\nb", "\x1b[31m", "\u202e", "\ud800", "é" * 50, "..", "/", "../x", "zoo:chain", "(((", ".*",
    "null", [], {}, [[]], [None], {"": 0}, [[[[[[]]]]]], {"a": {"b": {}}}, [0] * 300, list(range(50)),
]  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(p for key, part in entries for p in places(part, (*path, key)))]


def deep(rng: random.Random) -> Any:
    """Lists or objects inside each other."""
    tree: Any = rng.choice(EXTREMES)
    for _ in range(rng.choice([3, 30, 63, 70, 300])):
        tree = [tree] if rng.random() < 0.5 else {"a": tree}
    return tree


def number_like(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, -value, value * 2, value * 1000, value << 32])
    if isinstance(value, float):
        return rng.choice(
            [-value, value * 2, value / 2, value * 1e300, value * 1e-300, round(value) if value < 1e9 else 0]
        )
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return rng.choice([value[:at] + value[at + 1 :], value[:at] + rng.choice("x0.:/\n€") + value[at:], value * 2])
    return rng.choice(EXTREMES)


def changed_tree(tree: Any, rng: random.Random, extremes: list[Any] = EXTREMES) -> Any:
    """A tree with one to three changes."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        found = places(tree)
        path = rng.choice([p for p in found if p] or [()])
        if not path:
            return rng.choice(extremes)
        parent = tree
        for key in path[:-1]:
            parent = parent[key]
        key, way = path[-1], rng.random()
        if way < 0.35:
            parent[key] = copy.deepcopy(rng.choice(extremes))
        elif way < 0.60:
            parent[key] = number_like(parent[key], rng)
        elif way < 0.72:
            del parent[key]
        elif way < 0.80:
            other = rng.choice(found)
            value = tree
            for k in other:
                value = value[k]
            parent[key] = copy.deepcopy(value)
        elif way < 0.88 and isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        elif way < 0.92:
            parent[key] = deep(rng)
        elif isinstance(parent, dict):
            parent[rng.choice(["x", "", "format", str(key) + "s", "a\nb"])] = parent.pop(key)
        else:
            parent[key] = rng.choice(extremes)
    return tree


def raw(content: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut out or repeated."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        if not data:
            break
        at, way = rng.randrange(len(data)), rng.random()
        if way < 0.5:
            data[at] = rng.randrange(256)
        elif way < 0.7:
            del data[at : at + rng.choice([1, 4, 100])]
        elif way < 0.9:
            data[at:at] = data[at : at + rng.choice([1, 8, 200])]
        else:
            del data[at:]
    return bytes(data)


def json_file(content: bytes, rng: random.Random) -> bytes:
    return json.dumps(changed_tree(json.loads(content), rng)).encode()


def json_lines(content: bytes, rng: random.Random) -> bytes:
    """A file of one JSON value per line."""
    lines = [json.loads(line) for line in content.decode().splitlines()]
    head, rest = (
        (lines[0], changed_tree(lines[1:], rng)) if rng.random() < 0.9 else (changed_tree(lines[0], rng), lines[1:])
    )
    return "".join(json.dumps(line) + "\n" for line in [head, *(rest if isinstance(rest, list) else [rest])]).encode()


def toml_file(content: bytes, rng: random.Random) -> bytes:
    import tomllib

    tree = changed_tree(tomllib.loads(content.decode()), rng)
    tree = tree if isinstance(tree, dict) else {"x": tree}
    return "".join(f"{_key(k)} = {_toml(v)}\n" for k, v in tree.items()).encode("utf-8", "replace")


def _key(key: Any) -> str:
    return json.dumps(str(key).encode("utf-8", "replace").decode())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("-inf" if value < 0 else "inf") if math.isinf(value) else repr(value)
    if isinstance(value, int):
        return str(value)
    return _key("" if value is None else value)


def sqlite_file(content: bytes, rng: random.Random) -> bytes:
    """Rows, tables and pages of a database changed."""
    if rng.random() < 0.15:  # a page's inside: the head stays
        data = bytearray(content)
        for _ in range(rng.choice([1, 3, 30])):
            data[rng.randrange(100, len(data))] = rng.randrange(256)
        return bytes(data)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.db"
        file.write_bytes(content)
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("pragma writable_schema=on")
        database.execute("update sqlite_master set sql = replace(sql, ' not null', '')")
        database.close()
        database = sqlite3.connect(file, isolation_level=None)
        for _ in range(rng.choice([1, 1, 2])):
            table, columns = rng.choice(
                [("measurement", ["context", "placement", "samples_s", "failure", "made_at"]),
                 ("assignment", ["context", "placement", "document"])]
            )  # fmt: skip
            column, way = rng.choice(columns), rng.random()
            try:
                if way < 0.75:
                    column = column if rng.random() < 0.3 else rng.choice(columns[2:])
                    where = "" if rng.random() < 0.5 else " where rowid = 1"
                    database.execute(f"update {table} set {column} = ?{where}", (_cell(rng),))
                else:
                    database.executescript(rng.choice(_SCHEMA_CHANGES).format(table=table, column=column))
            except (sqlite3.Error, OverflowError, ValueError):  # after another change; what there was stays
                pass
        database.close()
        return file.read_bytes()


_SCHEMA_CHANGES = [
    "drop table {table}",
    "alter table {table} drop column {column}",
    "alter table {table} add column more text",
    "alter table {table} rename to other",
    "drop table {table}; create table {table}(context)",
    "drop table {table}; create view {table} as select 1 as context, 2 as placement",
    "create trigger t before insert on {table} begin select raise(abort, 'no'); end",
    "create table extra(x)",
    "create index more on {table}({column})",
    "drop index by_key",
    "delete from {table}",
    "pragma user_version=2",
    "pragma user_version=-5",
    "pragma application_id=77",
]


def _cell(rng: random.Random) -> Any:
    value = rng.choice(EXTREMES)
    if rng.random() < 0.4:
        value = json.dumps(changed_tree(rng.choice([[1.0, 2.0], {"a": "gpu0", "b": ["x"]}]), rng))
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, str):
        return (
            value.encode("utf-8", "surrogatepass") if rng.random() < 0.1 else value.encode("utf-8", "replace").decode()
        )
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def onnx_file(content: bytes, rng: random.Random) -> bytes:
    """Fields of the protobuf, found by its own description."""
    import onnx

    model = onnx.ModelProto.FromString(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        _change_message(_some_message(model, rng), rng)
    return model.SerializeToString()


def _some_message(message: Any, rng: random.Random) -> Any:
    found, todo = [], [message]
    while todo:
        at = todo.pop()
        found.append(at)
        for field, value in at.ListFields():
            if field.message_type is not None:
                todo += list(value) if _is_repeated(field) else [value]
    by_kind: dict[str, list[Any]] = {}
    for at in found:  # kinds alike, or all would happen to weights and their sizes
        by_kind.setdefault(type(at).__name__, []).append(at)
    return rng.choice(by_kind[rng.choice(sorted(by_kind))])


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _change_message(message: Any, rng: random.Random) -> None:
    fields = message.DESCRIPTOR.fields
    present = [f for f, _ in message.ListFields()]
    field = rng.choice(present if present and rng.random() < 0.7 else list(fields))
    values = getattr(message, field.name)
    if rng.random() < 0.2:
        message.ClearField(field.name)
    elif _is_repeated(field):
        if field.message_type is not None:
            if len(values) and rng.random() < 0.8:
                values.add().CopyFrom(rng.choice(list(values))) if rng.random() < 0.5 else values.pop(
                    rng.randrange(len(values))
                )
            else:
                values.add()
        elif len(values) and rng.random() < 0.3:
            values.pop(rng.randrange(len(values)))
        elif len(values) and rng.random() < 0.7:
            values[rng.randrange(len(values))] = _scalar(field, rng)
        else:
            values.append(_scalar(field, rng))
    elif field.message_type is not None:
        if present:
            _change_message(getattr(message, field.name), rng) if message.HasField(field.name) else values.SetInParent()
    else:
        setattr(message, field.name, _scalar(field, rng))


def _scalar(field: Any, rng: random.Random) -> Any:
    if field.enum_type is not None:
        return rng.choice([v.number for v in field.enum_type.values])
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        text = rng.choice(
            [e for e in EXTREMES if isinstance(e, str)] + ["If", "Loop", "Scan", "Einsum", "Conv", "x", "MatMul"]
        )
        safe = text.encode("utf-8", "replace")
        return safe if field.type == field.TYPE_BYTES else safe.decode()
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice([0.0, 1.0, -1.0, 1e30, math.inf, math.nan])
    if kind == field.CPPTYPE_INT32:
        return rng.choice([0, 1, -1, 2, 7, 8, 100, 2**31 - 1, -(2**31)])
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return rng.choice([0, 1, 2, 2**31])
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    return rng.choice([0, 1, -1, 2, 3, 8, 1000, 2**31, 2**40, 2**63 - 1, -(2**63)])


def xml_file(content: bytes, rng: random.Random) -> bytes:
    """Attributes, texts and elements of an XML file."""
    root = ElementTree.fromstring(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        parents = list(root.iter())
        element = rng.choice(parents)
        way = rng.random()
        if way < 0.6 and element.attrib:
            name = rng.choice(sorted(element.attrib))
            text = str(
                rng.choice([e for e in EXTREMES if not isinstance(e, str)] + ["f32", "i64", "Parameter", "-1", "1,2,3"])
            )
            element.set(name, text[:300])
        elif way < 0.7 and element.attrib:
            del element.attrib[rng.choice(sorted(element.attrib))]
        elif way < 0.8 and len(element):
            element.remove(rng.choice(list(element)))
        elif way < 0.9 and len(element):
            element.append(copy.deepcopy(rng.choice(list(element))))
        else:
            element.text = rng.choice(["", "1", "-1", "99999999999999999999", "x"])
    return ElementTree.tostring(root)


def zip_file(content: bytes, rng: random.Random) -> bytes:
    """Entries of an archive: their JSON, their names, their bytes."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    documents = [i for i, (name, data) in enumerate(entries) if name.endswith(".json") and data[:1] in b"{["]
    at, way = rng.randrange(len(entries)), rng.random()
    if way < 0.85 and documents:
        at = rng.choice(documents)
        entries[at] = (entries[at][0], json_file(entries[at][1], rng))
    elif way < 0.9:
        del entries[at]
    elif way < 0.95:
        entries.append((rng.choice(["../x", "/x", entries[at][0].upper(), entries[at][0] + "x"]), entries[at][1]))
    else:
        entries[at] = (entries[at][0], raw(entries[at][1], rng))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return written.getvalue()


def safetensors_file(content: bytes, rng: random.Random) -> bytes:
    """The header's trees (settings, types, shapes), and weights."""
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    meta, way = header["__metadata__"], rng.random()
    if way < 0.75:
        name = rng.choice(["settings", "settings", "settings", "op_types", "history"])
        meta[name] = json.dumps(changed_tree(json.loads(meta[name]), rng))
    elif way < 0.85:
        header = changed_tree(header, rng)
    else:
        values = bytearray(data)
        for _ in range(rng.choice([1, 10, 100])):
            at = 4 * rng.randrange(len(values) // 4)
            values[at : at + 4] = struct.pack("<f", rng.choice([0.0, 1.0, -1e3, 1e10, 3e38, math.inf, math.nan]))
        data = bytes(values)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def checkpoint_file(content: bytes, rng: random.Random) -> bytes:
    """The tree of a training's checkpoint, tensors and all."""
    import torch

    document = torch.load(io.BytesIO(content), weights_only=True)
    tensors = [
        torch.zeros(0),
        torch.ones(3),
        torch.tensor(1),
        torch.full((2, 2), math.nan),
        torch.zeros(5, dtype=torch.int32),
    ]
    plain = [e for e in EXTREMES if not isinstance(e, int) or abs(e) < 2**63]
    is_gentle = rng.random() < 0.4  # another training might have written it, so that the reader gets to the end
    state = document["state"] if is_gentle else changed_tree(document["state"], rng, [*plain, *tensors, *tensors])
    found = [p for p in places(state) if p]
    if found and (is_gentle or rng.random() < 0.4):  # numbers inside a tensor
        parent = state
        path = rng.choice(found)
        for key in path[:-1]:
            parent = parent[key]
        value = parent[path[-1]]
        if isinstance(value, torch.Tensor) and value.numel():
            value = value.clone()
            flat = value.view(-1)
            if value.is_floating_point():
                number = rng.uniform(-0.1, 0.1) if is_gentle else rng.choice([-1.0, 1e30, math.nan])
            else:
                number = rng.choice([0, 1] if is_gentle else [-1, 0, 1, 100, 2**30])
            flat[rng.randrange(len(flat))] = number % 256 if value.dtype == torch.uint8 else number
            parent[path[-1]] = value
    written = io.BytesIO()
    torch.save({**document, "state": state}, written)
    return written.getvalue()


MUTATORS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": json_file, "lines": json_lines, "toml": toml_file, "sqlite": sqlite_file, "onnx": onnx_file,
    "xml": xml_file, "zip": zip_file, "safetensors": safetensors_file, "checkpoint": checkpoint_file,
}  # fmt: skip
