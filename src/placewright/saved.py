"""A saved placement opened again, problem and all: the file says what it was made of."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from placewright.api import load
from placewright.budget import OPTIMAL_GAP
from placewright.constraints import Constraints, Margin
from placewright.errors import InputError
from placewright.files import read_json
from placewright.frontends._fields import Fields, finite
from placewright.frontends.split import is_split, match_split
from placewright.placement import Placement, checked_placement, match_placement
from placewright.problem import Problem, Rule
from placewright.text import shown

_SAME_VALUE = 1e-9  # relative: what rounding may do to a value between two machines


def open_placement(
    path: str | Path,
    model: Any = None,
    cluster: Any = None,
    profile: Any = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    objective: str | None = None,
    execution: str | None = None,
) -> Placement:
    """Open a file written by ``Placement.save`` (or a published split) and return the placement, checked again.

    Model, cluster, profile, objective, rules and options are the file's; what is given here goes first, in the forms
    that :func:`placewright.load` takes. A file that was moved together with its model finds it: names of files are
    looked up from the working directory, then beside the placement. ``placement.problem`` is the problem rebuilt.
    Bound, note, seed and what was measured or learnt are the file's where the problem gives the file's value.

    >>> import tempfile
    >>> from placewright import load, place
    >>> file = tempfile.mkdtemp() + "/placement.json"
    >>> place(load("zoo:chain?ops=3", cluster="p100x2"), placer="single").save(file)
    >>> open_placement(file).problem.cluster.name
    'p100x2'
    """
    document, where = read_json(path), shown(str(path), limit=200)
    given = {"model": model, "cluster": cluster, "profile": profile, "shapes": shapes}
    if is_split(document):
        problem = _loaded({}, given, objective, execution, Path(path).parent, where)
        split = match_split(document, problem, where)
        return checked_placement(split.problem, split.device_of_op, placer="expert", extra_faults=split.faults)
    stored = Fields(document.get("problem", {}), f"{where}: problem") if isinstance(document, dict) else None
    settings = stored.data if stored else {}
    if isinstance(document, dict) and objective is None and execution is None:
        objective, execution = document.get("objective"), document.get("execution")
    problem = _loaded(settings, given, objective, execution, Path(path).parent, where)
    placement = match_placement(document, problem, where)
    return _with_history(placement, document)


def _loaded(
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    objective: str | None,
    execution: str | None,
    folder: Path,
    where: str,
) -> Problem:
    chosen = {
        name: value if value is not None else _found_again(settings.get(name), folder)
        for name, value in given.items()
        if name != "shapes"
    }
    if chosen["model"] is None:
        raise InputError(f"{where}: does not say which model it is for; pass --model (and --cluster, --profile)")
    is_other_model = given["model"] is not None and str(given["model"]).endswith(".json")
    if is_other_model:  # a published problem brings its own devices and costs
        chosen |= {k: given[k] for k in ("cluster", "profile")}
    shapes = given["shapes"] if given["shapes"] is not None else _read_shapes(settings, where)
    live = settings if given["model"] is None else {}
    try:
        return load(
            chosen["model"],
            chosen["cluster"],
            objective,
            execution,
            chosen["profile"],
            shapes,
            training=bool(live.get("training", False)),
            optimizer=str(live.get("optimizer", "adam")),
            constraints=_read_margins(settings, where),
            **_read_options(settings, where),
        )
    except TypeError as error:
        raise InputError(f"{where}: 'problem' cannot be used: {shown(str(error), 200)}") from error


def _found_again(name: Any, folder: Path) -> Any:
    if not isinstance(name, str):
        return None
    beside = os.path.join(folder, name)
    return beside if not os.path.exists(name) and os.path.exists(beside) else name


def _read_shapes(settings: Mapping[str, Any], where: str) -> dict[str, tuple[int, ...]]:
    shapes = Fields(settings.get("shapes", {}), f"{where}: shapes").data
    for name, shape in shapes.items():
        if not isinstance(shape, list) or any(not isinstance(d, int) for d in shape):
            raise InputError(f"{where}: shape of '{shown(name)}' is not a list of whole numbers")
    return {name: tuple(shape) for name, shape in shapes.items()}


def _read_options(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    options = Fields(settings.get("options", {}), f"{where}: options")
    known = {"max_segments", "contiguous", "schedule", "communication", "max_replicas", "track_activations"}
    rules = []
    for i, entry in enumerate(options.data.get("rules", [])):
        rule = Fields(entry, f"{where}: rule {i}")
        action = rule.text("action")
        if action not in ("pin", "forbid", "together"):
            raise InputError(f"{where}: rule {i}: action is '{shown(action)}', expected pin, forbid or together")
        rules.append(Rule(cast(Any, action), rule.text("pattern"), rule.text("target", ""), rule.text("source", "")))
    return {k: v for k, v in options.data.items() if k in known} | {"rules": tuple(rules)}


def _read_margins(settings: Mapping[str, Any], where: str) -> Constraints:
    margins = Fields(settings.get("memory_margin_bytes", {}), f"{where}: memory_margin_bytes")
    return Constraints(memory_margin={name: Margin(size_bytes=margins.number(name)) for name in margins.data})


def _with_history(placement: Placement, document: Mapping[str, Any]) -> Placement:
    """Take over what only the maker of the file could know, unless the costs have changed since."""
    value, bound = finite(document.get("value")), finite(document.get("bound"))
    if value is None or not placement.is_valid or not math.isclose(value, placement.value, rel_tol=_SAME_VALUE):
        return placement
    proven = max(placement.bound, min(bound or 0.0, placement.value))
    measured = document.get("measured")
    return replace(
        placement,
        status="optimal" if proven >= placement.value * (1 - OPTIMAL_GAP) else placement.status,
        bound=proven,
        seed=int(finite(document.get("seed")) or 0),
        seconds=finite(document.get("seconds")) or 0.0,
        evaluations=int(finite(document.get("evaluations")) or 0),
        note=str(document.get("note") or ""),
        measured=measured if isinstance(measured, dict) else None,
        curve=_read_curve(document),
    )


def _read_curve(document: Mapping[str, Any]) -> dict[str, list[float]] | None:
    curve = document.get("curve")
    if not isinstance(curve, dict):
        return None
    columns: dict[str, list[float]] = {}
    for name in ("evaluations", "best", "mean"):
        column = curve.get(name)
        if not isinstance(column, list) or any(finite(x) is None for x in column):
            return None
        columns[name] = column
    return columns if len({len(c) for c in columns.values()}) == 1 else None
