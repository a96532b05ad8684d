"""Placements executed by PyTorch: an exported program, every op on the device that the placement gives it.

One worker thread per device runs its ops in order; a tensor that another device reads is sent there once, as soon as it
is there. On CUDA, kernels are queued on the device's own stream and copies on a stream per pair, so that compute and
copies overlap; a CPU device waits for the copy's event only. Several CPU devices (cores) share memory without copies.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from placewright.errors import InputError
from placewright.execute.dataflow import ExecutionError
from placewright.execute.stages import Part, Source, StagedModel
from placewright.text import shown

if TYPE_CHECKING:
    import torch


class _Step(NamedTuple):
    """One op of a device's list."""

    name: str
    function: Any
    args: Any  # nested, with _Slot in place of values
    kwargs: Any
    slot: int
    waits: tuple[int, ...]  # slots that come from other devices and must have arrived
    sends: tuple[int, ...]  # devices that read the result
    frees: tuple[int, ...]  # slots not read again on this device


class _Slot(NamedTuple):
    number: int


class TorchRun:
    """A program ready to run; call it with the user's inputs and get its outputs. Runs one sample at a time."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        device_of_name: Mapping[str, str],
        torch_devices: Mapping[str, str],
        start_order: Mapping[str, float] | None = None,
    ) -> None:
        """``torch_devices`` gives each device's torch name (``cpu``, ``cuda:0``); ``start_order`` ops' planned starts.

        An op that is not named (a constant, a view of one tensor taken apart) follows its first input.
        """
        import torch

        self._names = list(torch_devices)
        self._torch = [torch.device(d) for d in torch_devices.values()]
        self._lock = threading.Lock()
        self._errors: list[str] = []
        self._is_closed = False
        self._copy_streams: dict[tuple[int, int], Any] = {}
        _check_signature(program)
        nodes = [n for n in program.graph.nodes if n.op == "call_function"]
        self._device_of = _devices(nodes, device_of_name, self._names)
        self._build(program, _ordered(nodes, start_order))
        used = [d for d in range(len(self._names)) if self._steps[d]]
        self._round = threading.Barrier(len(used) + 1)
        self._finished = threading.Barrier(len(used) + 1)
        self._threads = [threading.Thread(target=self._life, args=(d,), name=self._names[d], daemon=True) for d in used]
        for thread in self._threads:
            thread.start()

    @property
    def crossings(self) -> int:
        """How many tensors one sample sends to another device."""
        return sum(len(step.sends) for steps in self._steps for step in steps) + self._input_crossings

    def __call__(self, *inputs: Any) -> list[Any]:
        import torch

        with self._lock:
            for row in self._arrived:
                for event in row.values():
                    event.clear()
            for slot, value in zip(self._input_slots, inputs, strict=True):
                for device in self._readers[slot]:
                    moved = value.to(self._torch[device]) if isinstance(value, torch.Tensor) else value
                    self._values[device][slot] = moved
            self._errors.clear()
            self._round.wait()
            self._finished.wait()
            if self._errors:
                raise ExecutionError(self._errors[0])
            return [self._output(o) for o in self._outputs]

    def close(self) -> None:
        """End the workers."""
        if not self._is_closed:
            self._is_closed = True
            self._round.wait()
            for thread in self._threads:
                thread.join()

    def _build(self, program: torch.export.ExportedProgram, nodes: list[Any]) -> None:
        self._slots = {n.name: i for i, n in enumerate(program.graph.nodes)}
        readers: dict[str, set[int]] = {}
        for node in nodes:
            for source in node.all_input_nodes:
                readers.setdefault(source.name, set()).add(self._device_of[node.name])
        output = next(n for n in program.graph.nodes if n.op == "output")
        self._outputs = _templated(output.args[0], self._slots)
        kept = {_slot.number for _slot in _slots_in(self._outputs)}
        self._readers = {self._slots[n]: sorted(d) for n, d in readers.items()}
        self._values: list[list[Any]] = [[None] * len(self._slots) for _ in self._names]
        self._home = {self._slots[n.name]: self._device_of[n.name] for n in nodes}
        self._place_weights(program)
        user_inputs = list(program.graph_signature.user_inputs)
        self._input_slots = [self._slots[name] for name in user_inputs if isinstance(name, str)]
        for slot in self._input_slots:
            if not self._readers.get(slot):
                self._readers[slot] = [0]
            self._home[slot] = self._readers[slot][0]
        self._input_crossings = sum(len(self._readers[s]) - 1 for s in self._input_slots)
        last_read = _last_reads(nodes, self._device_of, self._slots)
        self._arrived: list[dict[int, threading.Event]] = [{} for _ in self._names]
        self._copied: list[dict[int, Any]] = [{} for _ in self._names]
        self._steps: list[list[_Step]] = [[] for _ in self._names]
        made = {n.name for n in nodes}
        for node in nodes:
            device = self._device_of[node.name]
            foreign = [i for i in node.all_input_nodes if i.name in made and self._device_of[i.name] != device]
            for source in foreign:
                self._arrived[device].setdefault(self._slots[source.name], threading.Event())
            kwargs = _on(dict(node.kwargs), self._torch[device])
            self._steps[device].append(
                _Step(
                    name=node.name,
                    function=_not_in_place(node),
                    args=_templated(node.args, self._slots),
                    kwargs=_templated(kwargs, self._slots),
                    slot=self._slots[node.name],
                    waits=tuple(self._slots[s.name] for s in foreign),
                    sends=tuple(d for d in sorted(readers.get(node.name, ())) if d != device),
                    frees=tuple(
                        s
                        for s in (self._slots[i.name] for i in node.all_input_nodes if i.name in made)
                        if last_read[device, s] == node.name and s not in kept
                    ),
                )
            )

    def _place_weights(self, program: torch.export.ExportedProgram) -> None:
        for placeholder, value in _weights(program).items():
            slot = self._slots[placeholder]
            for device in self._readers.get(slot, []):
                self._values[device][slot] = value.detach().to(self._torch[device])

    def _output(self, template: Any) -> Any:
        if isinstance(template, _Slot):
            return self._values[self._home.get(template.number, 0)][template.number]
        return template

    def _life(self, device: int) -> None:
        import torch

        here = self._torch[device]
        stream = torch.cuda.Stream(here) if here.type == "cuda" else None  # type: ignore[no-untyped-call]
        with torch.inference_mode():
            while True:
                self._round.wait()
                if self._is_closed:
                    return
                with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
                    for step in self._steps[device]:
                        self._run_step(step, device)
                if stream is not None:
                    stream.synchronize()
                self._finished.wait()

    def _run_step(self, step: _Step, device: int) -> None:
        values = self._values[device]
        try:
            for slot in step.waits:
                self._arrived[device][slot].wait()
                self._take(slot, device)
            if not self._errors:
                result = step.function(*_filled(step.args, values), **_filled(step.kwargs, values))
                values[step.slot] = result
                for other in step.sends:
                    self._send(result, step.slot, device, other)
        except Exception as error:  # raised again by the caller's thread, with the op's name
            self._errors.append(
                f"operator '{shown(step.name)}' on '{self._names[device]}' failed: {shown(str(error), 300)}"
            )
        finally:
            for other in step.sends:
                self._arrived[other][step.slot].set()
            for slot in step.frees:
                values[slot] = None

    def _send(self, value: Any, slot: int, source: int, target: int) -> None:
        """Start the copy; the reader waits for its event before using it."""
        import torch

        here, there = self._torch[source], self._torch[target]
        if here == there or not isinstance(value, torch.Tensor):
            self._values[target][slot] = value
            return
        cuda = here if here.type == "cuda" else there
        key = (source, target)
        if key not in self._copy_streams:
            self._copy_streams[key] = torch.cuda.Stream(cuda)  # type: ignore[no-untyped-call]
        stream = self._copy_streams[key]
        if here.type == "cuda":
            stream.wait_stream(torch.cuda.current_stream(here))
            value.record_stream(stream)
        with torch.cuda.stream(stream):
            if there.type == "cpu":
                moved = torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(value, non_blocking=True)
            else:
                staged = value.pin_memory() if here.type == "cpu" else value
                moved = staged.to(there, non_blocking=True)
            self._copied[target][slot] = stream.record_event()
        self._values[target][slot] = moved

    def _take(self, slot: int, device: int) -> None:
        """Let what follows on this device come after the copy."""
        import torch

        event = self._copied[device].pop(slot, None)
        if event is None:
            return
        here = self._torch[device]
        if here.type == "cuda":
            torch.cuda.current_stream(here).wait_event(event)
            self._values[device][slot].record_stream(torch.cuda.current_stream(here))
        else:
            event.synchronize()


def _check_signature(program: torch.export.ExportedProgram) -> None:
    changed = program.graph_signature.buffers_to_mutate or program.graph_signature.user_inputs_to_mutate
    if changed:
        name = next(iter(changed.values()))
        raise InputError(f"the program changes '{shown(str(name))}' while running; export it in evaluation mode")


def _not_in_place(node: Any) -> Any:
    """The op's function; one that changes an input that others read as well works on a copy of it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable or len(node.args[0].users) == 1:
        return node.target
    return lambda first, *args, **kwargs: node.target(first.clone(), *args, **kwargs)


def _devices(nodes: list[Any], device_of_name: Mapping[str, str], names: list[str]) -> dict[str, int]:
    number = {name: i for i, name in enumerate(names)}
    placed: dict[str, int] = {}
    for node in nodes:
        if node.name in device_of_name:
            device = device_of_name[node.name]
            if device not in number:
                raise InputError(f"operator '{shown(node.name)}' is placed on '{shown(device)}', which is not given")
            placed[node.name] = number[device]
        else:
            placed[node.name] = next((placed[i.name] for i in node.all_input_nodes if i.name in placed), 0)
    return placed


def _ordered(nodes: list[Any], start_order: Mapping[str, float] | None) -> list[Any]:
    """Nodes by planned start where that respects dependencies, else as they are."""
    if start_order is None:
        return nodes
    position = {n.name: i for i, n in enumerate(nodes)}
    start: dict[str, float] = {}
    for node in nodes:
        earliest = max((start[i.name] for i in node.all_input_nodes if i.name in start), default=0.0)
        start[node.name] = max(earliest, start_order.get(node.name, earliest))
    return sorted(nodes, key=lambda n: (start[n.name], position[n.name]))


def _last_reads(nodes: list[Any], device_of: Mapping[str, int], slots: Mapping[str, int]) -> dict[tuple[int, int], str]:
    return {(device_of[n.name], slots[i.name]): n.name for n in nodes for i in n.all_input_nodes}


def _templated(value: Any, slots: Mapping[str, int]) -> Any:
    import torch.fx

    return torch.fx.node.map_arg(value, lambda n: _Slot(slots[n.name]))


def _slots_in(template: Any) -> list[_Slot]:
    if isinstance(template, _Slot):
        return [template]
    if isinstance(template, (list, tuple)):
        return [s for part in template for s in _slots_in(part)]
    return []


def _filled(template: Any, values: Sequence[Any]) -> Any:
    if type(template) is _Slot:
        return values[template.number]
    if isinstance(template, (tuple, list)):
        return [_filled(part, values) for part in template]
    if isinstance(template, dict):
        return {k: _filled(v, values) for k, v in template.items()}
    return template


def staged_torch(
    program: torch.export.ExportedProgram,
    device_of_name: Mapping[str, str],
    stage_of_name: Mapping[str, int],
    torch_devices: Mapping[str, str],
) -> StagedModel:
    """The program as one part per stage; an op that is not named follows its first input."""
    import torch

    _check_signature(program)
    nodes = [n for n in program.graph.nodes if n.op == "call_function"]
    device_of = _devices(nodes, device_of_name, list(torch_devices))
    stage_of: dict[str, int] = {}
    for node in nodes:
        follows = next((stage_of[i.name] for i in node.all_input_nodes if i.name in stage_of), 0)
        stage_of[node.name] = stage_of_name.get(node.name, follows)
    number = {name: i for i, name in enumerate(program.graph_signature.user_inputs) if isinstance(name, str)}
    weights = _weights(program)
    n_stages = max(stage_of.values(), default=-1) + 1
    mine = [[n for n in nodes if stage_of[n.name] == s] for s in range(n_stages)]
    output = next(n for n in program.graph.nodes if n.op == "output")
    results = [n.name for n in output.all_input_nodes]
    source_of = {name: Source(-1, i) for name, i in number.items()}
    made: list[list[str]] = []
    for s, members in enumerate(mine):
        leaving = [n.name for n in members if n.name in results or any(stage_of.get(u.name, s) != s for u in n.users)]
        source_of |= {name: Source(s, i) for i, name in enumerate(leaving)}
        made.append(leaving)

    def compiled(s: int, entering: list[str]) -> Any:
        device = torch.device(list(torch_devices.values())[device_of[mine[s][0].name]])
        slots = {n.name: i for i, n in enumerate(program.graph.nodes)}
        values: list[Any] = [None] * len(slots)
        for name in {i.name for n in mine[s] for i in n.all_input_nodes} & set(weights):
            values[slots[name]] = weights[name].detach().to(device)
        steps = [
            (_not_in_place(n), _templated(n.args, slots), _templated(_on(dict(n.kwargs), device), slots), slots[n.name])
            for n in mine[s]
        ]
        temporary = [slots[n.name] for n in mine[s]]

        def run(inputs: list[Any]) -> list[Any]:
            with torch.inference_mode():
                for name, value in zip(entering, inputs, strict=True):
                    values[slots[name]] = value.to(device) if isinstance(value, torch.Tensor) else value
                for function, args, kwargs, slot in steps:
                    values[slot] = function(*_filled(args, values), **_filled(kwargs, values))
                outputs = [values[slots[name]] for name in made[s]]
                for slot in temporary:
                    values[slot] = None
            return outputs

        return run

    parts = []
    for s, members in enumerate(mine):
        inside = {n.name for n in members}
        entering = list(
            dict.fromkeys(
                i.name for n in members for i in n.all_input_nodes if i.name in source_of and i.name not in inside
            )
        )
        device = list(torch_devices)[device_of[members[0].name]]
        parts.append(Part(device, functools.partial(compiled, s, entering), tuple(source_of[n] for n in entering)))
    return StagedModel(tuple(parts), tuple(source_of[n] for n in results))


def _on(kwargs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Keyword arguments with every device replaced by the op's own."""
    import torch

    return {k: device if isinstance(v, torch.device) else v for k, v in kwargs.items()}


def _weights(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """Parameters, buffers and constants by the name of their placeholder."""
    signature = program.graph_signature
    keys = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {p: program.state_dict[k] if k in program.state_dict else program.constants[k] for p, k in keys.items()}
