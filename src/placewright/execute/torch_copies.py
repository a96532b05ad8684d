"""Tensors between torch devices: through pinned buffers that are made once, on a CUDA stream per pair of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Way:
    """Copies from one device to another. ``send`` is called by the sender's thread, ``receive`` by the receiver's."""

    def __init__(self, source: torch.device, target: torch.device) -> None:
        import torch

        self._source, self._target = source, target
        self._is_copied = source != target
        self._stream: Any = None
        if self._is_copied and "cuda" in (source.type, target.type):
            self._stream = torch.cuda.Stream(source if source.type == "cuda" else target)  # type: ignore[no-untyped-call]
        self._buffers: dict[tuple[int, int], Any] = {}
        self._addresses: set[int] = set()
        self._events: dict[int, Any] = {}

    def send(self, value: Any, slot: int, into: Any = None) -> Any:
        """Start the copy and return what the receiver will have, which is not to be read before ``receive``.

        ``into`` is a tensor there that takes the copy.
        """
        import torch

        if not self._is_copied:
            return value
        if self._stream is None:
            return _mapped(value, lambda t, _: t.to(self._target))
        if self._source.type == "cuda":
            self._stream.wait_stream(torch.cuda.current_stream(self._source))
        else:
            value = _mapped(value, lambda t, i: self._buffer(t, slot, i).copy_(t))
        with torch.cuda.stream(self._stream):
            moved = _mapped(value, lambda t, i: self._copy(t, slot, i, into))
            if slot not in self._events:
                self._events[slot] = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._events[slot].record(self._stream)
        return moved

    def receive(self, value: Any, slot: int) -> None:
        """Let what follows on the receiving device come after the copy."""
        import torch

        if self._stream is None:
            return
        event = self._events[slot]
        if self._target.type == "cuda":
            stream = torch.cuda.current_stream(self._target)
            stream.wait_event(event)
            _mapped(value, lambda t, _: t.record_stream(stream))
        else:
            event.synchronize()

    def owns(self, tensor: Any) -> bool:
        """Whether the tensor lies in a buffer that the next sample overwrites."""
        return tensor.untyped_storage().data_ptr() in self._addresses

    def _copy(self, tensor: Any, slot: int, i: int, into: Any) -> Any:
        if into is not None:
            return into.copy_(tensor, non_blocking=True)
        if self._target.type == "cpu":
            tensor.record_stream(self._stream)
            return self._buffer(tensor, slot, i).copy_(tensor, non_blocking=True)
        if tensor.is_cuda:
            tensor.record_stream(self._stream)
        return tensor.to(self._target, non_blocking=True)

    def _buffer(self, tensor: Any, slot: int, i: int) -> Any:
        import torch

        buffer = self._buffers.get((slot, i))
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._buffers[slot, i] = buffer
            self._addresses.add(buffer.data_ptr())
        return buffer


def _mapped(value: Any, change: Any, first: int = 0) -> Any:
    """``change(tensor, number)`` of every tensor in a value, which may be a tuple of them."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value, first)
    if isinstance(value, (list, tuple)):
        return [_mapped(v, change, first * 64 + i + 1) for i, v in enumerate(value)]
    return value
