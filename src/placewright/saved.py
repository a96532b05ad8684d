"""A saved placement opened again, problem and all: the file says what it was made of."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from placewright.api import load
from placewright.budget import OPTIMAL_GAP
from placewright.cluster_file import preset_names
from placewright.constraints import Constraints, Margin, read_constraints
from placewright.documents import Fields, check_version, finite, kind_text
from placewright.errors import InputError
from placewright.files import read_json
from placewright.frontends.registry import find_frontend
from placewright.placement import VERSION, Placement, match_placement
from placewright.problems import COMMUNICATIONS, SAVED_OPTIONS, SCHEDULES, Rule
from placewright.profile_file import profile_set_names
from placewright.reading import reading
from placewright.text import shown

_SAME_VALUE = 1e-9  # relative: what rounding may do to a value between two machines
_BY_NAME = ("model", "cluster", "profile")  # what the file keeps by name only


def open_placement(
    path: str | Path,
    model: Any = None,
    cluster: Any = None,
    profile: Any = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    objective: str | None = None,
    execution: str | None = None,
    constraints: str | Path | Constraints | None = None,
    **options: Any,
) -> Placement:
    """Open a file written by ``Placement.save`` (or a published split) and return the placement, checked again.

    Model, cluster, profile, objective, rules and options are the file's. What is given here takes the place of what the
    file says, one by one, in the forms that :func:`placewright.load` takes; ``None`` means as in the file. ``rules``
    replaces the file's rules except those of a constraints file, and ``constraints`` replaces these and the margins.
    ``placement.problem`` is the problem rebuilt.

    A file that was moved together with its model finds it: names of files are looked up from the working directory,
    then beside the placement. Note, seed and what was measured or learnt are the file's where the problem gives the
    file's value, and so is the bound, unless something else than the file's was asked for.

    >>> import tempfile
    >>> from placewright import load, place
    >>> file = tempfile.mkdtemp() + "/placement.json"
    >>> place(load("zoo:chain?ops=3", cluster="p100x2", max_segments=2), placer="single").save(file)
    >>> open_placement(file).problem.max_segments, open_placement(file, max_segments=1).problem.max_segments
    (2, 1)
    """
    named = {"model": model, "cluster": cluster, "profile": profile, "shapes": shapes, "objective": objective}
    wishes = read_constraints(constraints) if isinstance(constraints, (str, Path)) else constraints
    named |= {"execution": execution, "constraints": wishes}
    if unknown := set(options) - {*SAVED_OPTIONS, "rules", "training", "optimizer"}:
        raise TypeError(f"open_placement() has no option '{unknown.pop()}'")
    given = {name: value for name, value in {**named, **options}.items() if value is not None}
    with reading(path, "a placement") as where:
        return _opened(path, where, given)


def _opened(path: str | Path, where: str, given: Mapping[str, Any]) -> Placement:
    document = read_json(path)
    of_file = _arguments(document, where)
    arguments = _overridden(of_file, given)
    if "model" not in arguments:
        raise InputError(f"{where}: does not say which model it is for; pass --model (and --cluster, --profile)")
    is_as_saved = all(_is_copy(name, arguments[name]) or arguments[name] == of_file.get(name) for name in given)
    for name in _BY_NAME:
        if name in arguments and name not in given:
            arguments[name] = _found_again(name, arguments[name], Path(path).parent)
    try:
        problem = load(**arguments)
    except TypeError as error:
        raise InputError(f"{where}: 'problem' cannot be used: {shown(str(error), 200)}") from error
    return _with_history(match_placement(document, problem, where), document, is_as_saved, where)


def _arguments(document: Any, where: str) -> dict[str, Any]:
    """What the file says about its problem, as arguments of ``load``; nothing for a split."""
    if not isinstance(document, dict):
        return {}
    if str(document.get("format")).startswith("placewright-placement/"):
        check_version(document["format"], "placement", VERSION, where)
    settings = Fields(document.get("problem", {}), f"{where}: problem")
    options = Fields(settings.data.get("options", {}), f"{where}: options")
    arguments: dict[str, Any] = {n: settings.text(n) for n in _BY_NAME if settings.data.get(n) is not None}
    if settings.data.get("shapes"):
        arguments["shapes"] = _read_shapes(settings)
    if settings.data.get("training"):
        arguments |= {"training": True, "optimizer": settings.text("optimizer", "adam")}
    goal = Fields(document, where)
    arguments |= {n: goal.text(n) for n in ("objective", "execution") if document.get(n) is not None}
    rules = _read_rules(options) if "rules" in options.data else []
    margins = Fields(settings.data.get("memory_margin_bytes", {}), f"{where}: memory_margin_bytes")
    arguments["rules"] = tuple(rule for rule in rules if not rule.source)
    arguments["constraints"] = Constraints(
        rules=tuple(rule for rule in rules if rule.source),
        memory_margin={name: Margin(size_bytes=margins.number(name)) for name in margins.data},
        source=where,
    )
    return arguments | {name: _read_option(options, name) for name in SAVED_OPTIONS if name in options.data}


def _overridden(of_file: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The file's arguments with what was given in their place, and without those that then mean nothing."""
    dropped: set[str] = set()
    model = given.get("model")
    if isinstance(model, (str, Path)):
        model = _with_phases(str(model), str(of_file.get("model", "")))
        given = {**given, "model": model}
        if model.endswith(".json") or model.startswith("hf:"):  # brings its own devices and costs
            dropped |= {"cluster", "profile"}
    if model is not None and find_frontend(model) is None:
        dropped |= {"shapes", "training", "optimizer"}
    if "objective" in given or "execution" in given:  # each follows from the other, where that changes
        dropped |= {"objective"}
        dropped |= {"execution"} if given.get("objective") not in (None, of_file.get("objective")) else set()
    if "constraints" in given and given["constraints"].max_segments is not None:
        dropped |= {"max_segments"}
    return {name: value for name, value in of_file.items() if name not in dropped} | dict(given)


def _with_phases(model: str, of_file: str) -> str:
    """A checkpoint folder is analysed as the file says (phases, tokens, memory), unless that is given with it."""
    folder, _, query = model.partition("?")
    if not (model.startswith("hf:") and of_file.startswith("hf:")):
        return model
    given = parse_qsl(query, keep_blank_values=True)
    names = {name for name, _ in given}
    kept = [(n, v) for n, v in parse_qsl(of_file.partition("?")[2], keep_blank_values=True) if n not in names]
    return f"{folder}?{urlencode(kept + given, safe=':=,')}" if kept or given else folder


def _is_copy(name: str, value: Any) -> bool:
    """True for a model whose name does not decide what it is: a file that may be a copy, or a live model."""
    return name == "model" and not (isinstance(value, str) and value.startswith(("zoo:", "hf:")))


def _found_again(name: str, value: str, folder: Path) -> str:
    """A file is where its name says, or in ``folder``, beside the placement."""
    if (
        value.startswith(("zoo:", "cores:"))
        or value in {"cluster": preset_names, "profile": profile_set_names}.get(name, list)()
    ):
        return value
    prefix = "hf:" if value.startswith("hf:") else ""
    file, mark, query = value.removeprefix("hf:").partition("?") if prefix else (value, "", "")
    places = (file, os.path.join(folder, file), os.path.join(folder, os.path.basename(file)))
    return prefix + next((p for p in places if os.path.exists(p)), file) + mark + query


def _read_shapes(settings: Fields) -> dict[str, tuple[int, ...]]:
    shapes = Fields(settings.data["shapes"], f"{settings.where}: shapes")
    for name, shape in shapes.data.items():
        if not isinstance(shape, list) or any(type(d) is not int or not 0 <= d < 2**31 for d in shape):
            raise InputError(f"{shapes.where}: shape of '{shown(name)}' is not a list of whole numbers")
    return {name: tuple(shape) for name, shape in shapes.data.items()}


def _read_option(options: Fields, name: str) -> Any:
    if name in ("contiguous", "track_activations"):
        return options.flag(name)
    if name == "schedule":
        return options.chosen(name, SCHEDULES)
    if name == "communication":
        return options.chosen(name, COMMUNICATIONS)
    limit = options.integer(name, None)
    if limit is not None and not 1 <= limit < 2**31:
        raise InputError(f"{options.where}: '{name}' is {limit}, expected a whole number from 1 to {2**31 - 1}")
    return limit


def _read_rules(options: Fields) -> list[Rule]:
    rules = []
    for i, entry in enumerate(options.list_of("rules")):
        rule = Fields(entry, f"{options.where}: rule {i}")
        action = rule.text("action")
        if action not in ("pin", "forbid", "together"):
            raise InputError(f"{rule.where}: action is '{shown(action)}', expected pin, forbid or together")
        rules.append(Rule(cast(Any, action), rule.text("pattern"), rule.text("target", ""), rule.text("source", "")))
    return rules


def _with_history(placement: Placement, document: Mapping[str, Any], is_as_saved: bool, where: str) -> Placement:
    """Take over what only the maker of the file could know, unless the costs have changed since.

    Its bound holds for the problem of the file only: under other rules there may be something better.
    """
    value, bound = finite(document.get("value")), finite(document.get("bound")) if is_as_saved else None
    if value is None or not placement.is_valid or not math.isclose(value, placement.value, rel_tol=_SAME_VALUE):
        return placement
    proven = max(placement.bound, min(bound or 0.0, placement.value))
    measured = document.get("measured")
    if isinstance(measured, dict) and not (finite(measured.get("measured_s")) or 0.0) > 0:
        raise InputError(
            f"{where}: measured: 'measured_s' is {kind_text(measured.get('measured_s'))}, expected seconds"
        )
    return replace(
        placement,
        status="optimal" if proven >= placement.value * (1 - OPTIMAL_GAP) else placement.status,
        bound=proven,
        seed=int(finite(document.get("seed")) or 0),
        seconds=finite(document.get("seconds")) or 0.0,
        evaluations=int(finite(document.get("evaluations")) or 0),
        note=document["note"] if isinstance(document.get("note"), str) else "",
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
