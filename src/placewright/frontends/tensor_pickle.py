"""Tensors out of what ``torch.save`` wrote, without unpickling.

A pickle is a program that may call anything. The few instructions that plain tensors in tuples, lists and dicts need
are followed here, and what they may make is a row of a table; anything else is refused, before it has any effect.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from placewright.errors import InputError
from placewright.frontends.archive_entries import Entry, read_entries
from placewright.text import shown

_ENTRY = re.compile(
    r"data\.pkl|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id|data/\d+"
)
_LONGEST = 64 << 20  # bytes of instructions
_MOST_VALUES = 1_000_000

# Scalar types by the names that a pickle gives to storages and to types; the numbers are those of the schema.
_STORAGES = {
    "ByteStorage": 1, "CharStorage": 2, "ShortStorage": 3, "IntStorage": 4, "LongStorage": 5, "HalfStorage": 6,
    "FloatStorage": 7, "DoubleStorage": 8, "ComplexFloatStorage": 10, "ComplexDoubleStorage": 11, "BoolStorage": 12,
    "BFloat16Storage": 13,
}  # fmt: skip
_TYPES = {
    "uint16": 28, "float8_e4m3fn": 29, "float8_e5m2": 30, "float8_e4m3fnuz": 31, "float8_e5m2fnuz": 32,
    "float8_e8m0fnu": 33, "uint32": 34, "uint64": 35,
}  # fmt: skip


class RawTensor(NamedTuple):
    """A tensor as bytes, and how to look at them; tensors that share their bytes have the same view of them."""

    data: memoryview
    dtype: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    requires_grad: bool
    is_parameter: bool = False


class _Refused(ValueError):
    pass


class _Mark:
    pass


class _Global(NamedTuple):
    name: str


class _Storage(NamedTuple):
    data: memoryview
    dtype: int


def read_saved(data: memoryview, what: str, where: str) -> Any:
    """What ``torch.save`` put into ``data``: tensors as :class:`RawTensor`, in tuples, lists and dicts."""
    entries = read_entries(data, f"{where}: {what}")
    roots = {name.partition("/")[0] for name in entries}
    inner = {name.partition("/")[2]: entry for name, entry in entries.items()}
    odd = next((n for n in inner if _ENTRY.fullmatch(n) is None), None)
    if odd is not None or len(roots) != 1 or "data.pkl" not in inner:
        raise InputError(f"{where}: {what} is no plain file of torch.save ('{shown(odd or 'no data.pkl')}')")
    if inner.get("byteorder") is not None and bytes(inner["byteorder"].data[:16]) != b"little":
        raise InputError(f"{where}: {what} is not of a little-endian machine")
    bad = next((n for n, entry in inner.items() if not entry.is_whole()), None)
    if bad is not None:
        raise InputError(f"{where}: {what} is damaged ('{shown(bad)}')")
    try:
        value = _Machine(inner).run(inner["data.pkl"].data)
        _check_extent(value)
    except (ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        told = str(error) if isinstance(error, _Refused) else f"{type(error).__name__} {error}"
        raise InputError(f"{where}: {what} holds more than plain tensors: {shown(told, 100)}") from error
    return value


class _Machine:
    """Follows the instructions; ``stack`` and ``memo`` hold plain values, raw tensors and names from the table."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, code: memoryview) -> Any:
        if len(code) > _LONGEST:
            raise _Refused(f"its pickle has {len(code)} bytes")
        for instruction, argument, _ in pickletools.genops(bytes(code)):
            if instruction.name == "STOP":
                (value,) = self.stack
                return value
            if instruction.name in _CONSTANTS:
                self.stack.append(_CONSTANTS[instruction.name]())
            elif instruction.name in _LITERALS:
                self.stack.append(argument)
            elif instruction.name in _ACTIONS:
                _ACTIONS[instruction.name](self, argument)
            elif instruction.name != "PROTO":
                raise _Refused(f"its pickle has the instruction {instruction.name}")
        raise _Refused("its pickle has no end")

    def until_mark(self) -> list[Any]:
        at = max(i for i, item in enumerate(self.stack) if isinstance(item, _Mark))
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def put(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def get(self, key: int) -> None:
        self.stack.append(self.memo[key])

    def name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        full = f"{module}.{name}"
        if full not in _MADE and not (module == "torch" and (name in _STORAGES or name in _TYPES)):
            raise _Refused(f"its pickle names '{shown(full, 60)}'")
        self.stack.append(_Global(full))

    def close_tuple(self, n: int | None) -> None:
        if n is None:
            self.stack.append(tuple(self.until_mark()))
        else:
            if len(self.stack) < n:
                raise _Refused("its pickle is damaged")
            items = self.stack[-n:]
            del self.stack[-n:]
            self.stack.append(tuple(items))

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise _Refused("its pickle is damaged")
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise _Refused("its pickle is damaged")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int)):
                raise _Refused("its pickle has a key that is no name")
            self.stack[-1][key] = value

    def pop(self) -> Any:
        return self.stack.pop()

    def storage(self) -> None:
        mark, kind, key, _, n_elements = self.pop()
        if mark != "storage" or not isinstance(kind, _Global) or not isinstance(key, str) or not key.isdigit():
            raise _Refused("its pickle is damaged")
        name = kind.name.removeprefix("torch.")
        dtype = 1 if kind.name == "torch.storage.UntypedStorage" else _STORAGES[name]
        if type(n_elements) is not int or n_elements < 0:
            raise _Refused("its pickle is damaged")
        self.stack.append(_Storage(self.entries[f"data/{key}"].data, dtype))

    def reduce(self) -> None:
        arguments, made = self.pop(), self.pop()
        if not isinstance(made, _Global) or made.name not in _MADE or type(arguments) is not tuple:
            raise _Refused("its pickle calls something that is no tensor")
        self.stack.append(_MADE[made.name](*arguments))


def _tensor(
    storage: Any,
    offset: Any,
    sizes: Any,
    strides: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any = None,
    extra: Any = None,
) -> RawTensor:
    if not isinstance(storage, _Storage) or hooks not in ({}, None) or extra not in ({}, None):
        raise _Refused("its pickle has a tensor with more than numbers")
    if dtype is not None and not isinstance(dtype, _Global):
        raise _Refused("its pickle is damaged")
    number = storage.dtype if dtype is None else _TYPES[dtype.name.removeprefix("torch.")]
    whole = [offset, *sizes, *strides]
    if not all(type(n) is int and 0 <= n < 2**63 for n in whole) or type(requires_grad) is not bool:
        raise _Refused("its pickle has a tensor of impossible sizes")
    return RawTensor(storage.data, number, tuple(sizes), tuple(strides), offset, requires_grad)


def _parameter(data: Any, requires_grad: Any, hooks: Any) -> RawTensor:
    if not isinstance(data, RawTensor) or type(requires_grad) is not bool or hooks not in ({}, None):
        raise _Refused("its pickle has a tensor with more than numbers")
    return data._replace(requires_grad=requires_grad, is_parameter=True)


def _ordered(*items: Any) -> dict[Any, Any]:
    if items:
        raise _Refused("its pickle has a dict made of something else")
    return {}


# What a pickle may make, by the names it uses for that.
_MADE: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.storage.UntypedStorage": lambda *_: None,
    "collections.OrderedDict": _ordered,
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "MARK": _Mark,
}
_LITERALS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE")
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": _Machine.name,
    "TUPLE": lambda machine, _: machine.close_tuple(None),
    "TUPLE1": lambda machine, _: machine.close_tuple(1),
    "TUPLE2": lambda machine, _: machine.close_tuple(2),
    "TUPLE3": lambda machine, _: machine.close_tuple(3),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.until_mark()),
    "SETITEM": lambda machine, _: machine.update([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.update(machine.until_mark()),
    "BINPERSID": lambda machine, _: machine.storage(),
    "REDUCE": lambda machine, _: machine.reduce(),
}


def _check_extent(value: Any) -> None:
    """Containers may share parts, so a short pickle can stand for more values than there is memory for."""
    todo, n_values = [value], 0
    while todo:
        part = todo.pop()
        n_values += 1
        if n_values > _MOST_VALUES:
            raise _Refused("its pickle stands for too many values")
        if type(part) is dict:
            todo += part.values()
        elif type(part) in (tuple, list):
            todo += part
        elif not (part is None or type(part) in (bool, int, float, str, RawTensor)):
            raise _Refused("its pickle holds something that is no tensor")
