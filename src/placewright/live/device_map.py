"""A placement of a live model in other tools' words: Accelerate's map, and rules by regular expression."""

from __future__ import annotations

import re

from placewright.live.dispatch import DISK, STREAMED, live_of, places_of
from placewright.placement import Placement


def device_map(placement: Placement) -> tuple[dict[str, int | str], list[str]]:
    """Accelerate's ``device_map`` and what it cannot express.

    Accelerate runs every module with its hooks on a GPU where there is one: what the map puts on ``cpu`` or ``disk`` is
    copied to the GPU at every forward, so a block that this placement computes on the CPU is slower there.
    """
    live, places = live_of(placement), places_of(placement)
    units = live.units
    found: dict[str, int | str] = {}
    lost: list[str] = []

    def inside(path: str) -> list[str]:
        prefix = path + "." if path else ""
        return [p for p in [*units.paths, *units.home_of.values()] if p == path or p.startswith(prefix)]

    def describe(path: str) -> None:
        devices = {_device(places[p]) for p in inside(path)}
        if len(devices) == 1:
            found[path] = devices.pop()
            return
        for child in [p for p, caller in units.parent.items() if caller == path]:
            describe(child)
        for name in [n for n, owner in units.owner.items() if owner == path and n != path]:
            found[name] = _device(places[units.home_of[path]])

    describe("")
    on_cpu = sorted(p for p in units.paths if places[p] == "cpu")
    if on_cpu and any(isinstance(d, int) for d in found.values()):
        lost.append(f"{len(on_cpu)} units compute on the CPU here; Accelerate copies their weights to the GPU instead")
    streamed = [p for p in units.paths if places[p].endswith(STREAMED)]
    if streamed:
        lost.append(f"{len(streamed)} units are streamed from pinned memory ahead of time; Accelerate copies them late")
    split = [p for p in units.home_of.values() if len({_device(places[q]) for q in inside(p)}) > 1]
    if split:
        lost.append(f"own code of {len(set(split))} modules has a device here; Accelerate runs it where its inputs are")
    return found, lost


def rules(placement: Placement) -> list[str]:
    """The same as a few rules ``REGEX=DEVICE`` over parameter names, the way llama.cpp's ``-ot`` takes them."""
    live, places = live_of(placement), places_of(placement)
    by_shape: dict[str, dict[str, list[int]]] = {}
    plain: dict[str, str] = {}
    for path in live.units.paths:
        match = re.search(r"\.(\d+)\.", path)
        if match is None:
            plain[path] = places[path]
        else:
            shape = path[: match.start(1)] + "N" + path[match.end(1) :]
            by_shape.setdefault(shape, {}).setdefault(places[path], []).append(int(match[1]))
    made = [f"^{re.escape(path)}\\.={device}" for path, device in plain.items()]
    for shape, devices in by_shape.items():
        for device, numbers in devices.items():
            which = r"\d+" if len(devices) == 1 else "(" + "|".join(map(str, numbers)) + ")"
            made.append("^" + re.escape(shape).replace(r"\.N\.", rf"\.{which}\.") + rf"\.={device}")
    return made


def _device(place: str) -> int | str:
    if place == DISK or place == "cpu" or place.endswith(STREAMED):
        return "disk" if place == DISK else "cpu"
    return int(place.partition(":")[2] or 0) if place.startswith("cuda") else place
