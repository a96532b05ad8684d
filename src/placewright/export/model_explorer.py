"""Model Explorer: the graph as it opens one, its node data, and the copies between devices as edge overlays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from placewright.export.base import Exported, beside, colour, devices_of, json_bytes, segments_of, whole
from placewright.placement import Placement
from placewright.text import bytes_text, time_text

NODE_DATA = ".node_data.json"


def model_explorer(placement: Placement, output: Path) -> Exported:
    """The graph with overlays; beside it node data, by op name and by tensor name, for a graph opened otherwise."""
    graph_id = whole(placement.problem.graph.name) or "model"
    document = [{"id": graph_id, "nodes": _nodes(placement), "tasksData": _overlays(placement, graph_id)}]
    data = {graph_id: {"name": "device", "results": _results(placement), "showExpandedSummaryOnGroupNode": True}}
    return Exported({output: json_bytes(document), beside(output, NODE_DATA): json_bytes(data)})


def _nodes(placement: Placement) -> list[dict[str, Any]]:
    problem, device, segment = placement.problem, devices_of(placement), segments_of(placement)
    graph, names = problem.graph, [whole(n) for n in problem.graph.op_names]
    nodes = []
    for v, d in enumerate(device.tolist()):
        took = time_text(float(problem.op_time_s[v, problem.cluster.device_kind[d]]), problem.time_unit)
        facts = {"device": problem.cluster.devices[d].name, "time": took, "segment": str(segment[v])}
        if placement.stage is not None:
            facts["stage"] = str(placement.stage[v])
        reads = graph.input_tensor[graph.input_ptr[v] : graph.input_ptr[v + 1]].tolist()
        edges = [
            {
                "sourceNodeId": names[graph.tensor_producer[t]],
                "sourceNodeOutputId": str(t - graph.tensor_ptr[graph.tensor_producer[t]]),
                "targetNodeInputId": str(i),
            }
            for i, t in enumerate(reads)
        ]
        makes = range(graph.tensor_ptr[v], graph.tensor_ptr[v + 1])
        nodes.append(
            {
                "id": names[v],
                "label": whole(graph.op_types[v]) or names[v],
                "namespace": whole(graph.module_paths[v]).replace(".", "/"),
                "attrs": [{"key": key, "value": whole(value)} for key, value in facts.items()],
                "incomingEdges": edges,
                "outputsMetadata": [
                    {"id": str(i), "attrs": [{"key": "tensor_shape", "value": str(list(graph.tensor_shapes[t]))}]}
                    for i, t in enumerate(makes)
                ],
                "style": {"backgroundColor": colour(d)},
            }
        )
    return nodes


def _results(placement: Placement) -> dict[str, dict[str, str]]:
    problem, device = placement.problem, devices_of(placement)
    graph, names = problem.graph, problem.cluster.device_names
    by_tensor = zip(graph.tensor_names, device[graph.tensor_producer].tolist(), strict=True)
    keys = {whole(name): d for name, d in by_tensor if name} | {
        whole(name): d for name, d in zip(graph.op_names, device.tolist(), strict=True)
    }
    return {key: {"value": whole(names[d]), "bgColor": colour(d), "textColor": "#ffffff"} for key, d in keys.items()}


def _overlays(placement: Placement, graph_id: str) -> dict[str, Any]:
    """An overlay for every pair of devices between which something is copied."""
    problem, device = placement.problem, devices_of(placement)
    graph, names = problem.graph, problem.cluster.device_names
    crossing = np.flatnonzero(device[graph.edge_producer] != device[graph.consumer_op]).tolist()
    edges: dict[tuple[int, int], list[dict[str, str]]] = {}
    for e in crossing:
        source, target = int(graph.edge_producer[e]), int(graph.consumer_op[e])
        edges.setdefault((int(device[source]), int(device[target])), []).append(
            {
                "sourceNodeId": whole(graph.op_names[source]),
                "targetNodeId": whole(graph.op_names[target]),
                "label": bytes_text(float(graph.tensor_bytes[graph.edge_tensor[e]])),
            }
        )
    overlays = [
        {"name": whole(f"{names[a]} to {names[b]}"), "edgeColor": colour(a), "edgeWidth": 2, "edges": of_pair}
        for (a, b), of_pair in sorted(edges.items())
    ]
    data = {"type": "edge_overlays", "name": "copies between devices", "graphName": graph_id, "overlays": overlays}
    return {"edgeOverlaysDataListLeftPane": [data] if overlays else []}
