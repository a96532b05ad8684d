"""The two calls most people need: ``load`` a problem, ``place`` it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placewright.budget import Budget
from placewright.cluster import Cluster
from placewright.cluster_file import load_cluster
from placewright.constraints import Constraints, read_constraints
from placewright.costs.roofline import roofline_profile
from placewright.errors import InputError
from placewright.extras import require
from placewright.files import read_json
from placewright.frontends.registry import find_frontend, model_suffixes, read_model
from placewright.frontends.workload import is_workload, workload_problem
from placewright.graph import OpGraph
from placewright.placement import Placement
from placewright.placers.base import make_ready
from placewright.placers.registry import get_placer
from placewright.problems import Problem, build_problem
from placewright.profile_file import find_profile
from placewright.profiles import Profile
from placewright.reading import reading
from placewright.text import shown
from placewright.zoo import zoo_graph

DEFAULT_CLUSTER = "laptop-npu"


def load(
    model: Any,
    cluster: str | Cluster | None = None,
    objective: str | None = None,
    execution: str | None = None,
    profile: str | Path | Profile | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    training: bool = False,
    optimizer: str = "adam",
    constraints: str | Path | Constraints | None = None,
    **options: Any,
) -> Problem:
    """Load a model as a problem.

    ``model`` is a published problem (``.json``), which brings devices and costs along, ``zoo:NAME``, ``hf:DIR`` (a
    checkpoint folder, with devices and modelled costs), an :class:`OpGraph`, a model file (``.xml``, ``.onnx``,
    ``.pt2``) or a live model: ``openvino.Model``, ``onnx_ir.Model``, ``torch.export.ExportedProgram``, or (torch
    module, example inputs). ``shapes`` fixes the shapes of a model's inputs by name; ``training`` asks for a training
    step, updates by ``optimizer`` (sgd, momentum, adam) included. ``cluster`` is a preset, a TOML file or a
    :class:`Cluster`; costs are modelled unless a ``profile`` is given. ``constraints`` is a TOML file or
    :class:`Constraints`. Further ``options`` are fields of :class:`Problem`, such as ``contiguous=False``.

    >>> load("zoo:chain?ops=3", cluster="p100x2", objective="throughput").execution
    'pipeline'
    """
    is_checkpoint = isinstance(model, str) and model.startswith("hf:")
    graph = None if is_checkpoint else _graph(model, shapes or {}, training, optimizer)
    if is_checkpoint:
        problem = _checkpoint(str(model), cluster, profile, shapes or {}, training)
        own = {(rule.action, rule.pattern) for rule in problem.rules}  # a saved placement has them too
        wished = (rule for rule in options.get("rules", ()) if (rule.action, rule.pattern) not in own)
        options["rules"] = (*problem.rules, *wished)
    elif graph is not None:
        chosen = cluster if isinstance(cluster, Cluster) else load_cluster(cluster or DEFAULT_CLUSTER)
        costs = find_profile(profile, graph) if isinstance(profile, (str, Path)) else profile
        problem = build_problem(graph, chosen, costs or roofline_profile(graph, chosen))
    else:
        problem = _published(str(model), has_cluster=cluster is not None or profile is not None)
    origin = _origin(model, cluster, profile, shapes or {}, training, optimizer)
    problem = problem.for_objective(objective, execution).with_options(origin=origin, **options)
    wishes = read_constraints(constraints) if isinstance(constraints, (str, Path)) else constraints
    return problem if wishes is None else wishes.applied(problem)


def place(
    problem: Problem, placer: str = "auto", budget: float | Budget = 30.0, seed: int = 0, **options: Any
) -> Placement:
    """Place a problem with the named placer within ``budget`` seconds; ``options`` go to the placer.

    >>> place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single").status
    'optimal'
    """
    chosen = get_placer(placer, **options)
    if not isinstance(budget, Budget):
        make_ready(chosen, problem)
        budget = Budget(seconds=budget)
    return chosen.place(problem, budget, seed)


def _graph(model: Any, shapes: Mapping[str, tuple[int, ...]], training: bool, optimizer: str) -> OpGraph | None:
    """The graph of a model that brings no devices along, ``None`` for a published problem."""
    is_zoo = isinstance(model, str) and model.startswith("zoo:")
    if not (is_zoo or isinstance(model, OpGraph)) and find_frontend(model) is not None:
        return read_model(model, shapes, optimizer=optimizer if training else None)
    if shapes or training:
        hint = "; a zoo model takes options: zoo:NAME?batch=8&training=1" if is_zoo else ""
        raise InputError(f"shapes and training are for model files and live models{hint}")
    if isinstance(model, OpGraph):
        return model
    return zoo_graph(str(model).removeprefix("zoo:")) if is_zoo else None


def _origin(
    model: Any, cluster: Any, profile: Any, shapes: Mapping[str, tuple[int, ...]], training: bool, optimizer: str
) -> dict[str, Any]:
    """What can be named again in another process; live objects cannot."""
    named = {"model": model, "cluster": cluster, "profile": profile}
    origin: dict[str, Any] = {k: str(v) for k, v in named.items() if isinstance(v, (str, Path))}
    if cluster is None and not origin.get("model", ".json").endswith(".json") and not origin["model"].startswith("hf:"):
        origin["cluster"] = DEFAULT_CLUSTER
    origin |= {"shapes": {name: list(shape) for name, shape in shapes.items()}} if shapes else {}
    return origin | ({"training": True, "optimizer": optimizer} if training else {})


def _checkpoint(model: str, cluster: Any, profile: Any, shapes: Mapping[str, Any], training: bool) -> Problem:
    """A checkpoint folder: its blocks over the devices that its options name."""
    require("torch", "hf")
    require("transformers")
    from placewright.live.hf_door import problem_of

    if cluster is not None or profile is not None or shapes or training:
        raise InputError("hf: takes its own options: --phase, --tokens and --memory; no cluster, profile or shapes")
    return problem_of(model)


def _published(path: str, has_cluster: bool) -> Problem:
    where = shown(path, limit=200)
    if not path.endswith(".json") and Path(path).suffix and Path(path).is_file():
        known = ", ".join([".json", *model_suffixes()])
        suffix = shown(Path(path).suffix)
        raise InputError(f"{where}: files of type '{suffix}' are not models; expected one of {known}, or zoo:NAME")
    with reading(path, "a published problem"):
        document = read_json(path)
        if not is_workload(document):
            raise InputError(f"{where}: not a published problem: expected an object with 'nodes' and 'edges'")
        if has_cluster:
            raise InputError(f"{where}: holds its own devices and costs; --cluster and --profile do not apply to it")
        return workload_problem(document, where)
