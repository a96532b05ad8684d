"""Units: the modules that are placed as a whole, found by the structure of a traced forward, not by class names.

Everything else is *own code*: operators that a module runs between the calls of its units, with the norms and
activations it calls. The own code of one module stays together on one device, its home.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch

from placewright.live.trace import Trace


@dataclass(frozen=True)
class Units:
    """Which modules are placed.

    ``containers`` are modules that call units and have a home for their own code; ``owner`` names the unit or container
    that every module path belongs to (the root is "").
    """

    paths: tuple[str, ...]  # in order of their first call
    containers: tuple[str, ...]
    owner: dict[str, str]
    home_of: dict[str, str]  # container: the container whose home it shares (itself, or an outer one)
    parent: dict[str, str] = field(default_factory=dict)  # unit or container: the container that calls it


def find_units(model: Any, traces: list[Trace]) -> Units:
    """Cut the module tree where it pays.

    A called module is cut into what it calls unless all weights it calls lie in plain leaves (attention, feed-forward),
    it is a leaf itself, or it calls only some of a list of alike modules, or calls them on parts of its data (experts
    that a router chooses among). Leaves with vectors only (norms), or no weights, are own code of their caller.
    """
    modules = dict(model.named_modules())
    children = _called_children(traces)
    routed = _routed(model, traces, children)
    index_inputs = {c.path for trace in traces for c in trace.calls if c.index_numel > 0}

    def is_absorbed(path: str) -> bool:
        has_matrix = any(p.dim() > 1 for p in modules[path].parameters())
        return not has_matrix

    def is_block(path: str) -> bool:
        if any(not is_absorbed(child) for child in children[path]):
            return True
        stacked = any(p.dim() == 3 for p in modules[path].parameters(recurse=False))
        return stacked and path in index_inputs

    paths: list[str] = []
    containers: list[str] = []
    owner: dict[str, str] = {}
    caller: dict[str, str] = {}

    def give(path: str, to: str) -> None:
        prefix = path + "." if path else ""
        for name in modules:
            if name == path or name.startswith(prefix):
                owner.setdefault(name, to)

    def cut(path: str, outer: str) -> None:
        weighted = [child for child in children[path] if not is_absorbed(child)]
        if path and (not weighted or path in routed or not any(is_block(child) for child in weighted)):
            paths.append(path)
            caller[path] = outer
            give(path, path)
            return
        containers.append(path)
        if path:
            caller[path] = outer
        owner[path] = path
        for child in children[path]:
            if child in owner:
                continue
            if is_absorbed(child):
                give(child, path)
            else:
                cut(child, path)

    cut("", "")
    for name in modules:  # never called: with the nearest module that has a place
        owner.setdefault(name, _nearest(name, owner))
    repeated = {path for path in containers if _in_list(model, path)}
    home_of = {p: p if p in repeated or not p else _outer_home(p, caller, repeated) for p in containers}
    order = _call_order(traces)
    paths.sort(key=lambda p: order.get(p, 0))
    return Units(tuple(paths), tuple(containers), owner, home_of, caller)


def structure_of(module: Any) -> tuple[Any, ...]:
    """What two modules must share to take the same time: class, weights' shapes and types, all the way down."""
    return tuple(
        (name, type(m).__qualname__, tuple((n, tuple(p.shape), p.dtype) for n, p in m.named_parameters(recurse=False)))
        for name, m in module.named_modules()
    )


def _called_children(traces: list[Trace]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = defaultdict(list)
    for trace in traces:
        for call in trace.calls:
            if call.parent >= 0:
                outer = trace.calls[call.parent].path
                if call.path not in children[outer]:
                    children[outer].append(call.path)
    return children


def _routed(model: Any, traces: list[Trace], children: dict[str, list[str]]) -> set[str]:
    """Modules that run only some of a list of alike modules, or run them on differing parts of their data."""
    routed = set()
    for path, module in model.named_modules():
        if not isinstance(module, torch.nn.ModuleList) or len(module) < 2:
            continue
        members = [f"{path}.{i}" if path else str(i) for i in range(len(module))]
        if len({structure_of(m) for m in module}) > 1:
            continue
        callers = {outer for outer, called in children.items() if any(m in called for m in members)}
        for trace in traces:
            ran = {c.path: c.shapes for c in trace.calls if c.path in members}
            if ran and (len(ran) < len(members) or len({s[:1] for s in ran.values()}) > 1):
                routed |= callers
    return routed - {""}


def _nearest(name: str, owner: dict[str, str]) -> str:
    while name:
        name = name.rpartition(".")[0]
        if name in owner:
            return owner[name]
    return ""


def _in_list(model: Any, path: str) -> bool:
    """Whether a module is a member of a list, or inside one."""
    parts = path.split(".")
    at = model
    for part in parts if path else []:
        if isinstance(at, (torch.nn.ModuleList, torch.nn.Sequential)):
            return True
        at = getattr(at, part)
    return False


def _outer_home(path: str, caller: dict[str, str], repeated: set[str]) -> str:
    outer = caller.get(path, "")
    while outer and outer not in repeated:
        outer = caller.get(outer, "")
    return outer


def _call_order(traces: list[Trace]) -> dict[str, int]:
    order: dict[str, int] = {}
    for call in traces[0].calls:
        order.setdefault(call.path, len(order))
    return order
