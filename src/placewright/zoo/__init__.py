"""Models built from code, by name: ``zoo:NAME?option=value&…``. Nothing is downloaded and no weights are allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.errors import InputError, MissingExtraError
from placewright.graph import OpGraph
from placewright.zoo.catalogue import MODELS, Choice, chosen_model
from placewright.zoo.tape import Tape, tape_graph

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["MODELS", "built_graph", "chosen_model", "zoo_graph", "zoo_module", "zoo_tape"]


def zoo_graph(reference: str) -> OpGraph:
    """Build the graph of ``NAME`` or ``NAME?option=value&…``.

    >>> zoo_graph("chain?ops=5").n_ops
    5
    >>> zoo_graph("resnet-50?batch=8").n_ops
    176
    """
    choice = chosen_model(reference)
    return built_graph(choice, choice.build())


def built_graph(choice: Choice, built: Tape | OpGraph) -> OpGraph:
    """The graph of what ``choice.build()`` gave: of inference, or of a training step if chosen so."""
    graph = tape_graph(built) if isinstance(built, Tape) else built
    if not choice.training:
        return graph
    from placewright.frontends.training import mirror_training

    return mirror_training(graph, choice.optimizer)


def zoo_tape(reference: str) -> Tape:
    """The tape (operators, shapes, weights) of a model, always of its inference part."""
    choice = chosen_model(reference)
    built = choice.build()
    if not isinstance(built, Tape):
        raise InputError(f"zoo:{choice.name} is a generated graph without operators that could run")
    return built


def zoo_module(reference: str, seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model as a torch module with random weights, ready for inference, and example inputs for it."""
    tape = zoo_tape(reference)
    try:
        from placewright.zoo.module import tape_module
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "torch") from error
    return tape_module(tape, seed)
