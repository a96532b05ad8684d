"""Placewright decides which operator of a neural network runs on which device.

>>> import placewright as pw
>>> problem = pw.load("zoo:layered?ops=60", cluster="p100x2")
>>> placement = pw.place(problem, placer="topo")
>>> placement.is_valid, placement.value >= placement.bound
(True, True)

Everything that is public is in ``__all__``, and every name there has an example.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from placewright.kernel_cache import choose_folder

if TYPE_CHECKING:
    from placewright.api import load, place
    from placewright.budget import Budget
    from placewright.cluster import Cluster, Device, DeviceKind, Link
    from placewright.constraints import Constraints, parse_constraints, read_constraints
    from placewright.errors import InputError, PlacewrightError
    from placewright.export.registry import export_placement
    from placewright.graph import OpGraph, build_graph
    from placewright.placement import Placement, checked_placement, read_placement
    from placewright.placers.base import Found, Placer
    from placewright.problems import Problem, Rule, build_problem
    from placewright.profiles import Profile, modelled_profile
    from placewright.saved import open_placement

choose_folder()
__version__ = "0.1.0"
__all__ = [
    "Budget",
    "Cluster",
    "Constraints",
    "Device",
    "DeviceKind",
    "Found",
    "InputError",
    "Link",
    "OpGraph",
    "Placement",
    "Placer",
    "PlacewrightError",
    "Problem",
    "Profile",
    "Rule",
    "build_graph",
    "build_problem",
    "checked_placement",
    "export_placement",
    "load",
    "modelled_profile",
    "open_placement",
    "parse_constraints",
    "place",
    "read_constraints",
    "read_placement",
]

_HOME = {
    "Budget": "budget",
    "Cluster": "cluster",
    "Constraints": "constraints",
    "Device": "cluster",
    "DeviceKind": "cluster",
    "Found": "placers.base",
    "InputError": "errors",
    "Link": "cluster",
    "OpGraph": "graph",
    "Placement": "placement",
    "Placer": "placers.base",
    "PlacewrightError": "errors",
    "Problem": "problems",
    "Profile": "profiles",
    "Rule": "problems",
    "build_graph": "graph",
    "build_problem": "problems",
    "checked_placement": "placement",
    "export_placement": "export.registry",
    "load": "api",
    "modelled_profile": "profiles",
    "open_placement": "saved",
    "parse_constraints": "constraints",
    "place": "api",
    "read_constraints": "constraints",
    "read_placement": "placement",
}


def __getattr__(name: str) -> Any:
    # Late, so that importing the package costs next to nothing.
    if name not in _HOME:
        raise AttributeError(f"module 'placewright' has no attribute '{name}'")
    return getattr(import_module(f"placewright.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
