"""From a live model and its workloads to a graph: trace, units, weights, caches, working memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placewright.graph import OpGraph
from placewright.live import METADATA
from placewright.live.caches import CacheState, layer_bytes
from placewright.live.module_graph import (
    LiveModel,
    find_slots,
    module_graph,
    owners_of_weights,
    with_shared_homes,
)
from placewright.live.trace import Trace, trace_forward
from placewright.live.units import Units, find_units
from placewright.live.workload import Workload


def analyse(model: Any, workloads: list[Workload], new_tokens: int, name: str = "") -> tuple[OpGraph, list[OpGraph]]:
    """The graph of the first workload, with all that dispatching needs, and the graphs of all workloads.

    Caches are counted with room for ``new_tokens`` positions more than the workloads leave in them.
    """
    traces, caches = [], []
    for work in workloads:
        state = CacheState(work.caches)
        trace, result = trace_forward(model, work.args, work.kwargs)
        held = [*work.caches, *(result.values() if isinstance(result, dict) else ())]
        caches.append({k: v for value in held for k, v in layer_bytes(value).items()})
        del result
        state.restore()
        traces.append(trace)
    units = with_shared_homes(find_units(model, traces), traces)
    weight_bytes, ties = _weights(model, units)
    layers = _cache_layers(model, units)
    cache_bytes = {
        unit: max((_with_room(c[layer], new_tokens) for c in caches if layer in c), default=0.0)
        for unit, layer in layers.items()
    }
    name = name or type(model).__name__
    made = [module_graph(name, trace, units, weight_bytes, ties) for trace in traces]
    live = LiveModel(
        units=units,
        slots=find_slots(traces, units),
        weight_bytes=weight_bytes,
        cache_bytes=cache_bytes,
        workspace_bytes=float(max(trace.peak_bytes for trace in traces)),
        ties=ties,
        changes_in_place=any(trace.changes_in_place for trace in traces),
        phases=tuple(work.phase for work in workloads),
        nodes={node.name: node for _, nodes in made for node in nodes},
        stacked=_leading(model, units, traces, dimensions=3),
        table_rows=_leading(model, units, traces, dimensions=2),
        layer_of_unit={unit: layer for unit, layer in layers.items() if any(layer in c for c in caches)},
    )
    graphs = [replace(graph, metadata={**graph.metadata, METADATA: live}) for graph, _ in made]
    return graphs[0], graphs


def _weights(model: Any, units: Units) -> tuple[dict[str, float], tuple[tuple[str, ...], ...]]:
    weights: dict[str, float] = {}
    ties = []
    for tensor, holders in owners_of_weights(model, units).values():
        weights[holders[0]] = weights.get(holders[0], 0.0) + tensor.numel() * tensor.element_size()
        if len(holders) > 1:
            ties.append(tuple(holders))
    return weights, tuple(dict.fromkeys(ties))


def _cache_layers(model: Any, units: Units) -> dict[str, int]:
    """Units that keep keys and values, and the number of their layer in the cache."""
    layers: dict[str, int] = {}
    for path, module in model.named_modules():
        number = getattr(module, "layer_idx", None)
        owner = units.owner[path]
        if isinstance(number, int) and owner in set(units.paths):
            layers.setdefault(owner, number)
    return layers


def _with_room(held: tuple[float, int], new_tokens: int) -> float:
    size_bytes, positions = held
    return size_bytes * (1 + new_tokens / positions) if positions else size_bytes


def _leading(model: Any, units: Units, traces: list[Trace], dimensions: int) -> dict[str, int]:
    """Units that are leaves, get indices, and own weights of so many dimensions: the length of the first."""
    modules = dict(model.named_modules())
    flops = {trace.calls[r.call].path for trace in traces for r in trace.records if r.flops > 0}
    found = {}
    for trace in traces:
        for call in trace.calls:
            if call.path in set(units.paths) and call.index_numel and not (dimensions == 2 and call.path in flops):
                own = [p for p in modules[call.path].parameters(recurse=False) if p.dim() == dimensions]
                if own:
                    found[call.path] = int(own[0].shape[0])
    return found
