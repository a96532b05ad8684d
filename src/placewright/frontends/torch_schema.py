"""Documents as objects of torch's schema (``torch/_export/serde/schema.py``), which its deserializer takes.

Torch has a function for this that works out the types of every field anew for each object: most of the time that
loading a program takes.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any


def schema_object(document: dict[str, Any]) -> Any:
    """A checked document as the schema's ``ExportedProgram``."""
    from torch._export.serde import schema

    return _maker(schema.ExportedProgram)(document)


@cache
def _maker(hint: Any) -> Callable[[Any], Any]:
    """The function that makes what a field's type says out of plain JSON."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (present,) = (a for a in arguments if a is not type(None))
        return lambda value: None if value is None else _maker(present)(value)
    if origin is list:
        return lambda value: [_maker(arguments[0])(item) for item in value]
    if origin is dict:
        return lambda value: {key: _maker(arguments[1])(item) for key, item in value.items()}
    if not dataclasses.is_dataclass(hint):
        return lambda value: value
    return _record_maker(hint)


def _record_maker(kind: Any) -> Callable[[Any], Any]:
    from torch._export.serde import schema
    from torch._export.serde.union import _Union

    hints = typing.get_type_hints(kind, globalns=vars(schema))
    if issubclass(kind, _Union):

        def one_of(value: dict[str, Any]) -> Any:
            ((name, part),) = value.items()
            return kind.create(**{name: _maker(hints[name])(part)})

        return one_of
    names = [f.name for f in dataclasses.fields(kind)]
    return lambda value: kind(**{name: _maker(hints[name])(value[name]) for name in names if name in value})
