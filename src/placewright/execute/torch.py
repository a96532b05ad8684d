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
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from placewright.execute.dataflow import ExecutionError
from placewright.execute.torch_code import Hook, Segment, SpillCalls, Values, compile_segment
from placewright.execute.torch_copies import Way
from placewright.execute.torch_graphs import capture_segments
from placewright.execute.torch_program import (
    check_signature,
    devices_of_ops,
    held_modules,
    laid_out_like,
    ops_of,
    ordered,
    output_of,
)  # fmt: skip
from placewright.execute.torch_room import DeviceOps, Room, part_of
from placewright.execute.torch_spills import spill_calls
from placewright.execute.torch_weights import Stream, WeightStore, weight_spans
from placewright.execute.torch_workers import inner_threads, own_threads, run_together
from placewright.frontends.base import one_line
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
        rooms: Mapping[str, Room] | None = None,
        use_graphs: bool = False,
        copies_outputs: bool = True,
        mark: Callable[[str], None] | None = None,
        threads: Mapping[str, int] | None = None,
    ) -> None:
        """``torch_devices`` gives each device's torch name (``cpu``, ``cuda:0``); ``start_order`` ops' planned starts.

        An op that is not named (a constant, a view of one tensor taken apart) follows its first input. Runs of one
        program may share a ``store`` of weights. A device with one of ``rooms`` keeps weights, or tensors for a part of
        the sample, in host memory, as planned for the same placement and order. ``use_graphs`` records the segments of
        CUDA devices as CUDA graphs; where that is not possible, ``graph_failure`` says why. Graphs, and copies of
        results that leave, write to the same memory each time: without ``copies_outputs`` that memory itself is
        returned, valid until the next call. ``mark`` is called with the name of every op after its call. ``threads``
        says how many a device on the CPU may use, 0 being torch's choice. Raises ValueError if a room is too small.
        """
        import torch

        self._names = list(torch_devices)
        self._torch = [torch.device(d) for d in torch_devices.values()]
        self._threads = [own_threads(n, d, threads) for n, d in zip(self._names, self._torch, strict=True)]
        self._lock = threading.Lock()
        self._errors: list[str] = []
        self._wants_graphs = use_graphs
        self._use_graphs = use_graphs and any(d.type == "cuda" for d in self._torch)
        self._copies_outputs = copies_outputs
        self.graph_failure = ""
        self._replays: dict[int, list[Callable[[Values], None]]] = {}  # by device, once recorded
        self._arriving: dict[int, dict[int, Any]] = {}  # by device: where its graphs read what comes from elsewhere
        check_signature(program)
        self._program = program
        store = store or WeightStore(program)
        nodes = ordered(ops_of(program), start_order)
        self._device_of = devices_of_ops(nodes, device_of_name, self._names)
        self._slots = {n.name: i for i, n in enumerate(program.graph.nodes)}
        self._meta = {self._slots[n.name]: n.meta.get("val") for n in program.graph.nodes}
        self._values: list[Values] = [[None] * len(self._slots) for _ in self._names]
        self._compute = [_compute_stream(d) for d in self._torch]
        self._read_program(nodes)
        self._rooms = dict(rooms or {})
        self._left: set[int] = set()  # results that end in host memory, which the next sample overwrites
        self._segments = self._build(nodes, store, mark)
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

    @property
    def memory_note(self) -> str:
        """What is in host memory for lack of room, if anything."""
        return ", ".join(room.note for room in self._rooms.values() if room.note)

    @property
    def note(self) -> str:
        """What is in host memory, and what became of a wish for CUDA graphs, once a sample has run."""
        notes = [self.memory_note] if self.memory_note else []
        if self._wants_graphs:
            failure = f"without CUDA graphs: {self.graph_failure or 'nothing to record'}"
            notes.append("as CUDA graphs" if self._replays else failure)
        return ", ".join(notes)

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
        # Results may be large: while graphs are recorded the device holds nothing of the first run. Those that are in
        # host memory lie where the graphs will write.
        expected = [o.to("cpu", copy=True) if isinstance(o, torch.Tensor) else o for o in expected]
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
        output = output_of(program)
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
        mark: Callable[[str], None] | None,
    ) -> list[list[Segment]]:
        weights = store.by_placeholder
        inner = held_modules(self._program)
        position = {n.name: i for i, n in enumerate(nodes)}
        segments: list[list[Segment]] = []
        for device, here in enumerate(self._torch):
            part = part_of(nodes, self._device_of, device, weights, output_of(self._program).all_input_nodes)
            pieces, mine = part.pieces, part.ops
            names = [n.name for n in mine]
            room = self._rooms.get(self._names[device], Room())
            spills, in_place = self._tensors_within(part, here, room.tensor_bytes)
            spans = weight_spans(mine, weights) if room.streamed else []
            flowing = [s for s in spans if names[s.first] in room.streamed]
            stream = Stream(flowing, names, store, here, room.window_bytes) if flowing else None
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
                } | {m: module for m, module in inner.items() if m in read}
                freed = [self._slots[i] for i in read if last[i] in inside and self._slots[i] not in self._results]
                kept = [self._slots[n] for n in leaving]
                ended = [n for n in leaving if n not in last or last[n] in inside]
                gone = [s for n in ended if (s := self._slots[n]) not in self._results]
                stays = [s for s in spills if s.name in inside]
                run = compile_segment(piece, self._slots, loaded, kept, freed, here, hooks, stays, in_place)
                sends = [(slot, tuple(d for d in self._readers.get(slot, []) if d != device)) for slot in kept]
                waits = [
                    self._slots[i]
                    for i in sorted(read, key=self._slots.__getitem__)
                    if i in position and self._device_of[i] != device and first[i] in inside
                ]
                sends = [s for s in sends if s[1]]
                built.append(Segment(run, tuple(n.name for n in piece), tuple(waits), tuple(sends), tuple(gone)))
            segments.append(built)
        return segments

    def _tensors_within(
        self, part: DeviceOps, device: torch.device, limit_bytes: float
    ) -> tuple[list[SpillCalls], dict[str, str]]:
        """What keeps a device's tensors within a limit: those that leave, and ops that write over their inputs."""
        if limit_bytes == math.inf:
            return [], {}
        lives, names = part.lives, [n.name for n in part.ops]
        spills = lives.plan(limit_bytes)
        self._left |= {self._slots[s.name] for s in spills if s.read == len(names)}
        return spill_calls(spills, names, device), lives.in_place

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
        if template.number in self._left or any(w.owns(value) for (_, to), w in self._ways.items() if to == device):
            return value.clone() if self._copies_outputs else value
        return laid_out_like(value, self._meta[template.number])

    def _run_device(self, device: int) -> None:
        import torch

        stream = self._compute[device]
        on_stream = torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()
        with torch.inference_mode(), inner_threads(self._threads[device]), on_stream:
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
                for slot in segment.gone:
                    values[slot] = None
        except Exception as error:  # raised again by the caller's thread, with the op's name
            name = shown(segment.failed_op(error))
            self._errors.append(f"operator '{name}' on '{self._names[device]}' failed: {one_line(error, 300)}")
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


def _templated(value: Any, slots: Mapping[str, int]) -> Any:
    import torch.fx

    return torch.fx.node.map_arg(value, lambda n: _Slot(slots[n.name]))
