"""Weights that wait in pinned host memory and visit the GPU for the time of one forward of their unit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from placewright.live.transfer import Backend

ALIGNMENT = 256


class Slot:
    """Room on the GPU for the weights of one unit at a time."""

    def __init__(self, size_bytes: int, device: Any, backend: Backend) -> None:
        self.buffer = backend.store(torch.empty(size_bytes, dtype=torch.uint8), device)
        self.released: Any = None  # the event after which the room may be written again


class StreamedWeights:
    """A context: inside it the unit's weights lie on the GPU. Entering also starts the copies of the unit that follows.

    Units take turns in two slots: one runs while the next arrives.
    """

    def __init__(self, tensors: list[Any], device: Any, slot: Slot, stream: Any) -> None:
        self._tensors, self._device, self._slot, self._stream = tensors, device, slot, stream
        self._host = [t.data if t.data.is_pinned() else t.data.cpu().pin_memory() for t in tensors]
        self._room, offset = [], 0
        for host in self._host:
            size = host.numel() * host.element_size()
            self._room.append(slot.buffer[offset : offset + size].view(host.dtype).view(host.shape))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        self._arrived: Any = None
        self._is_fetched = False
        self.following: StreamedWeights | None = None  # fetched while this one runs
        for tensor, host in zip(tensors, self._host, strict=True):
            tensor.data = host

    def fetch(self) -> None:
        """Start the copies, unless they are under way."""
        if self._is_fetched:
            return
        if self._slot.released is not None:
            self._stream.wait_event(self._slot.released)
        with torch.cuda.stream(self._stream):
            for room, host in zip(self._room, self._host, strict=True):
                room.copy_(host, non_blocking=True)
            self._arrived = self._stream.record_event()
        self._is_fetched = True

    def __enter__(self) -> None:
        self.fetch()
        torch.cuda.current_stream(self._device).wait_event(self._arrived)
        for tensor, room in zip(self._tensors, self._room, strict=True):
            tensor.data = room
        if self.following is not None:
            self.following.fetch()

    def __exit__(self, *_: object) -> None:
        self._slot.released = torch.cuda.current_stream(self._device).record_event()
        self._is_fetched = False
        for tensor, host in zip(self._tensors, self._host, strict=True):
            tensor.data = host

    def close(self) -> None:
        """Leave the weights in host memory."""
        for tensor, host in zip(self._tensors, self._host, strict=True):
            tensor.data = host


def stream_units(weights: list[list[Any]], device: Any, backend: Backend) -> list[StreamedWeights]:
    """Make the weights of some units, in running order, visitors of a device."""
    sizes = [streamed_bytes([t.numel() * t.element_size() for t in tensors]) for tensors in weights]
    slots = [Slot(max(sizes), device, backend) for _ in range(min(2, len(weights)))]
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    units = [StreamedWeights(t, device, slots[i % len(slots)], stream) for i, t in enumerate(weights)]
    for unit, following in pairwise(units):
        unit.following = following
    return units


def streamed_bytes(sizes: list[int]) -> int:
    """Room that tensors of these sizes take in a slot."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
