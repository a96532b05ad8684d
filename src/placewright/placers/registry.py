"""Placers by name: the built-in ones, and third parties' by the entry point group ``placewright.placers``."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from placewright.errors import InputError, MissingExtraError, suggestion
from placewright.placers.base import Placer
from placewright.text import shown

# Modules are imported when asked for, so that listing names costs nothing.
BUILT_IN = {
    "auto": "placewright.placers.auto:AutoPlacer",
    "single": "placewright.placers.single:SinglePlacer",
    "runtime-choice": "placewright.placers.runtime_choice:RuntimeChoicePlacer",
    "random": "placewright.placers.random:RandomPlacer",
    "topo": "placewright.placers.topo:TopoPlacer",
    "heft": "placewright.placers.heft:HeftPlacer",
    "peft": "placewright.placers.peft:PeftPlacer",
    "cpop": "placewright.placers.cpop:CpopPlacer",
    "etf": "placewright.placers.etf:EtfPlacer",
    "sct": "placewright.placers.sct:SctPlacer",
    "anneal": "placewright.placers.anneal:AnnealPlacer",
    "cross-entropy": "placewright.placers.cross_entropy:CrossEntropyPlacer",
    "complete": "placewright.placers.exact.complete:CompletePlacer",
    "dp": "placewright.placers.exact.dp:DpPlacer",
    "cpsat": "placewright.placers.exact.cpsat:CpsatPlacer",
    "dpl": "placewright.placers.dpl:DplPlacer",
    "pipedream": "placewright.placers.pipedream:PipedreamPlacer",
    "local-search": "placewright.placers.local_search:LocalSearchPlacer",
    "milp": "placewright.placers.exact.milp:MilpPlacer",
    "chain": "placewright.placers.exact.chain:ChainPlacer",
    "mincut": "placewright.placers.exact.mincut:MincutPlacer",
    "partition": "placewright.placers.partition:PartitionPlacer",
    "greedy": "placewright.placers.greedy:GreedyPlacer",
    "calls-exact": "placewright.placers.exact.calls:CallsExactPlacer",
    "hsdag": "placewright.placers.learned.hsdag:HsdagPlacer",
    "placeto": "placewright.placers.learned.placeto:PlacetoPlacer",
    "rnn": "placewright.placers.learned.rnn:RnnPlacer",
    "gdp": "placewright.placers.learned.gdp:GdpPlacer",
    "hdp": "placewright.placers.learned.hdp:HdpPlacer",
    "human": "placewright.placers.human:HumanPlacer",
    "expert": "placewright.placers.expert:ExpertPlacer",
}
GROUP = "placewright.placers"


def placer_names() -> list[str]:
    """All names that :func:`get_placer` knows, built-in ones first."""
    return [*BUILT_IN, *sorted({e.name for e in entry_points(group=GROUP)} - set(BUILT_IN))]


def get_placer_class(name: str) -> type[Placer]:
    """Import and return a placer's class; an unknown name is an :class:`InputError` with suggestions."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        loaded: Any = getattr(import_module(module), attribute)
    else:
        found = next(iter(entry_points(group=GROUP, name=name)), None)
        if found is None:
            raise InputError(f"unknown placer '{shown(name)}'; {suggestion(name, placer_names())}")
        loaded = found.load()
    if not (isinstance(loaded, type) and issubclass(loaded, Placer)):
        raise InputError(f"placer '{shown(name)}' is not a placewright.placers.Placer class")
    return loaded


def is_installed(placer: type[Placer]) -> bool:
    """True if the optional packages that the placer needs are there."""
    try:
        placer.check_installed()
    except MissingExtraError:
        return False
    return True


def placers_for(execution: str) -> list[str]:
    """The names of the placers that are made for an execution model, ``auto`` first."""
    return [name for name in placer_names() if execution in get_placer_class(name).executions]


def get_placer(name: str, **options: Any) -> Placer:
    """Make a placer; a missing package or options it does not know are an :class:`InputError`."""
    loaded = get_placer_class(name)
    loaded.check_installed()
    try:
        return loaded(**options)
    except TypeError as error:
        raise InputError(f"placer '{shown(name)}' does not take these options: {shown(str(error))}") from error
