"""Constraints from a file: what must be where, what must not, what stays together, and how much memory to leave free.

format = "placewright-constraints/1"  # may be left out
max_segments = 6
memory_margin = "10%"             # of every device; or a table by device or kind: [memory_margin] gpu0 = "1GiB"

[[pin]]
ops = "^embeddings"               # a regular expression, searched for in op names
device = "cpu"                    # a device or a kind

[[forbid]]
names = ["head.softmax"]          # or the names themselves
device = "npu"

[[together]]
ops = "attention"
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from placewright.cluster import Cluster
from placewright.documents import check_version, value_text
from placewright.errors import InputError, suggestion
from placewright.files import read_text
from placewright.problems import Problem, Rule
from placewright.reading import reading
from placewright.text import bytes_text, shown
from placewright.toml_fields import LARGEST_TOML_BYTES, only_known, parse_toml, quantity, tables, whole_number

VERSION = 1  # of the format
_MOST_SEGMENTS = 1_000_000
_ALL = "default"  # the margin of devices that are not named


@dataclass(frozen=True)
class Margin:
    """Memory to be left free on a device: a share of its limit, and bytes."""

    share: float = 0.0
    size_bytes: float = 0.0


@dataclass(frozen=True)
class Constraints:
    """Wishes about a placement; they narrow the search of every placer.

    ``names`` lists the op names that were written as such, with the rule that wants them, so that a misspelt one is
    found. ``memory_margin`` is by device, kind or ``"default"``.

    >>> Constraints(max_segments=4).rules
    ()
    """

    rules: tuple[Rule, ...] = ()
    max_segments: int | None = None
    memory_margin: Mapping[str, Margin] = field(default_factory=dict)
    names: tuple[tuple[str, Rule], ...] = ()
    source: str = "constraints"

    def applied(self, problem: Problem) -> Problem:
        """The problem under these constraints and those that it has already; the smaller ``max_segments`` counts.

        Raises :class:`InputError` for an op, device or kind that the problem does not have.
        """
        for name, rule in self.names:
            if name not in problem.graph.index_of:
                nearest = suggestion(name, problem.graph.op_names[:20_000])
                raise InputError(f"{rule}: no operator is called '{shown(name)}'; {shown(nearest, 300)}")
        limits = [n for n in (self.max_segments, problem.max_segments) if n is not None]
        cluster = _with_margins(problem.cluster, self.memory_margin, f"{self.source}: memory_margin")
        before = problem.origin.get("memory_margin_bytes", {})
        margins = before | {
            new.name: before.get(new.name, 0.0) + old.memory_bytes - new.memory_bytes
            for old, new in zip(problem.cluster.devices, cluster.devices, strict=True)
            if new.memory_bytes < old.memory_bytes
        }
        origin = {**problem.origin, "memory_margin_bytes": margins} if margins else problem.origin
        return replace(
            problem,
            rules=problem.rules + self.rules,
            max_segments=min(limits) if limits else None,
            cluster=cluster,
            origin=origin,
        )


def read_constraints(path: str | Path) -> Constraints:
    """Read a constraints file; everything wrong in it is an :class:`InputError` that names the place.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rules.toml"
    >>> _ = file.write_text("max_segments = 4")
    >>> read_constraints(file).max_segments
    4
    """
    with reading(path, "constraints") as where:
        return parse_constraints(read_text(path, LARGEST_TOML_BYTES), where)


def parse_constraints(text: str, where: str) -> Constraints:
    """Read constraints from TOML text; ``where`` is its name in messages.

    >>> parse_constraints('[[pin]]\\nops = "^embed"\\ndevice = "cpu0"', "my.toml").rules[0].target
    'cpu0'
    """
    document = parse_toml(text, where)
    if "format" in document:
        check_version(document["format"], "constraints", VERSION, where)
    only_known(document, {"format", "max_segments", "memory_margin", "pin", "forbid", "together"}, where)
    rules: list[Rule] = []
    names: list[tuple[str, Rule]] = []
    for action in ("pin", "forbid", "together"):
        for i, entry in enumerate(tables(document, action, where)):
            rule, wanted = _rule(action, entry, f"{where}: [[{action}]] {i + 1}")
            rules.append(rule)
            names += [(name, rule) for name in wanted]
    segments = None
    if "max_segments" in document:
        segments = whole_number(document, "max_segments", where, 1, 1, _MOST_SEGMENTS)
    return Constraints(tuple(rules), segments, _margins(document, where), tuple(names), where)


def _rule(
    action: Literal["pin", "forbid", "together"], entry: dict[str, Any], where: str
) -> tuple[Rule, tuple[str, ...]]:
    only_known(entry, {"ops", "names"} | (set() if action == "together" else {"device"}), where)
    device = entry.get("device", "")
    if not isinstance(device, str) or (action != "together" and not device):
        raise InputError(f"{where}: 'device' is missing, expected the name of a device or kind such as \"gpu0\"")
    ops, names = entry.get("ops"), entry.get("names")
    if (ops is None) == (names is None):
        raise InputError(f"{where}: expected either 'ops', a regular expression, or 'names', a list of op names")
    on = f", device = '{shown(device)}'" if device else ""
    if names is not None:
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise InputError(f"{where}: 'names' is {value_text(names)}, expected a list of op names")
        pattern = f"^(?:{'|'.join(re.escape(n) for n in names)})$"
        listed = ", ".join(f"'{shown(n, 40)}'" for n in names[:3]) + (", …" if len(names) > 3 else "")
        return Rule(action, pattern, device, f"{where}: names = [{listed}]{on}"), tuple(names)
    if not isinstance(ops, str) or not ops:
        raise InputError(f"{where}: 'ops' is {value_text(ops)}, expected a regular expression")
    return Rule(action, ops, device, f"{where}: ops = '{shown(ops)}'{on}"), ()


def _margins(document: dict[str, Any], where: str) -> dict[str, Margin]:
    given = document.get("memory_margin", {})
    table = given if isinstance(given, dict) else {_ALL: given}
    return {name: _margin(table, name, f"{where}: memory_margin") for name in table}


def _margin(table: dict[str, Any], name: str, where: str) -> Margin:
    text = table[name] if isinstance(table[name], str) else ""
    share = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", text)
    if share is None:
        if "%" in text:
            raise InputError(f"{where}: '{shown(name)}' is '{shown(text, 40)}', expected a share such as 10%")
        return Margin(size_bytes=quantity(table, name, "bytes", where, None))
    if float(share[1]) >= 100:
        raise InputError(f"{where}: '{shown(name)}' is {shown(text, 40)}, expected less than 100%")
    return Margin(share=float(share[1]) / 100)


def _with_margins(cluster: Cluster, margins: Mapping[str, Margin], where: str) -> Cluster:
    known = {d.name for d in cluster.devices} | {d.kind for d in cluster.devices} | {_ALL}
    for name in margins:
        if name not in known:
            raise InputError(f"{where}: no device or kind is called '{shown(name)}'; {suggestion(name, known)}")
    devices = []
    for device in cluster.devices:
        margin = margins.get(device.name) or margins.get(device.kind) or margins.get(_ALL) or Margin()
        left = device.memory_bytes * (1 - margin.share) - margin.size_bytes
        if left < 0:
            raise InputError(
                f"{where}: '{shown(device.name)}' holds {bytes_text(device.memory_bytes)}, less than the "
                f"{bytes_text(margin.size_bytes)} that are to be left free"
            )
        devices.append(replace(device, memory_bytes=left) if math.isfinite(left) else device)
    return replace(cluster, devices=tuple(devices)) if margins else cluster
