"""What processes of a pool are asked to do; a module of its own, so that fresh interpreters import little."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright import Placement, Problem, load, place
from placewright.errors import CycleError, InputError, MissingExtraError
from placewright.evaluate import evaluate_many
from placewright.execute.dataflow import ExecutionError


def small_problem(**options: Any) -> Problem:
    return load("zoo:fork-join?blocks=1", cluster="p100x2", **options)


def values(problem: Problem, threads: int = 2) -> list[float]:
    """Values of some placements, by the pool of threads."""
    rows = np.random.default_rng(0).integers(0, problem.n_devices, (64, problem.n_ops))
    return evaluate_many(problem, rows, threads=threads).value.tolist()


def placed(problem: Problem, placer: str = "topo") -> Placement:
    return place(problem, placer, budget=60.0)


def fail(kind: str) -> None:
    errors: dict[str, Exception] = {
        "input": InputError("the op 'x' is not there"),
        "cycle": CycleError("a -> b -> a", [0, 1]),
        "missing": MissingExtraError("torch", "torch"),
        "execution": ExecutionError("device 'cpu0': out of memory"),
    }
    raise errors[kind]


def fail_by_itself(case: str) -> Any:
    """Errors as the package raises them."""
    if case == "model":
        return load("zoo:no-such-model")
    from placewright.graph import build_graph

    return build_graph("circle", ["a", "b"], [(0, 1.0, [1]), (1, 1.0, [0])])


def run_torch_workers() -> float:
    """Jobs in threads that outlive them, and an operator that torch spreads over threads of its own."""
    import torch

    from placewright.execute.torch_workers import run_together

    done: list[str] = []
    run_together(
        lambda: done.append("here"), [("one", lambda: done.append("one")), ("two", lambda: done.append("two"))]
    )
    assert sorted(done) == ["here", "one", "two"]
    return float(torch.nn.functional.gelu(torch.ones(1_000_000)).sum())
