"""Placements executed by OpenVINO: through HETERO, or as sub-models that run beside each other."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.execute.child import Child
from placewright.execute.dataflow import Dataflow, ExecutionError, Task
from placewright.execute.openvino_layout import Value, computes_channels_last, kept_transpositions, values_channels_last
from placewright.execute.openvino_split import Segment, SplitModel, model_segments, split_model, whole_placement
from placewright.execute.openvino_values import to_array, to_tensor
from placewright.execute.openvino_worker import WorkerModel, start_worker
from placewright.execute.stages import Part, Source, StagedModel
from placewright.text import shown, shown_list

CPU_PLUGIN = "openvino_intel_cpu_plugin"
AFFINITY = "affinity"


_CALLS = 200


class DeviceSetup(NamedTuple):
    """How a device of the cluster is run: OpenVINO's device string, and properties for compiling on it."""

    runtime_device: str
    properties: Mapping[str, Any]
    instruction_set: str = ""  # no more than these, in a worker process


def core_setup(threads: int = 1, precision: str = "f32", instruction_set: str = "") -> DeviceSetup:
    """Some cores of this CPU as a device.

    Pinning is off: it would bind every one-thread model to the same core. The precision is always said: the default
    on CPUs with bfloat16 units is not f32.
    """
    return DeviceSetup(
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": precision,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
        },
        instruction_set,
    )


class Compiler:
    """Compiles sub-models on devices, those of worker processes included, which live until :meth:`close`."""

    def __init__(self, setups: Mapping[str, DeviceSetup]) -> None:
        self._setups = setups
        self._core, self._runtime = registered_core(setups)
        self._workers: dict[str, Child] = {}

    def crossing_channels_last(self, model: Any) -> set[Value]:
        """The values of a model that should be handed over channels last, if all devices compute so."""
        found = values_channels_last(model.get_ordered_ops())
        return found if found and self._computes_channels_last() else set()

    def _computes_channels_last(self) -> bool:
        # Fewer instructions mean narrower vectors, for which images lie in blocks of channels.
        if any(setup.instruction_set for setup in self._setups.values()):
            return False
        alike = {(self._runtime[d].rstrip("0123456789"), *s.properties.items()): d for d, s in self._setups.items()}
        return all(computes_channels_last(functools.partial(self.compiled, device=d)) for d in alike.values())

    def compiled(self, model: Any, device: str) -> Any:
        """The sub-model compiled on a device."""
        setup = self._setups[device]
        if not setup.instruction_set:
            return self._core.compile_model(model, self._runtime[device], dict(setup.properties))
        if device not in self._workers:
            self._workers[device] = start_worker(device, setup.instruction_set)
        return WorkerModel(self._workers[device], model, setup.properties)

    def close(self) -> None:
        """End the worker processes."""
        for worker in self._workers.values():
            worker.close()


def registered_core(setups: Mapping[str, DeviceSetup]) -> tuple[Any, dict[str, str]]:
    """A Core that knows a device for every name: the CPU plugin is registered again for each device on it but one.

    Returns the core and the runtime's device name of each of ours.
    """
    import openvino as ov

    core = ov.Core()
    names = runtime_names({name: setup.runtime_device for name, setup in setups.items()})
    for runtime in extra_cpus(names):
        core.register_plugin(CPU_PLUGIN, runtime)
    missing = [
        r for r in names.values() if r.partition(".")[0] not in {d.partition(".")[0] for d in core.available_devices}
    ]
    if missing:
        raise InputError(
            f"OpenVINO has no device '{shown(missing[0])}' on this machine; it has {shown_list(core.available_devices)}"
        )
    return core, names


def runtime_names(device_strings: Mapping[str, str]) -> dict[str, str]:
    """OpenVINO's name of each device: equal ones are told apart, CPUs as further plugins, others by number.

    >>> runtime_names({"core0": "CPU", "core1": "CPU", "gpu0": "GPU"})
    {'core0': 'CPU', 'core1': 'CPU2', 'gpu0': 'GPU'}
    >>> runtime_names({"gpu0": "GPU", "gpu1": "GPU"})
    {'gpu0': 'GPU.0', 'gpu1': 'GPU.1'}
    """
    names: dict[str, str] = {}
    for name, runtime in device_strings.items():
        same = sum(1 for other in names if device_strings[other] == runtime)
        if runtime == "CPU":
            names[name] = runtime if same == 0 else f"CPU{same + 1}"
        else:
            several = list(device_strings.values()).count(runtime) > 1
            names[name] = f"{runtime}.{same}" if several and "." not in runtime else runtime
    return names


def extra_cpus(names: Mapping[str, str]) -> list[str]:
    """The names in use for which the CPU plugin must be registered again."""
    return [n for n in dict.fromkeys(names.values()) if n.startswith("CPU") and n[3:].isdigit()]


def write_affinities(model: Any, affinity_of_name: Mapping[str, str]) -> None:
    """Give every op of the model its affinity, by name."""
    for op in model.get_ordered_ops():
        op.get_rt_info()[AFFINITY] = affinity_of_name[op.get_friendly_name()]


def read_affinities(model: Any) -> dict[str, str]:
    """The affinities that a model carries, by op name; ops without one are left out."""
    found: dict[str, str] = {}
    for op in model.get_ordered_ops():
        info = op.get_rt_info()
        if AFFINITY in info:
            found[op.get_friendly_name()] = str(info[AFFINITY].value)
    return found


class HeteroModel:
    """A model compiled by HETERO with our affinities. Sub-models run one after another, whatever the devices."""

    def __init__(self, model: Any, device_of_name: Mapping[str, str], setups: Mapping[str, DeviceSetup]) -> None:
        apart = [name for name, setup in setups.items() if setup.instruction_set]
        if apart:
            raise InputError(f"device '{shown(apart[0])}' runs in a worker process, which HETERO cannot use")
        self._core, runtime = registered_core(setups)
        placed = whole_placement(model, device_of_name)
        labelled = model.clone()
        write_affinities(labelled, {n: runtime[d] for n, d in placed.items()})
        self.affinities = read_affinities(labelled)
        wrong = [n for n, d in placed.items() if self.affinities.get(n) != runtime[d]]
        if wrong:
            raise ExecutionError(
                f"affinity of operator '{shown(wrong[0])}' did not read back ({len(wrong)} of {len(placed)})"
            )
        for name, setup in setups.items():
            self._core.set_property(runtime[name], dict(setup.properties))
        began = time.perf_counter()
        self._compiled = self._core.compile_model(labelled, "HETERO:" + ",".join(dict.fromkeys(runtime.values())))
        self.compile_s = time.perf_counter() - began
        self.n_segments = int(self._compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))
        self._request = self._compiled.create_infer_request()
        self._input_types = [p.get_element_type() for p in model.inputs]

    def __call__(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        self._request.infer([to_tensor(v, element) for v, element in zip(inputs, self._input_types, strict=True)])
        return [to_array(tensor) for tensor in self._request.output_tensors]

    def close(self) -> None:
        """Let go of the compiled model; the object cannot be used afterwards."""
        del self._request, self._compiled


class SplitRun:
    """A model cut into segments, each compiled on its device; a worker per device runs its segments in order.

    Tensors that stay in host memory are handed over without a copy: the reader's input is the writer's output. One
    sample at a time; calls from several threads queue.
    """

    def __init__(
        self,
        model: Any,
        device_of_name: Mapping[str, str],
        setups: Mapping[str, DeviceSetup],
        start_order: Mapping[str, float] | None = None,
    ) -> None:
        """``start_order`` gives ops' planned starts: every device works in that order."""
        self._compiler = Compiler(setups)
        placed = whole_placement(model, device_of_name)
        segment_of = model_segments(model, placed, start_order)
        began = time.perf_counter()
        self.split, compiled = self._compiled(model, placed, segment_of)
        self._requests = [c.create_infer_request() for c in compiled]
        self._input_types = [p.get_element_type() for p in model.inputs]
        self.compile_s = time.perf_counter() - began
        self._bind_tensors()
        tasks = [
            Task(
                device=s.device,
                run=self._task(request, s),
                after=frozenset(source.part for source in s.sources if source.part >= 0),
                label=s.op_names[0],
            )
            for s, request in zip(self.split.segments, self._requests, strict=True)
        ]
        self._dataflow = Dataflow(tasks)
        self._lock = threading.Lock()

    @property
    def n_segments(self) -> int:
        return len(self.split.segments)

    def __call__(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        with self._lock:
            tensors = [to_tensor(i, element) for i, element in zip(inputs, self._input_types, strict=True)]
            for request, segment in zip(self._requests, self.split.segments, strict=True):
                for port, source in enumerate(segment.sources):
                    if source.part < 0:
                        request.set_input_tensor(port, tensors[source.number])
            self._dataflow.run_once()
            return [self._result(source, tensors) for source in self.split.results]

    def close(self) -> None:
        """End the workers."""
        self._dataflow.close()
        self._compiler.close()

    def _compiled(
        self, model: Any, placed: Mapping[str, str], segment_of: Mapping[str, int]
    ) -> tuple[SplitModel, list[Any]]:
        """The model cut and compiled; what the plugin would really transpose crosses as it is."""
        is_last = self._compiler.crossing_channels_last(model)
        compiled: dict[tuple[int, frozenset[Value]], Any] = {}
        while True:
            split = split_model(model, placed, segment_of, is_last)
            keys = [(number, segment.is_last) for number, segment in enumerate(split.segments)]
            kept: set[Value] = set()
            for key, segment in zip(keys, split.segments, strict=True):
                if key not in compiled:
                    compiled[key] = self._compiler.compiled(segment.model, segment.device)
                    kept |= kept_transpositions(compiled[key]) if segment.is_last else set()
            if not kept:
                return split, [compiled[key] for key in keys]
            is_last = is_last - kept

    def _result(self, source: Source, inputs: list[Any]) -> NDArray[Any]:
        if source.part < 0:
            return to_array(inputs[source.number])
        return to_array(self._requests[source.part].get_output_tensor(source.number))

    def _bind_tensors(self) -> None:
        for request, segment in zip(self._requests, self.split.segments, strict=True):
            for port, source in enumerate(segment.sources):
                if source.part >= 0 and not self._is_open(source):
                    request.set_input_tensor(port, self._requests[source.part].get_output_tensor(source.number))

    def _is_open(self, source: Source) -> bool:
        """Whether only the data decide the shape of what a segment makes."""
        return bool(self.split.segments[source.part].model.output(source.number).get_partial_shape().is_dynamic)

    def _task(self, request: Any, segment: Segment) -> Callable[[], object]:
        """What runs a segment; tensors of open shape are handed over each time, since they may be others then."""
        infer = functools.partial(request.infer, share_inputs=True, share_outputs=True)
        late = [(p, s) for p, s in enumerate(segment.sources) if s.part >= 0 and self._is_open(s)]
        if not late:
            return infer

        def run() -> None:
            for port, source in late:
                request.set_input_tensor(port, self._requests[source.part].get_output_tensor(source.number))
            infer()

        return run


def call_overhead_s(setups: Mapping[str, DeviceSetup], device: str) -> float:
    """Seconds that a segment takes on a device though it has next to nothing to do."""
    import openvino as ov
    from openvino import opset13 as make

    x = make.parameter([1, 16], np.float32, name="x")
    model = ov.Model([make.relu(x)], [x], "nothing")
    run = SplitRun(model, {op.get_friendly_name(): device for op in model.get_ordered_ops()}, setups)
    request = run._requests[0]
    try:
        seconds = []
        for _ in range(_CALLS):
            began = time.perf_counter()
            request.infer(share_inputs=True, share_outputs=True)
            seconds.append(time.perf_counter() - began)
        return float(np.median(seconds))
    finally:
        run.close()


def staged_openvino(
    model: Any, device_of_name: Mapping[str, str], stage_of_name: Mapping[str, int], setups: Mapping[str, DeviceSetup]
) -> StagedModel:
    """The model as one sub-model per stage that has something to compute.

    Tensors cross as the model has them: there are few, and stages of the same cut can be compared on any devices.
    """
    compiler = Compiler(setups)
    placed = whole_placement(model, device_of_name)
    stage_of = {n: stage_of_name[n] for n in model_segments(model, placed)}
    number = {stage: i for i, stage in enumerate(sorted(set(stage_of.values())))}
    split = split_model(model, placed, {n: number[stage] for n, stage in stage_of.items()})
    if not split.segments:
        raise InputError("the model computes nothing, so there is nothing to run in stages")

    def compiled(segment: Segment) -> Callable[[list[Any]], list[Any]]:
        request = compiler.compiled(segment.model, segment.device).create_infer_request()
        elements = [p.get_element_type() for p in segment.model.inputs]
        n_outputs = len(segment.model.outputs)

        def run(values: list[Any]) -> list[Any]:
            for port, value in enumerate(values):
                request.set_input_tensor(port, to_tensor(value, elements[port]))
            request.infer(share_inputs=True, share_outputs=True)
            # Outputs are copied: the next sample overwrites the request's own.
            return [to_array(request.get_output_tensor(i)) for i in range(n_outputs)]

        return run

    parts = tuple(Part(s.device, functools.partial(compiled, s), s.sources, s.op_names) for s in split.segments)
    return StagedModel(parts, split.results)
