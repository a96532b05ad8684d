"""Devices a live model may be placed on, and how much of their memory is for weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from placewright.cluster_file import parse_bytes
from placewright.errors import InputError
from placewright.live.dispatch import DISK
from placewright.live.live_problem import LIBRARY_BYTES, MARGIN, Place
from placewright.live.module_graph import LiveModel
from placewright.live.transfer import Backend
from placewright.text import shown


def find_places(
    devices: list[str] | None, memory: Mapping[str, float | str] | None, model: Any, home: Any, backend: Backend
) -> list[Place]:
    """The devices asked for, or all GPUs and the CPU, GPUs first, each with its limit."""
    limits = {name: parse_bytes(value, f"memory of '{shown(name)}'") for name, value in (memory or {}).items()}
    names = list(devices) if devices else [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if not devices:
        names += [n for n in limits if n not in names and n not in ("cpu", DISK)]
        names += ["cpu"] + ([DISK] if DISK in limits else [])
    for name in names:
        _check(name, backend, needs_it=home.type != "meta")
    for name in limits:
        if name not in names:
            raise InputError(f"memory names '{shown(name)}', which is not among the devices: {', '.join(names)}")
    names.sort(key=lambda n: (n == DISK, n == "cpu"))
    if home.type != "meta" and str(home) not in names:
        raise InputError(f"the model's weights are on {home}, which is not among the devices: {', '.join(names)}")
    return [Place(n, limits[n] if n in limits else _free_bytes(n, model, home, backend)) for n in names]


def reserved_bytes(place: Place, live: LiveModel, workspace_bytes: float | None) -> float:
    """What is kept from weights: working memory (measured, or what the traced forward had alive at once), a margin."""
    if place.name == DISK or math.isinf(place.memory_bytes):
        return 0.0
    working = live.workspace_bytes
    if not place.is_host:
        measured = LIBRARY_BYTES if workspace_bytes is None else workspace_bytes
        working = max(measured, working + min(measured, LIBRARY_BYTES))
    return working + MARGIN * place.memory_bytes


def _check(name: str, backend: Backend, needs_it: bool) -> None:
    if name in ("cpu", DISK):
        return
    try:
        is_here = backend.has(name)
    except RuntimeError as error:
        raise InputError(f"'{shown(name)}' is not a torch device: expected cpu, disk, cuda:0, …") from error
    if name == "cuda":
        raise InputError("device 'cuda' has no number: write cuda:0")
    if needs_it and not is_here:
        raise InputError(f"device '{shown(name)}' is not on this machine")


def _free_bytes(name: str, model: Any, home: Any, backend: Backend) -> float:
    """What is free now, and what the model itself already takes there; infinite where nobody knows."""
    own = sum(t.numel() * t.element_size() for t in model.parameters()) if str(home) == name else 0
    if name == "cpu":
        return _free_host_bytes() + own
    if name == DISK or not backend.has(name) or not backend.is_gpu(backend.device(name)):
        return math.inf
    return float(torch.cuda.mem_get_info(backend.device(name))[0]) + own


def _free_host_bytes() -> float:
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return float(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return math.inf
