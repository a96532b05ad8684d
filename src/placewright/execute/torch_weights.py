"""Weights of an exported program: moved to a device once, or kept in host memory and streamed there for each sample."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from placewright.execute.torch_code import Hook

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
        self._moved: dict[tuple[str, str], Any] = {}

    def on(self, placeholder: str, device: torch.device) -> Any:
        """The weight on a device."""
        key = (placeholder, str(device))
        if key not in self._moved:
            self._moved[key] = self.by_placeholder[placeholder].to(device)
        return self._moved[key]

    def forget(self, device_type: str) -> None:
        """Drop what was moved to devices of a type."""
        self._moved = {key: t for key, t in self._moved.items() if not key[1].startswith(device_type)}


class Chunk(NamedTuple):
    """Weights of one op that are streamed: where they lie in the window, and which chunk must be done with it."""

    op: str
    offset_bytes: int
    size_bytes: int
    after: int  # the last earlier chunk in the same place, -1 if none


def plan_chunks(sizes_bytes: Sequence[tuple[str, int]], window_bytes: int) -> list[Chunk]:
    """Lay chunks, in the order they are needed, into a window that is filled over and over.

    >>> [(c.offset_bytes, c.after) for c in plan_chunks([("a", 256), ("b", 256), ("c", 256)], 512)]
    [(0, -1), (256, -1), (0, 0)]
    """
    chunks: list[Chunk] = []
    position = 0
    for op, size in sizes_bytes:
        if size > window_bytes:
            raise ValueError(f"the weights of '{op}' take {size} bytes, more than the window of {window_bytes}")
        if position + size > window_bytes:
            position = 0
        overlapping = [
            i
            for i, c in enumerate(chunks)
            if c.offset_bytes < position + size and position < c.offset_bytes + c.size_bytes
        ]
        earlier = max(overlapping, default=-1)
        if chunks:  # copies are made in order, so none may wait for less than the one before
            earlier = max(earlier, chunks[-1].after)
        chunks.append(Chunk(op, position, size, earlier))
        position += size
    return chunks


def aligned(size_bytes: int) -> int:
    """The size rounded up so that whatever follows is aligned."""
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def streamed_time_s(
    compute_s: Sequence[float],
    chunk_of_op: Mapping[int, int],
    chunks: Sequence[Chunk],
    latency_s: float,
    bandwidth: float,
) -> float:
    """When the last of ``compute_s`` ends if ops run one after another, and chunks arrive beside them."""
    done = [0.0] * len(chunks)
    ready = [0.0] * len(chunks)
    now, copied, n_issued = 0.0, 0.0, 0
    for op, seconds in enumerate(compute_s):
        mine = chunk_of_op.get(op, -1)
        while n_issued <= mine:
            chunk = chunks[n_issued]
            begin = max(copied, done[chunk.after] if chunk.after >= 0 else 0.0)
            copied = ready[n_issued] = begin + latency_s + chunk.size_bytes / bandwidth
            n_issued += 1
        now = max(now, ready[mine] if mine >= 0 else 0.0) + seconds
        if mine >= 0:
            done[mine] = now
    return now


class Stream:
    """Streams the weights of some ops of one device through a window of its memory, ahead of the ops that read them."""

    def __init__(
        self, ops: Sequence[tuple[str, Sequence[str]]], store: WeightStore, device: torch.device, window_bytes: int
    ) -> None:
        """``ops`` are the ops in their order, each with the placeholders of its weights."""
        import torch

        weights = store.by_placeholder
        sizes = [(op, sum(aligned(weights[p].nbytes) for p in placeholders)) for op, placeholders in ops]
        self.chunks = plan_chunks(sizes, window_bytes)
        self._is_cuda = device.type == "cuda"
        self._device = device
        self._window = torch.empty(window_bytes, dtype=torch.uint8, device=device)
        self._copy_stream: Any = torch.cuda.Stream(device) if self._is_cuda else None  # type: ignore[no-untyped-call]
        event: Any = torch.cuda.Event
        self._ready: list[Any] = [event() if self._is_cuda else None for _ in ops]
        self._host: list[Any] = []
        self.views: dict[str, Any] = {}
        for (_, placeholders), chunk in zip(ops, self.chunks, strict=True):
            packed = torch.empty(chunk.size_bytes, dtype=torch.uint8, pin_memory=self._is_cuda)
            offset = 0
            for p in placeholders:
                weight = weights[p].contiguous()
                packed[offset : offset + weight.nbytes] = weight.reshape(-1).view(torch.uint8).cpu()
                begin = chunk.offset_bytes + offset
                flat = self._window[begin : begin + weight.nbytes]
                self.views[p] = flat.view(weight.dtype).view(weight.shape)
                offset += aligned(weight.nbytes)
            self._host.append(packed)

    def hooks(self, first_op: Mapping[str, str]) -> dict[str, Hook]:
        """What to do around ops. ``first_op`` names, for each streamed op, the op before which no copy may begin."""
        before: dict[str, list[int]] = {}
        after: dict[str, list[int]] = {}
        own = {chunk.op: i for i, chunk in enumerate(self.chunks)}
        for i, chunk in enumerate(self.chunks):
            earlier = self.chunks[chunk.after].op if chunk.after >= 0 else ""
            if earlier and first_op[earlier] == first_op[chunk.op]:
                after.setdefault(earlier, []).append(i)
            else:
                before.setdefault(first_op[chunk.op], []).append(i)
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
