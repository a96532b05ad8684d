"""Placements executed by ONNX Runtime: one session per segment, each with its device's provider."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.execute.dataflow import Dataflow, ExecutionError, Task
from placewright.execute.sample import example_array
from placewright.execute.stages import Part, Source, StagedModel, find_segments, in_planned_order
from placewright.frontends.assemble import unique_names
from placewright.frontends.onnx_shapes import infer_shapes
from placewright.text import shown, shown_list

_AS_ARRAYS = frozenset(
    ["FLOAT16", "FLOAT", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL"]
)  # STRING is one, too, but there is nothing to compare


class OrtSetup(NamedTuple):
    """How a device of the cluster is run: the execution provider, its options, threads (0 = the runtime's choice)."""

    provider: str = "CPUExecutionProvider"
    options: Mapping[str, Any] = {}
    threads: int = 0


class _Piece(NamedTuple):
    device: str
    node_names: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class OrtRun:
    """A model cut into segments, a session for each; a worker per device runs its sessions in order."""

    def __init__(
        self,
        model: Any,
        device_of_name: Mapping[str, str],
        setups: Mapping[str, OrtSetup],
        start_order: Mapping[str, float] | None = None,
    ) -> None:
        """``model`` is an ``onnx_ir.Model``; ops are named as the ONNX frontend names them."""
        import onnx_ir

        _check_providers(setups)
        model, names = _named(model)
        placed = whole_placement(model.graph, names, device_of_name)
        self.pieces = _pieces(model.graph, names, placed, _segments(model.graph, names, placed, start_order))
        began = time.perf_counter()
        self._sessions = [_session(onnx_ir, model, piece, setups[piece.device]) for piece in self.pieces]
        self.compile_s = time.perf_counter() - began
        self._values: dict[str, Any] = {}
        self._inputs = [v.name for v in _inputs(model.graph)]
        self._outputs = [v.name for v in model.graph.outputs]
        _check_results(model.graph)
        maker = {name: p for p, piece in enumerate(self.pieces) for name in piece.outputs}
        after = [frozenset(maker[name] for name in piece.inputs if name in maker) for piece in self.pieces]
        tasks = [
            Task(piece.device, _runner(session, piece, self._values), before, piece.node_names[0])
            for piece, session, before in zip(self.pieces, self._sessions, after, strict=True)
        ]
        self._dataflow = Dataflow(tasks)
        self._lock = threading.Lock()

    @property
    def n_segments(self) -> int:
        return len(self.pieces)

    def __call__(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        with self._lock:
            self._values.update(zip(self._inputs, inputs, strict=True))
            self._dataflow.run_once()
            return [np.asarray(self._values[name]) for name in self._outputs]

    def assignments(self) -> dict[str, str]:
        """The provider that each op really got, read back from the sessions (fused ops under the fused name)."""
        found: dict[str, str] = {}
        for session in self._sessions:
            for info in session.get_provider_graph_assignment_info():
                found.update((node.name, info.ep_name) for node in info.get_nodes())
        return found

    def close(self) -> None:
        """End the workers."""
        self._dataflow.close()


def _check_providers(setups: Mapping[str, OrtSetup]) -> None:
    import onnxruntime

    available = onnxruntime.get_available_providers()
    for name, setup in setups.items():
        if setup.provider not in available:
            raise InputError(
                f"device '{shown(name)}' needs ONNX Runtime's '{shown(setup.provider)}', which is not in this build; "
                f"it has {shown_list(available)}"
            )


def node_names(graph: Any) -> dict[int, str]:
    """The frontend's name of every node, by identity."""
    inputs = [v.name for v in _inputs(graph)]
    nodes = list(graph)
    names = unique_names(
        inputs + [node.name or "" for node in nodes], inputs + [node.outputs[0].name or "" for node in nodes]
    )
    return {id(node): name for node, name in zip(nodes, names[len(inputs) :], strict=True)}


def whole_placement(graph: Any, names: Mapping[int, str], device_of_name: Mapping[str, str]) -> dict[str, str]:
    """Every node's device; a node that computes from weights alone goes with its first reader if it is not named."""
    placed: dict[str, str] = {}
    for node in reversed(list(graph)):
        name = names[id(node)]
        is_fixed = all(v is None or v.is_initializer() for v in node.inputs)
        readers = _readers(node, names)
        if is_fixed and readers:
            placed[name] = placed[readers[0]]
        elif name in device_of_name:
            placed[name] = device_of_name[name]
        else:
            raise InputError(f"the placement has no device for operator '{shown(name)}' ({shown(node.op_type)})")
    return placed


def _segments(
    graph: Any, names: Mapping[int, str], placed: Mapping[str, str], start_order: Mapping[str, float] | None
) -> dict[str, int]:
    nodes = {names[id(node)]: node for node in graph}

    def producers(node: Any) -> list[str]:
        made_by = [v.producer() for v in node.inputs if v is not None]
        return [names[id(p)] for p in made_by if id(p) in names]

    producers_of = {name: producers(node) for name, node in nodes.items()}
    order = in_planned_order(producers_of, start_order)
    return find_segments(((name, producers_of[name], _readers(nodes[name], names)) for name in order), placed)


def _readers(node: Any, names: Mapping[int, str]) -> list[str]:
    return [names[id(n)] for v in node.outputs for n, _ in v.uses() if id(n) in names]


def _pieces(
    graph: Any, names: Mapping[int, str], placed: Mapping[str, str], segment_of: Mapping[str, int]
) -> list[_Piece]:
    n_segments = max(segment_of.values()) + 1
    members: list[list[str]] = [[] for _ in range(n_segments)]
    inputs: list[dict[str, None]] = [{} for _ in range(n_segments)]
    outputs: list[dict[str, None]] = [{} for _ in range(n_segments)]
    results = {v.name for v in graph.outputs}
    for node in graph:
        here = segment_of[names[id(node)]]
        members[here].append(names[id(node)])
        for value in node.inputs:
            if value is None or value.is_initializer():
                continue
            producer = value.producer()
            if producer is None or segment_of[names[id(producer)]] != here:
                inputs[here][value.name] = None
        for value in node.outputs:
            read_elsewhere = any(segment_of[names[id(n)]] != here for n, _ in value.uses() if id(n) in names)
            if read_elsewhere or value.name in results:
                outputs[here][value.name] = None
    return [
        _Piece(placed[members[s][0]], tuple(members[s]), tuple(inputs[s]), tuple(outputs[s])) for s in range(n_segments)
    ]


def _session(onnx_ir: Any, model: Any, piece: _Piece, setup: OrtSetup) -> Any:
    import onnxruntime

    try:
        graph = onnx_ir.convenience.extract(model.graph, list(piece.inputs), list(piece.outputs))
    except ValueError as error:  # a body that reads values of the graph around it
        raise ExecutionError(
            f"the segment from '{shown(piece.node_names[0])}' cannot be cut out: {shown(str(error))}"
        ) from error
    cut_out = onnx_ir.Model(graph, ir_version=model.ir_version, functions=list(model.functions.values()))
    cut_out.opset_imports.update(model.opset_imports)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup.threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    content = onnx_ir.to_proto(cut_out).SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=[(setup.provider, dict(setup.options))])


def _runner(session: Any, piece: _Piece, values: dict[str, Any]) -> Any:
    def run() -> None:
        outputs = session.run(list(piece.outputs), {name: values[name] for name in piece.inputs})
        values.update(zip(piece.outputs, outputs, strict=True))

    return run


def staged_ort(
    model: Any, device_of_name: Mapping[str, str], stage_of_name: Mapping[str, int], setups: Mapping[str, OrtSetup]
) -> StagedModel:
    """The model as one session per stage."""
    import onnx_ir

    _check_providers(setups)
    model, names = _named(model)
    _check_results(model.graph)
    placed = whole_placement(model.graph, names, device_of_name)
    pieces = _pieces(model.graph, names, placed, {n: stage_of_name[n] for n in placed})
    source_of = {v.name: Source(-1, i) for i, v in enumerate(_inputs(model.graph))}
    source_of |= {name: Source(p, i) for p, piece in enumerate(pieces) for i, name in enumerate(piece.outputs)}

    def compiled(piece: _Piece) -> Callable[[list[Any]], list[Any]]:
        session = _session(onnx_ir, model, piece, setups[piece.device])
        return lambda values: list(session.run(list(piece.outputs), dict(zip(piece.inputs, values, strict=True))))

    parts = tuple(
        Part(p.device, functools.partial(compiled, p), tuple(source_of[name] for name in p.inputs), p.node_names)
        for p in pieces
    )
    return StagedModel(parts, tuple(source_of[v.name] for v in model.graph.outputs))


def _named(model: Any) -> tuple[Any, dict[int, str]]:
    """A copy of the model whose values have types and whose nodes have the frontend's names."""
    model = model.clone()
    infer_shapes(model, fixed_inputs=False)  # sub-models must say the types of what they exchange
    names = node_names(model.graph)
    for node in model.graph:
        node.name = names[id(node)]  # so that assignments can be read back under these names
    return model, names


def example(value: Any, where: str) -> NDArray[Any]:
    """A sample's input for a graph input; :class:`InputError` if its type is none that ONNX Runtime takes as arrays."""
    import onnx_ir

    if not isinstance(value.type, onnx_ir.TensorType) or value.dtype.name not in _AS_ARRAYS:
        raise _type_error("input", value, where)
    return example_array(tuple(int(d) for d in value.shape), value.dtype.numpy())


def _type_error(what: str, value: Any, where: str) -> InputError:
    kind = type(value.type).__name__.removesuffix("Type")
    text = value.dtype.name if kind == "Tensor" else f"{kind} of {value.dtype.name}"
    return InputError(
        f"{where}: {what} '{shown(value.name)}' has type {shown(text)}, which ONNX Runtime does not exchange as "
        "arrays; let the model convert from and to FLOAT16, FLOAT, DOUBLE, whole numbers or BOOL"
    )


def _check_results(graph: Any) -> None:
    """A result that no node makes cannot come out of a session."""
    for value in graph.outputs:
        if value.is_initializer():
            raise InputError(
                f"a result of the model, '{shown(value.name)}', is a constant, so no device makes it; leave it out of "
                "the model's results to run it in parts"
            )


def _inputs(graph: Any) -> list[Any]:
    return [v for v in graph.inputs if v.name not in graph.initializers]
