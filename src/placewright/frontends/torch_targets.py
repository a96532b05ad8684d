"""What a ``.pt2`` program may call: an operator that torch has, or one of few functions on numbers.

A name is looked up in tables and in torch's own registry of operators. It is never followed from attribute to
attribute until that registry has it, and it never causes an import.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from placewright.errors import InputError
from placewright.frontends.document import Misfit
from placewright.text import shown

# Functions on sizes, by the module that torch writes.
_ON_NUMBERS = {
    "_operator": (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "pos", "pow", "and_", "or_", "not_", "lshift",
        "rshift", "eq", "ne", "lt", "le", "gt", "ge",
    ),
    "math": ("ceil", "floor", "trunc", "sqrt"),
    "torch": ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum", "_sym_sqrt"),
}  # fmt: skip
FUNCTIONS = {f"{module}.{name}" for module, names in _ON_NUMBERS.items() for name in names}
_GROWING = ("_operator.pow", "_operator.lshift")  # numbers of any length come from them
_LARGEST_EXPONENT = 64

_OPERATOR = re.compile(r"torch\.ops\.(?!higher_order\.)(_?[A-Za-z]\w*)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)", re.ASCII)
_HIGHER = re.compile(r"torch\.ops\.higher_order\.([A-Za-z]\w*)", re.ASCII)
_UNBATCHED = re.compile(r"torch\._functorch\.predispatch\._?[a-z]\w*", re.ASCII)  # vmap before it is worked out

# Operators that call graphs of the program itself.
HIGHER_ORDER = (
    "cond", "while_loop", "scan", "map_impl", "associative_scan", "wrap_with_set_grad_enabled", "wrap_with_autocast",
)  # fmt: skip
# Namespaces of operators that compute; others reach for files, networks, libraries and torch's own state.
NAMESPACES = ("aten", "prims", "quantized_decomposed", "torchvision")
# The only operators without a tensor to compute from: they make one. (``aten::from_file`` opens one.)
_FACTORIES = {
    "arange", "bartlett_window", "blackman_window", "empty", "empty_permuted", "empty_strided", "eye", "fft_fftfreq",
    "fft_rfftfreq", "full", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "normal", "ones",
    "rand", "randint", "randn", "randperm", "range", "scalar_tensor", "tril_indices", "triu_indices", "zeros", "iota",
    "uniform",
}  # fmt: skip
# The only operators without a result: they check something.
_CHECKS = {
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_linalg_check_errors", "sym_constrain_range",
    "sym_constrain_range_for_size",
}  # fmt: skip


def check_target(value: Any) -> str:
    """A check of a document: the form of what can be called, whether or not torch has it here.

    >>> check_target("torch.ops.mylib.my_op.default")
    'torch.ops.mylib.my_op.default'
    >>> try:
    ...     check_target("torch.ops.load_library")
    ... except Misfit as misfit:
    ...     print(misfit)
    calls 'torch.ops.load_library', which is no operator
    """
    if not isinstance(value, str) or len(value) > 300:
        raise Misfit("is not the name of an operator")
    if value not in FUNCTIONS and not any(form.fullmatch(value) for form in (_OPERATOR, _HIGHER, _UNBATCHED)):
        raise Misfit(f"calls '{shown(value)}', which is no operator")
    return value


def check_runnable(node: dict[str, Any], where: str) -> None:
    """Refuse a node that torch here cannot run, or may not run for a file's sake."""
    target = node["target"]
    if target in FUNCTIONS:
        if target in _GROWING and not _is_small(node["inputs"]):
            raise InputError(f"{where}: calls '{target}' with an exponent that is not small, and is not run")
    elif higher := _HIGHER.fullmatch(target):
        if higher[1] not in HIGHER_ORDER:
            raise InputError(
                f"{where}: calls '{target}', an operator that is not run; supported: {', '.join(HIGHER_ORDER)}"
            )
    elif (parts := _OPERATOR.fullmatch(target)) is None or not _is_known(*parts.groups()):
        raise InputError(
            f"{where}: calls '{shown(target)}', an operator that torch does not know here, so it cannot be run; "
            "export the model without custom operators"
        )
    elif not _computes(*parts.groups()):
        raise InputError(f"{where}: calls '{shown(target)}', which does more than compute, and is not run")


def _is_small(inputs: list[dict[str, Any]]) -> bool:
    exponent = inputs[-1]["arg"].get("as_int") if len(inputs) == 2 else None
    return exponent is not None and 0 <= exponent <= _LARGEST_EXPONENT


@cache
def _registered() -> frozenset[str]:
    import torch

    return frozenset(torch._C._dispatch_get_all_op_names())


def _full_name(namespace: str, name: str, overload: str) -> str:
    return f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}")


def _is_known(namespace: str, name: str, overload: str) -> bool:
    return _full_name(namespace, name, overload) in _registered()


@cache
def _computes(namespace: str, name: str, overload: str) -> bool:
    """Whether an operator makes tensors or numbers out of tensors, by its declaration and the tables above."""
    import torch

    if namespace not in NAMESPACES:
        return False
    schema: Any = torch._C._get_schema(f"{namespace}::{name}", "" if overload == "default" else overload)
    takes_tensors = any("Tensor" in str(a.type) for a in schema.arguments)
    return (takes_tensors or name in _FACTORIES or name in _CHECKS) and (bool(schema.returns) or name in _CHECKS)
