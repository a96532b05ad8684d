"""Models built from code, by name: ``zoo:NAME?option=value&…``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from urllib.parse import parse_qsl

from placewright.errors import InputError, suggestion
from placewright.graph import OpGraph
from placewright.text import shown
from placewright.zoo import synthetic

MODELS: dict[str, Callable[..., OpGraph]] = {
    "layered": synthetic.layered,
    "fork-join": synthetic.fork_join,
    "chain": synthetic.chain,
}


def zoo_graph(reference: str) -> OpGraph:
    """Build the graph of ``NAME`` or ``NAME?option=value&…``.

    >>> zoo_graph("chain?ops=5").n_ops
    5
    """
    name, _, query = reference.partition("?")
    if name not in MODELS:
        raise InputError(f"unknown model 'zoo:{shown(name)}'; {suggestion(name, MODELS)}")
    parameters = inspect.signature(MODELS[name]).parameters
    options: dict[str, float] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in parameters:
            raise InputError(f"zoo:{name} has no option '{shown(key)}'; {suggestion(key, parameters)}")
        options[key] = _number(name, key, value, whole=isinstance(parameters[key].default, int))
    return MODELS[name](**options)


def _number(name: str, key: str, value: str, whole: bool) -> float:
    try:
        return int(value) if whole else float(value)
    except ValueError:
        expected = "a whole number" if whole else "a number"
        raise InputError(f"zoo:{name}: option '{key}' is '{shown(value)}', expected {expected}") from None
