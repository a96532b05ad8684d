"""Sizes that torch programs give as expressions of open sizes, evaluated without running them as code."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

_LONGEST = 1000  # characters; a longer expression is not worked out
_LARGEST_BITS = 128  # of a number on the way
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: _power(base, exponent),
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "Add": lambda *terms: sum(terms),
    "Mul": lambda *factors: math.prod(factors),
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "Pow": lambda base, exponent: _power(base, exponent),
    "PowByNatural": lambda base, exponent: _power(base, exponent),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
}


def size_of(expression: str, symbols: dict[str, int]) -> int | None:
    """Value of a size expression; ``None`` where it holds an unknown symbol or anything but plain arithmetic.

    >>> size_of("2*s0 + 1", {"s0": 3}), size_of("Mul(Integer(2), Symbol('s0', integer=True))", {"s0": 3})
    (7, 6)
    >>> size_of("open('file')", {})
    """
    try:
        return _value(ast.parse(expression, mode="eval").body, symbols) if len(expression) <= _LONGEST else None
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


def symbol_of(expression: str) -> str | None:
    """The symbol that an expression consists of, ``None`` if it is more than a symbol.

    >>> symbol_of("s0"), symbol_of("Symbol('s0', integer=True)"), symbol_of("2*s0")
    ('s0', 's0', None)
    """
    try:
        return _symbol(ast.parse(expression, mode="eval").body) if len(expression) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _symbol(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if (
        _called(node) == "Symbol"
        and isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ):
        return str(node.args[0].value)
    return None


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _value(node: ast.AST, symbols: dict[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    name = _symbol(node)
    if name is not None:
        return symbols.get(name)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, symbols)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _applied(_OPERATORS[type(node.op)], [node.left, node.right], symbols)
    if isinstance(node, ast.Call) and _called(node) == "Integer" and len(node.args) == 1:
        return _value(node.args[0], symbols)
    if isinstance(node, ast.Call) and _called(node) in _FUNCTIONS:
        return _applied(_FUNCTIONS[_called(node)], node.args, symbols)
    return None


def _applied(function: Callable[..., int], arguments: list[ast.expr], symbols: dict[str, int]) -> int | None:
    values = [_value(a, symbols) for a in arguments]
    if None in values:
        return None
    result = function(*values)
    if result.bit_length() > _LARGEST_BITS:
        raise OverflowError("larger than any size")
    return result


def _power(base: int, exponent: int) -> int:
    if exponent < 0 or base.bit_length() * exponent > 2 * _LARGEST_BITS:
        raise OverflowError("larger than any size")
    return int(base**exponent)
