"""Models that can be run as placed: opened in a runtime, and put on the devices of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from placewright.cluster import Cluster, DeviceKind
from placewright.errors import InputError
from placewright.execute.refusals import Refusals
from placewright.execute.stages import StagedModel
from placewright.extras import require
from placewright.frontends.registry import read_model
from placewright.graph import OpGraph
from placewright.reading import reading
from placewright.text import shown

RUNTIMES = ("openvino", "openvino-hetero", "torch", "onnxruntime")
Devices = Mapping[str, str]  # op name -> device name


class Executor(Protocol):
    """A placed model, ready to run one sample at a time."""

    def __call__(self, inputs: Sequence[Any]) -> list[Any]: ...

    def close(self) -> None: ...


class LiveModel(NamedTuple):
    """A model in a runtime; ``graph`` has the runtime's own op names, which placements must use."""

    runtime: str
    graph: OpGraph
    inputs: list[Any]
    start: Callable[[Devices, Cluster, Mapping[str, float] | None], Executor]
    staged: Callable[[Devices, Mapping[str, int], Cluster], StagedModel]
    call_overhead_s: Callable[[Cluster], dict[str, float]] = lambda cluster: {}  # of one segment, by kind
    model: Any = None  # the runtime's own object
    # All on one device, in no more memory than it has; ops' times, by name, help to plan. None: the runtime cannot.
    start_within: Callable[[str, Cluster, Mapping[str, float]], Executor] | None = None


def open_live(
    model: str, runtime: str, shapes: Mapping[str, tuple[int, ...]] | None = None, *, cuda_graphs: bool = False
) -> LiveModel:
    """Open ``zoo:NAME`` or a model file in a runtime; inputs are random where the model brings none along.

    ``cuda_graphs`` lets torch record what runs on CUDA devices, so that it is launched at once.
    """
    if runtime not in RUNTIMES:
        raise InputError(f"unknown runtime '{shown(runtime)}', expected {', '.join(RUNTIMES)}")
    package_needed = runtime_package(runtime)
    for package in (package_needed, "onnx_ir") if runtime == "onnxruntime" else (package_needed,):
        require(package)
    if cuda_graphs and runtime != "torch":
        raise InputError(f"CUDA graphs are for models that torch runs; this one is run by {runtime}")
    refusals = Refusals(runtime, model)
    with refusals.told():
        if runtime == "torch":
            live = _open_torch(model, cuda_graphs, shapes or {})
        elif runtime == "onnxruntime":
            live = _open_onnxruntime(model, shapes or {})
        else:
            live = _open_openvino(model, shapes or {})
    return _guarded(_by_hetero(live) if runtime == "openvino-hetero" else live, refusals)


def _guarded(live: LiveModel, refusals: Refusals) -> LiveModel:
    """The same model; what its runtime raises from now on is told in one line."""
    within = live.start_within
    return live._replace(
        start=lambda *given: refusals.executor(lambda: live.start(*given)),
        staged=lambda *given: refusals.staged(lambda: live.staged(*given)),
        start_within=within and (lambda *given: refusals.executor(lambda: within(*given))),
    )


def runtime_package(runtime: str) -> str:
    """The package that a runtime is.

    >>> runtime_package("openvino-hetero")
    'openvino'
    """
    return runtime.partition("-")[0]


def devices_by_name(graph: OpGraph, device_of_op: Sequence[int], cluster: Cluster) -> dict[str, str]:
    """An assignment by names."""
    names = cluster.device_names
    return {op: names[d] for op, d in zip(graph.op_names, device_of_op, strict=True)}


def _open_openvino(model: str, shapes: Mapping[str, tuple[int, ...]]) -> LiveModel:
    import openvino as ov

    from placewright.execute.openvino import SplitRun, call_overhead_s, staged_openvino
    from placewright.execute.openvino_values import check_types, example
    from placewright.frontends.openvino_conversion import zoo_openvino

    inputs: list[Any] | None = None
    if model.startswith("zoo:"):
        live, inputs = zoo_openvino(model.removeprefix("zoo:"))
        graph = read_model(live, {})
    else:
        graph = read_model(model, shapes)  # which also says what is wrong with the file or the shapes
        live = ov.Core().read_model(model)
        if shapes:
            live.reshape({name: list(shape) for name, shape in shapes.items()})
        if Path(model).suffix == ".onnx":
            graph = read_model(live, {})  # OpenVINO gives some ops of ONNX other names
    if inputs is None:
        check_types(live, shown(model, 200))
        inputs = [example(p) for p in live.inputs]
    return LiveModel(
        "openvino",
        graph,
        inputs,
        lambda devices, cluster, starts: SplitRun(live, devices, openvino_setups(cluster), starts),
        lambda devices, stage, cluster: staged_openvino(live, devices, stage, openvino_setups(cluster)),
        lambda cluster: {d.kind: call_overhead_s(openvino_setups(cluster), d.name) for d in cluster.devices},
        live,
    )


def _by_hetero(live: LiveModel) -> LiveModel:
    """The same model, run by OpenVINO's own HETERO: one sub-model after another, which is ``sequential`` execution."""
    from placewright.execute.openvino import HeteroModel

    def staged(devices: Devices, stage: Mapping[str, int], cluster: Cluster) -> StagedModel:
        raise InputError("HETERO runs one sample at a time; run stages of a pipeline by openvino")

    return live._replace(
        runtime="openvino-hetero",
        start=lambda devices, cluster, starts: HeteroModel(live.model, devices, openvino_setups(cluster)),
        staged=staged,
        call_overhead_s=lambda cluster: {},
    )


def _open_torch(model: str, cuda_graphs: bool, shapes: Mapping[str, tuple[int, ...]]) -> LiveModel:
    import torch

    from placewright.execute.torch import TorchRun
    from placewright.execute.torch_program import example_inputs
    from placewright.execute.torch_room import ops_on, plan_room
    from placewright.execute.torch_stages import staged_torch
    from placewright.execute.torch_weights import WeightStore
    from placewright.execute.torch_workers import keep_freed_memory
    from placewright.frontends.torch_archive import load_program

    if model.startswith("zoo:"):
        from placewright.zoo import zoo_module

        module, examples = zoo_module(model.removeprefix("zoo:"))
        program = torch.export.export(module.eval(), tuple(examples))
        inputs = list(examples)
    elif Path(model).suffix == ".pt2":
        program = load_program(Path(model), shown(model, 200), shapes)
        inputs = example_inputs(program)
    else:
        raise InputError(f"{shown(model, 200)}: cannot be run by torch; expected zoo:NAME or a .pt2 file")

    keep_freed_memory()

    class Listed(TorchRun):
        """Takes its inputs as a list, as the other executors do."""

        def __call__(self, inputs: Sequence[Any]) -> list[Any]:
            return super().__call__(*inputs)

    graph = read_model(program, {})

    def start_within(device: str, cluster: Cluster, op_time_s: Mapping[str, float]) -> Executor:
        store, devices = WeightStore(program), dict.fromkeys(graph.op_names, device)
        memory_bytes = dict(zip(cluster.device_names, (d.memory_bytes for d in cluster.devices), strict=True))
        part = ops_on(device, program, devices, cluster.device_names, store.by_placeholder)
        room = plan_room(part, memory_bytes[device], op_time_s)
        return Listed(
            program,
            devices,
            _torch_devices(cluster),
            store=store,
            rooms={device: room},
            use_graphs=cuda_graphs,
            threads=_threads(cluster),
        )

    return LiveModel(
        "torch",
        graph,
        inputs,
        lambda devices, cluster, starts: Listed(
            program, devices, _torch_devices(cluster), starts, use_graphs=cuda_graphs, threads=_threads(cluster)
        ),
        lambda devices, stage, cluster: staged_torch(
            program, devices, stage, _torch_devices(cluster), _threads(cluster)
        ),
        start_within=start_within,
    )


def _open_onnxruntime(model: str, shapes: Mapping[str, tuple[int, ...]]) -> LiveModel:
    import onnx_ir

    from placewright.execute.onnxruntime import OrtRun, example, staged_ort

    if Path(model).suffix != ".onnx":
        raise InputError(f"{shown(model, 200)}: cannot be run by onnxruntime; expected an .onnx file")
    graph = read_model(model, shapes)
    with reading(model, "a model") as where:
        live: Any = onnx_ir.load(model)
        for value in live.graph.inputs:
            if value.name in shapes:
                value.shape = onnx_ir.Shape(list(shapes[value.name]))
        values = [v for v in live.graph.inputs if v.name not in live.graph.initializers]
        inputs = [example(v, where) for v in values]
    return LiveModel(
        "onnxruntime",
        graph,
        inputs,
        lambda devices, cluster, starts: OrtRun(live, devices, _ort_setups(cluster), starts),
        lambda devices, stage, cluster: staged_ort(live, devices, stage, _ort_setups(cluster)),
    )


def openvino_setups(cluster: Cluster) -> dict[str, Any]:
    """How OpenVINO runs each device of the cluster, by name."""
    from placewright.execute.openvino import DeviceSetup, core_setup

    def setup(kind: DeviceKind) -> DeviceSetup:
        runtime = kind.runtime_device or ("CPU" if kind.is_host else kind.name.upper())
        if runtime == "CPU":
            return core_setup(kind.threads, kind.precision or "f32", kind.instruction_set)
        return DeviceSetup(runtime, {"INFERENCE_PRECISION_HINT": kind.precision or "f32"})

    return _by_device(cluster, setup, takes_instruction_sets=True)


def _torch_devices(cluster: Cluster) -> dict[str, str]:
    from placewright.costs.measure.torch_runner import torch_device

    return _by_device(cluster, lambda kind: str(torch_device(kind)))


def _threads(cluster: Cluster) -> dict[str, int]:
    return _by_device(cluster, lambda kind: kind.threads)


def _ort_setups(cluster: Cluster) -> dict[str, Any]:
    from placewright.execute.onnxruntime import OrtSetup

    providers = {
        "CPU": "CPUExecutionProvider",
        "CUDA": "CUDAExecutionProvider",
        "OPENVINO": "OpenVINOExecutionProvider",
    }

    def setup(kind: DeviceKind) -> OrtSetup:
        runtime = (kind.runtime_device or ("CPU" if kind.is_host else "CUDA")).partition(":")[0]
        return OrtSetup(providers.get(runtime.upper(), runtime), {}, kind.threads)

    return _by_device(cluster, setup)


def _by_device(
    cluster: Cluster, make: Callable[[DeviceKind], Any], *, takes_instruction_sets: bool = False
) -> dict[str, Any]:
    kinds = {k.name: k for k in cluster.kinds}
    apart = [k.name for k in cluster.kinds if k.instruction_set]
    if apart and not takes_instruction_sets:
        raise InputError(
            f"device kind '{shown(apart[0])}' has an instruction set of its own; only openvino can do that"
        )
    return {d.name: make(kinds[d.kind]) for d in cluster.devices}
