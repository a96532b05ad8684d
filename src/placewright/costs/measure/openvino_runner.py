"""Measuring in OpenVINO: the runtime's own timers, joined back to the model's ops through the fusions it made.

The plugin runs fused groups. Its runtime model names the original layers of each, and the group's time stands with the
member that does most of the work. Work that the plugin adds itself (changes of layout) is given to the group that reads
the result. Ops that no group names were absorbed while compiling, and join the group that reads them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from placewright.cluster import DeviceKind
from placewright.costs.measure.runner import Setting, threads_of
from placewright.errors import InputError
from placewright.execute.openvino_values import example
from placewright.frontends.module_paths import path_of_name
from placewright.graph import FloatArray, OpGraph
from placewright.profiles import united_groups
from placewright.text import shown


class OpenvinoRunner:
    """A model compiled on one OpenVINO device with profiling on; that costs less than 1% of a run."""

    def __init__(self, model: Any, inputs: Sequence[Any] | None, graph: OpGraph, kind: DeviceKind) -> None:
        import openvino as ov

        core = ov.Core()
        name = kind.runtime_device or ("CPU" if kind.is_host else kind.name.upper())
        _check_device(core, name, kind, model)
        threads, precision = threads_of(kind), kind.precision or "f32"
        options: dict[str, Any] = {"PERF_COUNT": True, "INFERENCE_PRECISION_HINT": precision}
        if name.startswith("CPU"):
            # Pinning would bind all one-thread models of a process to the same core.
            options |= {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False, "NUM_STREAMS": 1}
        compiled = core.compile_model(model, name, options)
        self._request = compiled.create_infer_request()
        self._inputs = [example(i) for i in model.inputs] if inputs is None else [np.asarray(x) for x in inputs]
        self._join = Join(graph, compiled.get_runtime_model())
        self.groups = self._join.groups
        self.setting = Setting("openvino", name, threads, precision, f"openvino {ov.get_version()}")

    def whole_s(self) -> float:
        start = time.perf_counter()
        self._request.infer(self._inputs)
        return time.perf_counter() - start

    def op_times_s(self) -> tuple[FloatArray, float]:
        self._request.infer(self._inputs)
        nodes = {entry.node_name: entry.real_time.total_seconds() for entry in self._request.profiling_info}
        return self._join.op_times_s(nodes)


class Join:
    """Which op of a graph answers for each node of a runtime model."""

    def __init__(self, graph: OpGraph, runtime_model: Any) -> None:
        self._n_ops = graph.n_ops
        by_name = _ops_by_name(graph)
        nodes = list(runtime_model.get_ordered_ops())
        members = {node.get_friendly_name(): _members(node, graph, by_name) for node in nodes}
        groups = [*members.values(), *_absorbed(graph, {v for ops in members.values() for v in ops})]
        self.groups = united_groups([[graph.op_names[v] for v in ops] for ops in groups])
        leader_of = {v: v for v in range(graph.n_ops)}
        for group in self.groups:
            ops = sorted(graph.index_of[name] for name in group)
            leader_of |= dict.fromkeys(ops, max(ops, key=lambda v: graph.flops[v]))
        self._leader = {name: leader_of[ops[0]] for name, ops in members.items() if ops}
        self._borrowed = _neighbours(nodes, self._leader)

    def op_times_s(self, nodes: dict[str, float]) -> tuple[FloatArray, float]:
        times, borrowed_s = np.zeros(self._n_ops), 0.0
        for name, seconds in nodes.items():
            if name in self._leader:
                times[self._leader[name]] += seconds
            elif name in self._borrowed:
                times[self._borrowed[name]] += seconds
                borrowed_s += seconds
        return times, borrowed_s


def _ops_by_name(graph: OpGraph) -> dict[str, int]:
    """Return ops by all that a layer may be named after: the op, what it produces, its module."""
    tensors = zip(graph.tensor_names, graph.tensor_producer.tolist(), strict=True)
    paths = {path: v for v, path in enumerate(graph.module_paths) if path}
    return paths | {name: v for name, v in tensors if name} | graph.index_of


def _members(node: Any, graph: OpGraph, by_name: dict[str, int]) -> list[int]:
    information = node.get_rt_info()
    if "originalLayersNames" not in information or _kind_of(node) in ("Const", "Input", "Output"):
        return []
    found = set()
    for layer in information["originalLayersNames"].astype(str).split(","):
        # A frontend that makes several layers out of an op appends to its name: Gemm/WithoutBiases.
        names = (layer, layer.rpartition("/")[0], path_of_name(layer))
        op = next((by_name[name] for name in names if name in by_name), None)
        if op is not None and graph.op_classes[op] != "free":
            found.add(op)
    return sorted(found)


def _kind_of(node: Any) -> str:
    information = node.get_rt_info()
    return information["layerType"].astype(str) if "layerType" in information else ""


def _neighbours(nodes: list[Any], leader: dict[str, int]) -> dict[str, int]:
    """Return for nodes without ops of their own the op of the node that reads them, else of one that they read."""
    found = dict(leader)
    for node in reversed(nodes):
        readers = [r.get_node().get_friendly_name() for o in node.outputs() for r in o.get_target_inputs()]
        _inherit(found, node.get_friendly_name(), readers)
    for node in nodes:
        sources = [i.get_source_output().get_node().get_friendly_name() for i in node.inputs()]
        _inherit(found, node.get_friendly_name(), sources)
    return {name: op for name, op in found.items() if name not in leader}


def _inherit(found: dict[str, int], name: str, neighbours: list[str]) -> None:
    op = next((found[n] for n in neighbours if n in found), None)
    if op is not None:
        found.setdefault(name, op)


def _absorbed(graph: OpGraph, named: set[int]) -> list[list[int]]:
    """Return a pair with its reader for each op that does work but that no runtime node names."""
    pairs = []
    for v in range(graph.n_ops):
        tensors = range(graph.tensor_ptr[v], graph.tensor_ptr[v + 1])
        readers = [
            int(c) for t in tensors for c in graph.consumer_op[graph.consumer_ptr[t] : graph.consumer_ptr[t + 1]]
        ]
        if v not in named and graph.op_classes[v] != "free" and len(readers) == 1:
            pairs.append([v, readers[0]])
    return pairs


def _check_device(core: Any, name: str, kind: DeviceKind, model: Any) -> None:
    if name not in core.available_devices and name.partition(".")[0] not in core.available_devices:
        raise InputError(
            f"device kind '{shown(kind.name)}' cannot be measured here: OpenVINO lists no device '{shown(name)}', only "
            f"{', '.join(core.available_devices)}; name the kinds that are here with --kinds"
        )
    if not name.startswith("CPU"):
        runs = core.query_model(model, name)
        missing = [op for op in model.get_ordered_ops() if op.get_friendly_name() not in runs]
        if missing:
            raise InputError(
                f"device kind '{shown(kind.name)}': {len(missing)} operators do not run on '{name}', the first is "
                f"'{shown(missing[0].get_friendly_name())}', so the model cannot be measured there as a whole"
            )
