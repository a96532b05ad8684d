"""Accelerate's ``device_map``: module name to device.

Accelerate moves a module's inputs to the module's device. What a module's own code computes between its submodules runs
where its inputs are, so it must find them all on one device: a module for which that fails is kept whole.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placewright.cluster import Cluster
from placewright.errors import InputError
from placewright.export.base import Exported, devices_of, json_bytes, model_of
from placewright.live import METADATA
from placewright.placement import Placement
from placewright.text import shown, shown_list, time_text

_TORCH = ("cpu", "cuda", "xpu", "mps")


def device_map(placement: Placement, output: Path) -> Exported:
    """The largest modules that stay on one device, by name; refused where the model's own code must be cut."""
    graph = placement.problem.graph
    if METADATA in graph.metadata:  # a live model: its units say what a map can hold
        from placewright.live.device_map import device_map as live_device_map

        found, lost = live_device_map(placement)
        return Exported({output: json_bytes(found)}, tuple(lost))
    if not any(graph.module_paths):
        raise InputError("the model does not say which modules its ops came from, so there is no device map")
    chosen = _split_modules(placement)
    torch_names = torch_devices(placement.problem.cluster)
    missing = _uncovered(model_of(placement), chosen)
    everything = {name: torch_names[d] for name, d in {**chosen, **missing}.items()}
    return Exported({output: json_bytes(everything)}, tuple(_losses(placement, chosen, torch_names)))


def torch_devices(cluster: Cluster) -> list[str]:
    """What torch calls the devices; accelerators of which the cluster does not say it are counted as CUDA devices."""
    names: list[str] = []
    for device in cluster.devices:
        kind = cluster.kind_of(device)
        given = kind.runtime_device.lower()
        known = given.partition(":")[0] in _TORCH
        name = given if known else "cpu" if kind.is_host else "cuda"
        if name != "cpu" and ":" not in name:
            name = f"{name}:{sum(1 for n in names if n.startswith(name + ':'))}"
        names.append(name)
    return names


def _split_modules(placement: Placement) -> dict[str, int]:
    """The device of every module that is placed as a whole."""
    graph = placement.problem.graph
    parts = [tuple(path.split(".")) if path else () for path in graph.module_paths]
    inner = {p[:n] for p in parts for n in range(len(p))}  # modules with others inside
    kept_whole: set[tuple[str, ...]] = set()
    for v, p in enumerate(parts):
        if p in inner and graph.weight_bytes[v] > 0:
            kept_whole.add(_refuse_root(placement, p, v, "holds weights of its own"))
    while True:
        home = _homes(placement, parts, inner, kept_whole)
        at = np.array([home.get(_home_name(p, home), -1) for p in parts], dtype=np.int64)
        clash = _first_clash(placement, at)
        if clash is None:
            return {".".join(name): d for name, d in home.items()}
        kept_whole.add(_refuse_root(placement, parts[clash], clash, "reads tensors of several devices"))


def _homes(
    placement: Placement,
    parts: list[tuple[str, ...]],
    inner: set[tuple[str, ...]],
    kept_whole: set[tuple[str, ...]],
) -> dict[tuple[str, ...], int]:
    """The outermost modules that lie on one device or are kept whole, each with the device that has most of it."""
    problem, device = placement.problem, devices_of(placement)
    weights: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    times = problem.op_time_s[np.arange(problem.n_ops), problem.cluster.device_kind[device]]
    heavy = problem.graph.weight_bytes + 1e-3 * times
    for v, p in enumerate(parts):
        for n in range(1, len(p) + 1):
            of = weights[p[:n]]
            of[int(device[v])] = of.get(int(device[v]), 0.0) + float(heavy[v])
    home: dict[tuple[str, ...], int] = {}
    for name in sorted(weights, key=lambda n: (len(n), n)):
        covered = any(name[:n] in home for n in range(1, len(name)))
        if not covered and (len(weights[name]) == 1 or name in kept_whole or name not in inner):
            home[name] = max(weights[name], key=lambda d: (weights[name][d], -d))
    return home


def _home_name(path: tuple[str, ...], home: dict[tuple[str, ...], int]) -> tuple[str, ...]:
    return next((path[:n] for n in range(1, len(path) + 1) if path[:n] in home), ())


def _first_clash(placement: Placement, at: NDArray[np.int64]) -> int | None:
    """The first op outside of placed modules whose inputs would lie on several devices; ``at`` is filled in for it."""
    graph = placement.problem.graph
    for v in range(graph.n_ops):
        if at[v] >= 0:
            continue
        reads = graph.input_tensor[graph.input_ptr[v] : graph.input_ptr[v + 1]]
        found = {int(at[graph.tensor_producer[t]]) for t in reads} - {-1}
        if len(found) > 1:
            return v
        at[v] = found.pop() if found else -1
    return None


def _refuse_root(placement: Placement, path: tuple[str, ...], op: int, why: str) -> tuple[str, ...]:
    if path:
        return path
    name = shown(placement.problem.graph.op_names[op])
    raise InputError(
        f"a device map cannot say this: '{name}', in the code of the whole model and not in a module, {why}; "
        "keep such parts together (--together), or use another export"
    )


def _uncovered(model: str, chosen: dict[str, int]) -> dict[str, int]:
    """Modules whose parameters no op uses, for Accelerate wants all of them: they go with the first module."""
    if not model.endswith(".pt2"):
        return {}
    from placewright.frontends.torch_archive import load_program

    names = load_program(Path(model), shown(model, 200)).state_dict
    left = [n for n in names if not any(n == c or n.startswith(c + ".") for c in chosen)]
    first = next(iter(chosen.values()))
    return {n.rpartition(".")[0] or n: first for n in left}


def _losses(placement: Placement, chosen: dict[str, int], torch_names: list[str]) -> list[str]:
    problem, device = placement.problem, devices_of(placement)
    home = {tuple(name.split(".")): d for name, d in chosen.items()}
    moved: list[int] = []
    for v, path in enumerate(problem.graph.module_paths):
        at = home.get(_home_name(tuple(path.split(".")), home), int(device[v]))
        if torch_names[at] != torch_names[int(device[v])]:
            moved.append(v)
    losses = []
    if moved:
        names = [problem.graph.op_names[v] for v in moved]
        took = problem.op_time_s[moved, problem.cluster.device_kind[device[moved]]].sum()
        losses.append(
            f"{len(moved)} ops ({time_text(float(took), problem.time_unit)}) go with the rest of their module, not "
            f"where they were placed: {shown_list(names, 3)}"
        )
    same = {n for n in torch_names if torch_names.count(n) > 1}
    if same:
        losses.append(
            f"Accelerate sees one device '{min(same)}' where the placement has {torch_names.count(min(same))}"
        )
    for name, d in {torch_names[int(d)]: problem.cluster.devices[int(d)] for d in np.unique(device)}.items():
        given = problem.cluster.kind_of(d).runtime_device
        if given and given.partition(":")[0].lower() not in _TORCH:
            losses.append(f"torch has no device called '{shown(given)}': '{shown(d.name)}' is written as {name}")
    losses.append("Accelerate runs one device at a time, so nothing overlaps")
    return losses
