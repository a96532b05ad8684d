"""What a placement costs, whether it is allowed, and what no placement can beat. One evaluator per execution model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placewright.evaluate.batch import BatchResult, evaluate_many
    from placewright.evaluate.bounds import lower_bound
    from placewright.evaluate.checking import Fault, check, prove_infeasible
    from placewright.evaluate.single import Evaluation, Slice, evaluate, timeline

__all__ = [
    "BatchResult",
    "Evaluation",
    "Fault",
    "Slice",
    "check",
    "evaluate",
    "evaluate_many",
    "lower_bound",
    "prove_infeasible",
    "timeline",
]

_HOME = {
    "BatchResult": "batch",
    "evaluate_many": "batch",
    "lower_bound": "bounds",
    "Fault": "checking",
    "check": "checking",
    "prove_infeasible": "checking",
    "Evaluation": "single",
    "Slice": "single",
    "evaluate": "single",
    "timeline": "single",
}


def __getattr__(name: str) -> Any:
    # Late, so that importing the package costs next to nothing.
    if name not in _HOME:
        raise AttributeError(name)
    return getattr(import_module(f"placewright.evaluate.{_HOME[name]}"), name)
