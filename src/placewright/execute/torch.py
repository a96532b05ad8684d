"""Placements executed by PyTorch: an exported program, every op on the device that the placement gives it.

Ops of a device that run without a break are one compiled function. A tensor that another device reads is sent there
once, as soon as it is there. One device's ops are called by the caller's own thread (a CPU's, if there is one: its
inner threads are warm there), those of every other device by a thread of their own. On CUDA, kernels are queued on a
stream of the device and copies on a stream per pair, so that compute and copies overlap; a CPU device waits for the
copy's event only. Several CPU devices (cores) share memory without copies.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from placewright.errors import InputError
from placewright.execute.dataflow import ExecutionError
from placewright.execute.stages import Part, Source, StagedModel
from placewright.execute.torch_code import Hook, Segment, Values, compile_segment, direct_function
from placewright.execute.torch_copies import Way
from placewright.execute.torch_graphs import capture_segments
from placewright.execute.torch_weights import Stream, WeightStore
from placewright.execute.torch_workers import run_together
from placewright.text import shown

if TYPE_CHECKING:
    import torch


class TorchRun:
    """A program ready to run; call it with the user's inputs and get its outputs. Runs one sample at a time."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        device_of_name: Mapping[str, str],
        torch_devices: Mapping[str, str],
        start_order: Mapping[str, float] | None = None,
        *,
        store: WeightStore | None = None,
        streamed: Collection[str] = (),
        window_bytes: int = 0,
        use_graphs: bool = False,
        copies_outputs: bool = True,
        mark: Callable[[str], None] | None = None,
        threads: Mapping[str, int] | None = None,
    ) -> None:
        """``torch_devices`` gives each device's torch name (``cpu``, ``cuda:0``); ``start_order`` ops' planned starts.

        An op that is not named (a constant, a view of one tensor taken apart) follows its first input. Runs of one
        program may share a ``store`` of weights. Weights of ops in ``streamed`` stay in host memory and reach the
        device for each sample, through ``window_bytes`` of its memory. ``use_graphs`` records the segments of CUDA
        devices as CUDA graphs; where that is not possible, ``graph_failure`` says why. Graphs write their results to
        the same memory each time: without ``copies_outputs`` that memory itself is returned, valid until the next call.
        ``mark`` is called with the name of every op after its call. ``threads`` says how many a device on the CPU may
        use, 0 being torch's choice.
        """
        import torch

        self._names = list(torch_devices)
        self._torch = [torch.device(d) for d in torch_devices.values()]
        self._threads = [_own_threads(n, d, threads) for n, d in zip(self._names, self._torch, strict=True)]
        self._lock = threading.Lock()
        self._errors: list[str] = []
        self._use_graphs = use_graphs and any(d.type == "cuda" for d in self._torch)
        self._copies_outputs = copies_outputs
        self.graph_failure = ""
        self._replays: dict[int, list[Callable[[Values], None]]] = {}  # by device, once recorded
        self._arriving: dict[int, dict[int, Any]] = {}  # by device: where its graphs read what comes from elsewhere
        _check_signature(program)
        self._program = program
        store = store or WeightStore(program)
        nodes = _ordered([n for n in program.graph.nodes if n.op == "call_function" and not _is_check(n)], start_order)
        self._device_of = _devices(nodes, device_of_name, self._names)
        self._slots = {n.name: i for i, n in enumerate(program.graph.nodes)}
        self._meta = {self._slots[n.name]: n.meta.get("val") for n in program.graph.nodes}
        self._values: list[Values] = [[None] * len(self._slots) for _ in self._names]
        self._compute = [_compute_stream(d) for d in self._torch]
        self._read_program(nodes)
        self._segments = self._build(nodes, store, streamed, window_bytes, mark)
        self._ways: dict[tuple[int, int], Way] = {}
        self._arrived: dict[tuple[int, int], threading.Lock] = {}  # (device, slot): released once per sample
        for device, segments in enumerate(self._segments):
            for slot, targets in [send for segment in segments for send in segment.sends]:
                for target in targets:
                    self._ways.setdefault((device, target), Way(self._torch[device], self._torch[target]))
                    self._arrived[target, slot] = threading.Lock()
                    self._arrived[target, slot].acquire()
        sent = sum(len(to) for segments in self._segments for s in segments for _, to in s.sends)
        # How many tensors one sample sends to another device.
        self.crossings = sent + sum(len(self._readers[s]) - 1 for s in self._input_slots)
        self.n_segments = sum(map(len, self._segments))
        used = [d for d in range(len(self._names)) if self._segments[d]]
        self._here = min(used, key=lambda d: (self._torch[d].type != "cpu", d), default=0)
        self._elsewhere = [
            (d, f"{self._names[d]} ({self._torch[d]})", functools.partial(self._run_device, d))
            for d in used
            if d != self._here
        ]

    @property
    def uses_graphs(self) -> bool:
        """Whether CUDA graphs are in use, once a sample has run."""
        return bool(self._replays)

    def __call__(self, *inputs: Any) -> list[Any]:
        with self._lock:
            if self._use_graphs:
                self._use_graphs = False
                return self._record(inputs)
            return self._run(inputs)

    def close(self) -> None:
        """Let go of everything that is held on devices; the object cannot be used afterwards."""
        for held in (self._replays, self._arriving, self._ways):
            held.clear()
        for kept in (self._values, self._segments, self._elsewhere):
            kept.clear()

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        self._inputs = inputs
        self._errors.clear()
        others = [(name, job) for _, name, job in self._elsewhere]
        run_together(functools.partial(self._run_device, self._here), others)
        if self._errors:
            raise ExecutionError(self._errors[0])
        outputs = [self._output(o) for o in self._outputs]
        for device in self._replays:
            self._compute[device].synchronize()
        for slot in self._results:
            home = self._home.get(slot, 0)
            if home not in self._replays:
                self._values[home][slot] = None  # the caller's now
        return outputs

    def _record(self, inputs: Sequence[Any]) -> list[Any]:
        """Run one sample as usual, record graphs, run it again, and keep the graphs if the results are the same."""
        import torch

        expected = self._run(inputs)
        homes = [o.device if isinstance(o, torch.Tensor) else None for o in expected]
        # Results may be large: while graphs are recorded the device holds nothing of the first run.
        expected = [o.cpu() if isinstance(o, torch.Tensor) else o for o in expected]
        self._values = [[None] * len(self._slots) for _ in self._names]
        torch.cuda.empty_cache()
        try:
            for d, device in enumerate(self._torch):
                if device.type == "cuda" and self._segments[d]:
                    self._on_thread(d, functools.partial(self._record_device, d))
            outputs = self._run(inputs)
            for ours, theirs in zip(outputs, expected, strict=True):
                if isinstance(ours, torch.Tensor):
                    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-3, equal_nan=True)
            return outputs
        except (RuntimeError, AssertionError, AttributeError, TypeError) as error:
            self._replays.clear()
            self._arriving.clear()
            self._values = [[None] * len(self._slots) for _ in self._names]
            self.graph_failure = shown(str(error), 300)
            return [o if home is None else o.to(home) for o, home in zip(expected, homes, strict=True)]

    def _record_device(self, device: int) -> None:
        import torch

        here, values = self._torch[device], self._values[device]
        slots = [s for s in self._input_slots if device in self._readers[s]]
        slots += [s for segment in self._segments[device] for s in segment.waits]
        for slot in slots:
            like = self._meta[slot]
            values[slot] = torch.zeros(tuple(map(int, like.shape)), dtype=like.dtype, device=here)
        self._arriving[device] = {slot: values[slot] for slot in slots}
        self._replays[device] = capture_segments(self._segments[device], values, self._compute[device])

    def _on_thread(self, device: int, job: Callable[[], None]) -> None:
        """Do a job in the thread that calls the device's ops; what it raises is raised here."""
        errors: list[Exception] = []

        def safely() -> None:
            try:
                job()
            except Exception as error:  # raised again below
                errors.append(error)

        worker = next((name for d, name, _ in self._elsewhere if d == device), None)
        run_together(safely, []) if worker is None else run_together(lambda: None, [(worker, safely)])
        if errors:
            raise errors[0]

    def _read_program(self, nodes: Sequence[Any]) -> None:
        program = self._program
        readers: dict[str, set[int]] = {}
        for node in nodes:
            for source in node.all_input_nodes:
                readers.setdefault(source.name, set()).add(self._device_of[node.name])
        self._readers = {self._slots[n]: sorted(d) for n, d in readers.items()}
        output = next(n for n in program.graph.nodes if n.op == "output")
        self._outputs = _templated(output.args[0], self._slots)
        self._results = {self._slots[n.name] for n in output.all_input_nodes}
        self._home = {self._slots[n.name]: self._device_of[n.name] for n in nodes}
        self._input_slots = [self._slots[n] for n in program.graph_signature.user_inputs if isinstance(n, str)]
        for slot in self._input_slots:
            self._readers.setdefault(slot, [0])
            self._home[slot] = self._readers[slot][0]

    def _build(
        self,
        nodes: Sequence[Any],
        store: WeightStore,
        streamed: Collection[str],
        window_bytes: int,
        mark: Callable[[str], None] | None,
    ) -> list[list[Segment]]:
        weights, streamed = store.by_placeholder, set(streamed)
        position = {n.name: i for i, n in enumerate(nodes)}
        segments: list[list[Segment]] = []
        for device, here in enumerate(self._torch):
            mine = [n for n in nodes if self._device_of[n.name] == device]
            pieces = _pieces(mine, position, self._device_of, device)
            flowing = [(n.name, _own_weights(n, weights)) for n in mine if n.name in streamed]
            flowing = [(name, own) for name, own in flowing if own]
            stream = Stream(flowing, store, here, window_bytes) if flowing else None
            hooks = self._hooks(stream, pieces, mark, mine)
            last = {i.name: n.name for n in mine for i in n.all_input_nodes}
            first = {i.name: n.name for n in reversed(mine) for i in n.all_input_nodes}
            built = []
            for piece in pieces:
                inside = {n.name for n in piece}
                read = {i.name for n in piece for i in n.all_input_nodes}
                leaving = [
                    n.name
                    for n in piece
                    if self._slots[n.name] in self._results
                    or any(u.name not in inside and u.name in position for u in n.users)
                ]
                loaded = {
                    p: stream.views[p] if stream and p in stream.views else store.on(p, here)
                    for p in read & set(weights)
                }
                freed = [self._slots[i] for i in read if last[i] in inside and self._slots[i] not in self._results]
                kept = [self._slots[n] for n in leaving]
                run = compile_segment(piece, self._slots, loaded, kept, freed, here, hooks)
                sends = [(slot, tuple(d for d in self._readers.get(slot, []) if d != device)) for slot in kept]
                waits = [
                    self._slots[i]
                    for i in sorted(read, key=self._slots.__getitem__)
                    if i in position and self._device_of[i] != device and first[i] in inside
                ]
                built.append(Segment(run, tuple(n.name for n in piece), tuple(waits), tuple(s for s in sends if s[1])))
            segments.append(built)
        return segments

    def _hooks(
        self,
        stream: Stream | None,
        pieces: Sequence[Sequence[Any]],
        mark: Callable[[str], None] | None,
        mine: Sequence[Any],
    ) -> dict[str, Hook]:
        if mark is not None:
            return {n.name: Hook(after=functools.partial(mark, n.name)) for n in mine}
        if stream is None:
            return {}
        # A copy into a window cannot begin in one graph and end in another.
        first = {n.name: (piece if self._use_graphs else pieces[0])[0].name for piece in pieces for n in piece}
        return stream.hooks(first)

    def _output(self, template: Any) -> Any:
        """A result, copied out of memory that the next sample overwrites."""
        import torch

        if not isinstance(template, _Slot):
            return template
        device = self._home.get(template.number, 0)
        value = self._values[device][template.number]
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_cuda and self._compute[device] is not None:
            if device in self._replays:
                if not self._copies_outputs:
                    return value
                with torch.cuda.stream(self._compute[device]):
                    value = value.clone()
            value.record_stream(torch.cuda.current_stream(value.device))
            return value
        return value.clone() if any(w.owns(value) for (_, to), w in self._ways.items() if to == device) else value

    def _run_device(self, device: int) -> None:
        import torch

        stream = self._compute[device]
        on_stream = torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()
        with torch.inference_mode(), _inner_threads(self._threads[device]), on_stream:
            self._take_inputs(device)
            replays = self._replays.get(device)
            for number, segment in enumerate(self._segments[device]):
                self._run_segment(segment, replays[number] if replays else segment.run, device)
            if stream is not None:
                stream.synchronize()

    def _take_inputs(self, device: int) -> None:
        import torch

        values, here = self._values[device], self._torch[device]
        try:
            for slot, value in zip(self._input_slots, self._inputs, strict=True):
                if device not in self._readers[slot]:
                    continue
                if isinstance(value, torch.Tensor) and value.is_cuda:
                    value_stream = torch.cuda.default_stream(value.device)
                    torch.cuda.current_stream(here if here.type == "cuda" else value.device).wait_stream(value_stream)
                if not isinstance(value, torch.Tensor):
                    values[slot] = value
                elif device in self._arriving:
                    self._arriving[device][slot].copy_(value, non_blocking=True)
                else:
                    values[slot] = value.to(here)
        except Exception as error:  # raised again by the caller's thread
            self._errors.append(f"an input did not reach '{self._names[device]}': {shown(str(error), 300)}")

    def _run_segment(self, segment: Segment, run: Callable[[Values], None], device: int) -> None:
        values = self._values[device]
        for slot in segment.waits:
            self._arrived[device, slot].acquire()
        try:
            if not self._errors:
                for slot in segment.waits:
                    self._ways[self._home[slot], device].receive(values[slot], slot)
                run(values)
                for slot, targets in segment.sends:
                    for other in targets:
                        into = self._arriving[other][slot] if other in self._arriving else None
                        moved = self._ways[device, other].send(values[slot], slot, into)
                        self._values[other][slot] = moved
        except Exception as error:  # raised again by the caller's thread, with the op's name
            name = shown(segment.failed_op(error))
            self._errors.append(f"operator '{name}' on '{self._names[device]}' failed: {shown(str(error), 300)}")
        finally:
            for slot, targets in segment.sends:
                for other in targets:
                    self._arrived[other, slot].release()


@functools.cache
def _compute_stream(device: torch.device) -> Any:
    """The stream that all runs on a device share: libraries keep a workspace for each stream they ever saw."""
    import torch

    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


class _Slot(NamedTuple):
    number: int


def _is_check(node: Any) -> bool:
    """An op that only checks what the exporter already knew."""
    return not node.users and str(node.target).startswith("aten._assert_")


def _own_weights(node: Any, weights: Mapping[str, Any]) -> list[str]:
    """Weights that nobody else reads."""
    return [i.name for i in dict.fromkeys(node.all_input_nodes) if i.name in weights and len(i.users) == 1]


def _pieces(
    nodes: Sequence[Any], position: Mapping[str, int], device_of: Mapping[str, int], device: int
) -> list[list[Any]]:
    """A device's ops cut before those that wait for another device and after those that another one waits for."""
    pieces: list[list[Any]] = []
    has_arrived: set[str] = set()
    is_open = False
    for node in nodes:
        foreign = {i.name for i in node.all_input_nodes if i.name in position and device_of[i.name] != device}
        if not is_open or foreign - has_arrived:
            pieces.append([])
        has_arrived |= foreign
        pieces[-1].append(node)
        is_open = not any(device_of[u.name] != device for u in node.users if u.name in position)
    return pieces


def _check_signature(program: torch.export.ExportedProgram) -> None:
    changed = program.graph_signature.buffers_to_mutate or program.graph_signature.user_inputs_to_mutate
    if changed:
        name = next(iter(changed.values()))
        raise InputError(f"the program changes '{shown(str(name))}' while running; export it in evaluation mode")


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


def _templated(value: Any, slots: Mapping[str, int]) -> Any:
    import torch.fx

    return torch.fx.node.map_arg(value, lambda n: _Slot(slots[n.name]))


def _filled(template: Any, values: Sequence[Any]) -> Any:
    if type(template) is _Slot:
        return values[template.number]
    if isinstance(template, (tuple, list)):
        return [_filled(part, values) for part in template]
    if isinstance(template, dict):
        return {k: _filled(v, values) for k, v in template.items()}
    return template


def _own_threads(name: str, device: torch.device, threads: Mapping[str, int] | None) -> int:
    return threads.get(name, 0) if threads is not None and device.type == "cpu" else 0


@contextlib.contextmanager
def _inner_threads(count: int) -> Iterator[None]:
    """Ops called from this thread use so many threads (each calling thread has its own number); 0 changes nothing."""
    import torch

    if not count or torch.get_num_threads() == count:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def staged_torch(
    program: torch.export.ExportedProgram,
    device_of_name: Mapping[str, str],
    stage_of_name: Mapping[str, int],
    torch_devices: Mapping[str, str],
    threads: Mapping[str, int] | None = None,
) -> StagedModel:
    """The program as one part per stage; an op that is not named follows its first input."""
    import torch

    _check_signature(program)
    nodes = [n for n in program.graph.nodes if n.op == "call_function" and not _is_check(n)]
    device_of = _devices(nodes, device_of_name, list(torch_devices))
    stage_of: dict[str, int] = {}
    for node in nodes:
        follows = next((stage_of[i.name] for i in node.all_input_nodes if i.name in stage_of), 0)
        stage_of[node.name] = stage_of_name.get(node.name, follows)
    number = {name: i for i, name in enumerate(program.graph_signature.user_inputs) if isinstance(name, str)}
    weights = WeightStore(program).by_placeholder
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
        name, place = list(torch_devices.items())[device_of[mine[s][0].name]]
        device = torch.device(place)
        own_threads = _own_threads(name, device, threads)
        slots = {n.name: i for i, n in enumerate(program.graph.nodes)}
        values: list[Any] = [None] * len(slots)
        for name in {i.name for n in mine[s] for i in n.all_input_nodes} & set(weights):
            values[slots[name]] = weights[name].to(device)
        steps = [
            (
                direct_function(n),
                _templated(n.args, slots),
                _templated(_on(dict(n.kwargs), device), slots),
                slots[n.name],
            )
            for n in mine[s]
        ]
        temporary = [slots[n.name] for n in mine[s]]

        def run(inputs: list[Any]) -> list[Any]:
            with torch.inference_mode(), _inner_threads(own_threads):
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
