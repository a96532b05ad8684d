"""The two calls most people need: ``load`` a problem, ``place`` it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placewright.budget import Budget
from placewright.cluster import Cluster
from placewright.cluster_file import load_cluster
from placewright.costs.roofline import roofline_profile
from placewright.errors import InputError
from placewright.files import read_json
from placewright.frontends.workload import is_workload, workload_problem
from placewright.placement import Placement
from placewright.placers.base import prepare
from placewright.placers.registry import get_placer
from placewright.problem import Problem, build_problem
from placewright.profile import Profile
from placewright.profile_file import find_profile
from placewright.text import shown
from placewright.zoo import zoo_graph

DEFAULT_CLUSTER = "laptop-npu"


def load(
    model: str | Path,
    cluster: str | Cluster | None = None,
    objective: str | None = None,
    execution: str | None = None,
    profile: str | Path | Profile | None = None,
    **options: Any,
) -> Problem:
    """Load a model as a problem.

    ``model`` is a published problem (``.json``), which brings devices and costs along, or ``zoo:NAME``. ``cluster``
    is a preset, a TOML file or a :class:`Cluster`; costs are modelled unless a ``profile`` is given. Further
    ``options`` are fields of :class:`Problem`, such as ``contiguous=False``.

    >>> load("zoo:chain?ops=3", cluster="p100x2", objective="throughput").execution
    'pipeline'
    """
    text = str(model)
    if text.startswith("zoo:"):
        graph = zoo_graph(text.removeprefix("zoo:"))
        chosen = cluster if isinstance(cluster, Cluster) else load_cluster(cluster or DEFAULT_CLUSTER)
        costs = find_profile(profile, graph) if isinstance(profile, (str, Path)) else profile
        problem = build_problem(graph, chosen, costs or roofline_profile(graph, chosen))
    else:
        problem = _published(text, has_cluster=cluster is not None or profile is not None)
    return problem.for_objective(objective, execution).with_options(**options)


def place(
    problem: Problem, placer: str = "auto", budget: float | Budget = 30.0, seed: int = 0, **options: Any
) -> Placement:
    """Place a problem with the named placer within ``budget`` seconds; ``options`` go to the placer.

    >>> place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single").status
    'optimal'
    """
    chosen = get_placer(placer, **options)
    if not isinstance(budget, Budget):
        chosen.check_installed()
        prepare(problem)
        chosen.warm_up(problem)
        budget = Budget(seconds=budget)
    return chosen.place(problem, budget, seed)


def _published(path: str, has_cluster: bool) -> Problem:
    where = shown(path, limit=200)
    suffix = Path(path).suffix.lower()
    if suffix in (".xml", ".onnx", ".pt2") and Path(path).is_file():
        raise InputError(f"{where}: models of type '{suffix}' cannot be read yet; expected a published problem (.json)")
    document = read_json(path)
    if not is_workload(document):
        raise InputError(f"{where}: not a published problem: expected an object with 'nodes' and 'edges'")
    if has_cluster:
        raise InputError(f"{where}: holds its own devices and costs; --cluster and --profile do not apply to it")
    return workload_problem(document, where)
