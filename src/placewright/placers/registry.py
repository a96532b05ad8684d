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
    "single": "placewright.placers.baselines.single:SinglePlacer",
    "runtime-choice": "placewright.placers.baselines.runtime_choice:RuntimeChoicePlacer",
    "random": "placewright.placers.baselines.random:RandomPlacer",
    "topo": "placewright.placers.baselines.topo:TopoPlacer",
    "heft": "placewright.placers.overlap.heft:HeftPlacer",
    "peft": "placewright.placers.overlap.peft:PeftPlacer",
    "cpop": "placewright.placers.overlap.cpop:CpopPlacer",
    "etf": "placewright.placers.overlap.etf:EtfPlacer",
    "sct": "placewright.placers.overlap.sct:SctPlacer",
    "anneal": "placewright.placers.search.anneal:AnnealPlacer",
    "cross-entropy": "placewright.placers.search.cross_entropy:CrossEntropyPlacer",
    "complete": "placewright.placers.baselines.complete:CompletePlacer",
    "dp": "placewright.placers.pipeline.dp:DpPlacer",
    "cpsat": "placewright.placers.overlap.cpsat:CpsatPlacer",
    "dpl": "placewright.placers.pipeline.dpl:DplPlacer",
    "pipedream": "placewright.placers.pipeline.pipedream:PipedreamPlacer",
    "local-search": "placewright.placers.pipeline.not_contiguous.local_search:LocalSearchPlacer",
    "milp": "placewright.placers.pipeline.not_contiguous.milp:MilpPlacer",
    "chain": "placewright.placers.sequential.chain:ChainPlacer",
    "mincut": "placewright.placers.sequential.mincut:MincutPlacer",
    "partition": "placewright.placers.pipeline.not_contiguous.partition:PartitionPlacer",
    "greedy": "placewright.placers.calls.greedy:GreedyPlacer",
    "calls-exact": "placewright.placers.calls.calls_exact:CallsExactPlacer",
    "hsdag": "placewright.placers.learned.hsdag:HsdagPlacer",
    "placeto": "placewright.placers.learned.placeto:PlacetoPlacer",
    "rnn": "placewright.placers.learned.rnn:RnnPlacer",
    "gdp": "placewright.placers.learned.gdp:GdpPlacer",
    "hdp": "placewright.placers.learned.hdp:HdpPlacer",
    "human": "placewright.placers.baselines.human:HumanPlacer",
    "expert": "placewright.placers.baselines.expert:ExpertPlacer",
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
