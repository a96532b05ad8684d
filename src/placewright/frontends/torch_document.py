"""The program of a ``.pt2`` archive, made anew out of what is known of its schema (``torch/_export/serde/schema.py``).

Every kind of argument, input and output is a row of a table; what has no row is refused, and fields that nobody here
reads are left behind: stack traces, guards, constraints, notes, the classes of modules. Names become Python code when
torch makes a function of a program, so they are held to the forms that torch itself gives them.
"""

from __future__ import annotations

import keyword
from typing import Any

from placewright.frontends.document import (
    Check,
    Misfit,
    choice,
    count,
    flag,
    kind,
    listed,
    named,
    number,
    one_of,
    optional,
    record,
    text,
    whole,
)
from placewright.frontends.torch_specs import read_tree
from placewright.frontends.torch_targets import check_target

SCHEMA = 8
BITS = {
    1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 16, 7: 32, 8: 64, 9: 32, 10: 64, 11: 128, 12: 8, 13: 16, 28: 16,
    29: 8, 30: 8, 31: 8, 32: 8, 33: 8, 34: 32, 35: 64,
}  # fmt: skip
STRIDED = 7
_DEVICES = ("cpu", "cuda", "xpu", "mps", "meta")
_MOST_RANKS = 64

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_RESERVED = frozenset(keyword.kwlist) | {"self"}  # what no parameter of a function that torch makes can be called
_PLAIN_NAME = text(1000, _IDENTIFIER)
_PART = r"(?!__)[A-Za-z0-9_+:/@ -]+"  # of a path: keys of a ModuleDict may hold more than a name may
path = text(2000, rf"{_PART}(\.{_PART})*")


def name(value: Any) -> str:
    """The name of a value or a node."""
    plain: str = _PLAIN_NAME(value)
    if plain in _RESERVED:
        raise Misfit(f"is '{plain}', which no exported program has there")
    return plain


_EXPRESSION = record(expr_str=text(), hint=optional(one_of({"as_int": whole, "as_float": number, "as_bool": flag})))
sym_int = one_of({"as_int": whole, "as_expr": _EXPRESSION})
_SYM_FLOAT = one_of({"as_float": number, "as_expr": _EXPRESSION})
_SYM_BOOL = one_of({"as_bool": flag, "as_expr": _EXPRESSION})
size = one_of({"as_int": count, "as_expr": _EXPRESSION})
device = record(type=choice(_DEVICES), index=optional(choice(range(1024))))


def _ranks(value: Any) -> list[Any]:
    sizes: list[Any] = listed(size)(value)
    if len(sizes) > _MOST_RANKS:
        raise Misfit(f"has {len(sizes)} dimensions, more than {_MOST_RANKS}")
    return sizes


tensor_meta = record(
    dtype=choice(BITS),
    sizes=_ranks,
    requires_grad=flag,
    device=device,
    strides=listed(sym_int),
    storage_offset=sym_int,
    layout=choice(range(8)),
)

_REF = record(name=name)
_OPTIONAL_TENSOR = one_of({"as_tensor": _REF, "as_none": flag})
_INT, _FLOAT, _BOOL = (
    one_of({"as_name": name, number_kind: check})
    for number_kind, check in (("as_int", whole), ("as_float", number), ("as_bool", flag))
)


def argument(value: Any) -> dict[str, Any]:
    """An argument of a call, or a value that is handed in or out."""
    made: dict[str, Any] = _argument(value)
    return made


def graph(value: Any) -> dict[str, Any]:
    """A graph: that of the program, or one that an operator such as ``cond`` calls."""
    made: dict[str, Any] = _graph(value)
    return made


ARGUMENTS: dict[str, Check] = {
    "as_none": flag,
    "as_tensor": _REF,
    "as_tensors": listed(_REF),
    "as_int": whole,
    "as_ints": listed(whole),
    "as_float": number,
    "as_floats": listed(number),
    "as_string": text(),
    "as_strings": listed(text()),
    "as_sym_int": _INT,
    "as_sym_ints": listed(_INT),
    "as_scalar_type": choice(BITS),
    "as_memory_format": choice(range(1, 5)),
    "as_layout": choice(range(1, 8)),
    "as_device": device,
    "as_bool": flag,
    "as_bools": listed(flag),
    "as_sym_bool": _BOOL,
    "as_sym_bools": listed(_BOOL),
    "as_graph": record(name=name, graph=graph),
    "as_optional_tensors": listed(_OPTIONAL_TENSOR),
    "as_optional_tensor": _OPTIONAL_TENSOR,
    "as_sym_float": _FLOAT,
    "as_sym_floats": listed(_FLOAT),
    "as_complex": record(real=number, imag=number),
    "as_nested_tensors": listed(listed(_REF)),
    "as_int_lists": listed(listed(whole)),
    "as_float_lists": listed(listed(number)),
    "as_string_to_argument": named(name, argument),
    "as_operator": check_target,
}
INPUTS: dict[str, Check] = {
    "user_input": record(arg=argument),
    "parameter": record(arg=_REF, parameter_name=path),
    "buffer": record(arg=_REF, buffer_name=path, persistent=optional(flag, default=True)),
    "tensor_constant": record(arg=_REF, tensor_constant_name=path),
    "constant_input": record(
        name=text(1000, rf"({_IDENTIFIER})?"),
        value=one_of({"as_none": flag, "as_int": whole, "as_float": number, "as_string": text(), "as_bool": flag}),
    ),
    "token": record(arg=_REF),
}
OUTPUTS: dict[str, Check] = {
    "user_output": record(arg=argument),
    "loss_output": record(arg=_REF),
    "buffer_mutation": record(arg=_REF, buffer_name=path),
    "parameter_mutation": record(arg=_REF, parameter_name=path),
    "gradient_to_parameter": record(arg=_REF, parameter_name=path),
    "gradient_to_user_input": record(arg=_REF, user_input_name=name),
    "user_input_mutation": record(arg=_REF, user_input_name=name),
    "token": record(arg=_REF),
}


def _module_stack(value: Any) -> dict[str, str]:
    """Of what is noted about a node only the paths of the modules it came from, which are names and nothing else."""
    stack = value.get("nn_module_stack", "") if isinstance(value, dict) else ""
    return {"nn_module_stack": stack} if isinstance(stack, str) and stack else {}


_argument = one_of(ARGUMENTS)
_NODE = record(
    target=check_target,
    inputs=listed(
        record(name=optional(text(1000, rf"({_IDENTIFIER})?"), ""), arg=argument, kind=optional(choice(range(3))))
    ),
    outputs=listed(argument),
    metadata=optional(_module_stack, dict),
    is_hop_single_tensor_return=optional(flag),
    name=optional(text(1000, rf"({_IDENTIFIER})?")),
)
_graph = record(
    inputs=listed(argument),
    outputs=listed(argument),
    nodes=listed(_NODE),
    tensor_values=named(name, tensor_meta),
    sym_int_values=named(name, sym_int),
    sym_bool_values=named(name, _SYM_BOOL),
    is_single_tensor_return=optional(flag, default=False),
    sym_float_values=optional(named(name, _SYM_FLOAT), dict),
)
_CALL = record(
    inputs=listed(argument),
    outputs=listed(argument),
    in_spec=read_tree,
    out_spec=read_tree,
    forward_arg_names=optional(listed(name)),
)


def _root_call(value: Any) -> dict[str, Any] | None:
    """How the program itself is called; how its modules were is left behind."""
    if not isinstance(value, list):
        raise Misfit(f"is {kind(value)}, expected a list")
    for entry in value:
        if isinstance(entry, dict) and entry.get("fqn") == "" and entry.get("signature") is not None:
            call: dict[str, Any] = _CALL(entry["signature"])
            return call
    return None


PROGRAM = record(
    graph_module=record(
        graph=graph,
        signature=record(input_specs=listed(one_of(INPUTS)), output_specs=listed(one_of(OUTPUTS))),
        module_call_graph=optional(_root_call),
    ),
    range_constraints=optional(
        named(text(), record(min_val=optional(whole), max_val=optional(whole))), dict
    ),  # by symbols; only compared
    schema_version=record(major=choice((SCHEMA,)), minor=count),
    verifiers=optional(listed(choice(("ATEN", "TRAINING", "EDGE"))), list),
)
