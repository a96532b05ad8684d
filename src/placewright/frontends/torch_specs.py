"""How a program's inputs and outputs are nested: torch's tree specifications, read and written without torch.

torch would import the modules that a specification names. Here a specification becomes tuples, lists and dicts; every
other class of container that programs are known to use is a row of a table that says which of the three it becomes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from placewright.frontends.document import Misfit, kind
from placewright.text import shown

_MOST_KEYS_LENGTH = 1000
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

Form = Literal["tuple", "list", "dict", "ordered dict"]
_WRITTEN = {
    "tuple": "builtins.tuple", "list": "builtins.list", "dict": "builtins.dict",
    "ordered dict": "collections.OrderedDict",
}  # fmt: skip


class Container(NamedTuple):
    """One row: a pattern of class names, what becomes of them, and the field of their context that holds the keys."""

    classes: str
    form: Form
    keys: str = ""  # "" where the context itself is the list of keys
    is_plain: bool = False  # whether nothing is lost, so that inputs may have it


CONTAINERS = (
    Container(r"builtins\.tuple", "tuple", is_plain=True),
    Container(r"builtins\.list", "list", is_plain=True),
    Container(r"builtins\.dict", "dict", is_plain=True),
    Container(r"collections\.OrderedDict", "ordered dict", is_plain=True),
    Container(r"collections\.defaultdict", "dict", keys="dict_context"),
    Container(r"collections\.(namedtuple|deque)", "tuple"),
    Container(r"torch\.return_types\.\w+", "tuple"),
    Container(r"(transformers|diffusers)(\.\w+)*\.\w+Output\w*", "dict"),
)
_OTHER = Container(".*", "tuple")


class Tree(NamedTuple):
    """A specification: a leaf if ``form`` is empty."""

    form: Form | Literal[""]
    children: tuple[Tree, ...] = ()
    keys: tuple[str | int, ...] = ()
    lost_class: str = ""  # of the file's container where it was not one of the plain ones

    @property
    def n_leaves(self) -> int:
        return sum(c.n_leaves for c in self.children) if self.form else 1

    def lost_classes(self) -> list[str]:
        """Classes that became plain containers, outermost first."""
        return [*([self.lost_class] if self.lost_class else []), *(n for c in self.children for n in c.lost_classes())]


def read_tree(value: Any) -> Tree:
    """A check of a document: the text of a specification as a tree.

    >>> read_tree('[1, {"type": "builtins.list", "context": "null", "children_spec": []}]')
    Tree(form='list', children=(), keys=(), lost_class='')
    """
    if not isinstance(value, str) or len(value) > 1_000_000:
        raise Misfit("is not a tree specification")
    try:
        protocol, spec = json.loads(value)
        if protocol != 1:
            raise Misfit("is a tree specification of another version than 1")
        return _tree(spec)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, Misfit):
            raise
        raise Misfit("is not a tree specification") from error


def written_tree(tree: Tree) -> str:
    """The text of a specification that holds plain containers only."""
    return json.dumps([1, _written(tree)])


def _written(tree: Tree) -> dict[str, Any]:
    if not tree.form:
        return {"type": None, "context": None, "children_spec": []}
    context = json.dumps(list(tree.keys)) if tree.form.endswith("dict") else "null"
    return {
        "type": _WRITTEN[tree.form],
        "context": context,
        "children_spec": [_written(child) for child in tree.children],
    }


def _tree(spec: Any) -> Tree:
    if not isinstance(spec, dict) or set(spec) != {"type", "context", "children_spec"}:
        raise Misfit("is not a tree specification")
    name, context, children = spec["type"], spec["context"], spec["children_spec"]
    if not isinstance(children, list):
        raise Misfit("is not a tree specification")
    if name is None:
        if context is not None or children:
            raise Misfit("has a leaf with contents")
        return Tree("")
    if not isinstance(name, str) or len(name) > 300 or _CLASS.fullmatch(name) is None:
        raise Misfit("has a container whose class has no name")
    row = next((r for r in CONTAINERS if re.fullmatch(r.classes, name)), _OTHER)
    plain_context = _context(context)
    keys = _keys(plain_context, row, len(children)) if row.form.endswith("dict") else ()
    made = tuple(_tree(child) for child in children)
    return Tree(row.form, made, keys, "" if row.is_plain else name)


def _context(context: Any) -> Any:
    """What is known of a container besides its class; texts hold JSON. An object in it may stand for a class."""
    is_json = isinstance(context, str) and (context[:1] in ("[", "{") or context == "null")
    plain = json.loads(context) if is_json else context
    todo = [plain]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if any("__" in key for key in part) or any(key in part for key in ("fqn", "enum")):
                raise Misfit("names a class in the context of a container")
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return plain


def _keys(context: Any, row: Container, expected: int) -> tuple[str | int, ...]:
    if row.keys:
        module = context.get("default_factory_module") if isinstance(context, dict) else ""
        if module != "builtins":
            raise Misfit(f"names the module '{shown(str(module), 60)}' in the context of a container")
        context = context.get(row.keys)
    if not isinstance(context, list):
        raise Misfit(f"has {kind(context)} where the keys of a dict belong")
    is_sound = all(type(k) is int or (isinstance(k, str) and len(k) <= _MOST_KEYS_LENGTH) for k in context)
    if not is_sound or len(set(context)) != len(context) or len(context) != expected:
        raise Misfit("has keys that do not fit the contents of a dict")
    return tuple(context)


def keyword_names(tree: Tree) -> Sequence[str | int]:
    """The names of inputs that are handed over by name."""
    return tree.children[1].keys if len(tree.children) == 2 else ()
