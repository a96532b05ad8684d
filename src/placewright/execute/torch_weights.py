"""Weights of an exported program: moved to a device once, or kept in host memory and streamed there for each sample."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from placewright.execute.torch_code import Hook
from placewright.execute.torch_program import channels_last_weights, viewed_input
from placewright.text import shown

if TYPE_CHECKING:
    import torch

_ALIGNMENT_BYTES = 256


class WeightStore:
    """A program's weights, each moved once per torch device, however many runs of the program share the store."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        signature = program.graph_signature
        keys = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        stored = {**program.constants, **program.state_dict}
        self.by_placeholder = {p: stored[k].detach() for p, k in keys.items()}
        self._channels_last = channels_last_weights(program)
        self._moved: dict[tuple[str, str], Any] = {}

    def on(self, placeholder: str, device: torch.device) -> Any:
        """The weight on a device, in the layout that is fastest there."""
        import torch

        key = (placeholder, str(device))
        if key not in self._moved:
            is_last = device.type == "cpu" and placeholder in self._channels_last
            layout = torch.channels_last if is_last else torch.preserve_format
            self._moved[key] = self.by_placeholder[placeholder].to(device, memory_format=layout)
        return self._moved[key]

    def forget(self, device_type: str) -> None:
        """Drop what was moved to devices of a type."""
        self._moved = {key: t for key, t in self._moved.items() if not key[1].startswith(device_type)}


class Span(NamedTuple):
    """Weights that are streamed together, and the ops of their device that are first and last to read them."""

    placeholders: tuple[str, ...]
    first: int
    last: int
    size_bytes: int


class Chunk(NamedTuple):
    """Where a span lies in the window."""

    offset_bytes: int
    size_bytes: int
    first: int
    last: int
    after: int  # the op that must be done before the place is free, -1 if it is from the beginning

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.size_bytes


def weight_spans(ops: Sequence[Any], weights: Mapping[str, Any]) -> list[Span]:
    """The weights that a device's ``ops`` read, in the order of their first readers.

    A view of a weight is read as the weight itself. One that leaves the device is left out: nobody knows until when.
    """
    position = {n.name: i for i, n in enumerate(ops)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    weight_of = {name: name for name in weights}  # and of every view
    for i, node in enumerate(ops):
        for source in node.all_input_nodes:
            if source.name in weight_of:
                weight = weight_of[source.name]
                first.setdefault(weight, i)
                last[weight] = max(i, last.get(weight, i))
        viewed = viewed_input(node)
        if viewed is not None and viewed.name in weight_of:
            weight = weight_of[node.name] = weight_of[viewed.name]
            if any(u.name not in position for u in node.users):
                last[weight] = len(ops)
    together: dict[tuple[int, int], list[str]] = {}
    for name, begin in first.items():
        if last[name] < len(ops):
            together.setdefault((begin, last[name]), []).append(name)
    return [
        Span(tuple(names), begin, end, sum(aligned(weights[n].nbytes) for n in names))
        for (begin, end), names in sorted(together.items())
    ]


def plan_chunks(spans: Sequence[Span], window_bytes: int) -> list[Chunk]:
    """Lay spans, in the order of their first readers, into a window that is filled over and over.

    >>> own = [Span((name,), i, i, 256) for i, name in enumerate("abc")]
    >>> [(c.offset_bytes, c.after) for c in plan_chunks(own, 512)]
    [(0, -1), (256, -1), (0, 0)]

    Raises ValueError if spans that are read at the same time do not fit.
    """
    chunks: list[Chunk] = []
    on_top: list[Chunk] = []  # those that no later one covers
    position, latest = 0, -1
    for span in spans:
        living = [c for c in on_top if c.last >= span.first]
        free = []
        for begin in (position, 0, *sorted(c.end_bytes for c in living)):
            end = begin + span.size_bytes
            if end > window_bytes or any(c.offset_bytes < end and begin < c.end_bytes for c in living):
                continue
            below = [c.last for c in on_top if c.offset_bytes < end and begin < c.end_bytes]
            free.append((max(below, default=-1), begin))
        if not free:
            raise ValueError(
                f"the weights {shown(', '.join(span.placeholders), 100)} take {span.size_bytes} bytes, more than is "
                f"free in the window of {window_bytes} bytes when they are needed"
            )
        earlier, position = min(free, key=lambda place: place[0])
        latest = max(latest, earlier)  # copies are made in order, so none may wait for less than the one before
        chunk = Chunk(position, span.size_bytes, span.first, span.last, latest)
        position = chunk.end_bytes
        chunks.append(chunk)
        on_top = [c for c in on_top if c.offset_bytes < chunk.offset_bytes or c.end_bytes > position] + [chunk]
    return chunks


def aligned(size_bytes: int) -> int:
    """The size rounded up so that whatever follows is aligned."""
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


class Stream:
    """Streams weights of one device through a window of its memory, ahead of the ops that read them."""

    def __init__(
        self, spans: Sequence[Span], op_names: Sequence[str], store: WeightStore, device: torch.device, window: int
    ) -> None:
        """``spans`` count in ``op_names``, the device's ops in their order; ``window`` is in bytes."""
        import torch

        weights = store.by_placeholder
        self.chunks = plan_chunks(spans, window)
        self._op_names = op_names
        self._is_cuda = device.type == "cuda"
        self._device = device
        self._window = torch.empty(window, dtype=torch.uint8, device=device)
        self._copy_stream: Any = torch.cuda.Stream(device) if self._is_cuda else None  # type: ignore[no-untyped-call]
        event: Any = torch.cuda.Event
        self._ready: list[Any] = [event() if self._is_cuda else None for _ in spans]
        self._host: list[Any] = []
        self.views: dict[str, Any] = {}
        for span, chunk in zip(spans, self.chunks, strict=True):
            packed = torch.empty(chunk.size_bytes, dtype=torch.uint8, pin_memory=self._is_cuda)
            offset = 0
            for p in span.placeholders:
                weight = weights[p].contiguous()
                packed[offset : offset + weight.nbytes] = weight.reshape(-1).view(torch.uint8).cpu()
                begin = chunk.offset_bytes + offset
                flat = self._window[begin : begin + weight.nbytes]
                self.views[p] = flat.view(weight.dtype).view(weight.shape)
                offset += aligned(weight.nbytes)
            self._host.append(packed)

    def hooks(self, first_op: Mapping[str, str]) -> dict[str, Hook]:
        """What to do around ops. ``first_op`` names, for each op, the op before which no copy for it may begin."""
        before: dict[str, list[int]] = {}
        after: dict[str, list[int]] = {}
        own: dict[str, int] = {}
        for i, chunk in enumerate(self.chunks):
            reader = self._op_names[chunk.first]
            own[reader] = i  # the last one, if several: copies are made in order
            earlier = self._op_names[chunk.after] if chunk.after >= 0 else ""
            if earlier and first_op[earlier] == first_op[reader]:
                after.setdefault(earlier, []).append(i)
            else:
                before.setdefault(first_op[reader], []).append(i)
        return {
            op: Hook(
                functools.partial(self._before, own.get(op), before.get(op, [])),
                functools.partial(self._begin, after[op]) if op in after else None,
            )
            for op in {*before, *after, *own}
        }

    def _before(self, chunk: int | None, begun: Collection[int]) -> None:
        import torch

        self._begin(begun)
        if self._is_cuda and chunk is not None:
            torch.cuda.current_stream(self._device).wait_event(self._ready[chunk])

    def _begin(self, chunks: Collection[int]) -> None:
        """Start copies; they come after everything queued so far, so the place in the window is free."""
        import torch

        if not chunks:
            return
        if not self._is_cuda:
            for i in chunks:
                self._copy(i)
            return
        self._copy_stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._copy_stream):
            for i in chunks:
                self._copy(i)
                self._ready[i].record(self._copy_stream)

    def _copy(self, i: int) -> None:
        chunk = self.chunks[i]
        place = self._window[chunk.offset_bytes : chunk.offset_bytes + chunk.size_bytes]
        place.copy_(self._host[i], non_blocking=True)
