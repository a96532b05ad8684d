"""Tensors between devices. A backend is all that dispatching knows of devices, so that tests can bring their own."""

from __future__ import annotations

from typing import Any, Protocol

import torch

PINNED_FROM_BYTES = 1 << 16  # smaller copies are staged by the driver, which costs less than pinned memory


class Backend(Protocol):
    """Where tensors are and how they get elsewhere; ``device`` is whatever :meth:`device` made of a name."""

    def device(self, name: str) -> Any:
        """The device that a name of the placement stands for."""

    def is_on(self, tensor: Any, device: Any) -> bool:
        """Whether operators on that device can read the tensor."""

    def device_of(self, tensor: Any) -> Any:
        """Where the tensor is."""

    def move(self, tensors: list[Any], device: Any) -> list[Any]:
        """Activations on another device; work queued there afterwards sees them."""

    def store(self, tensor: Any, device: Any) -> Any:
        """A weight on another device."""

    def wait(self, device: Any) -> None:
        """Return when the device has done all it was given."""

    def is_gpu(self, device: Any) -> bool:
        """Whether the device works beside the host, with memory and streams that torch.cuda knows."""

    def has(self, name: str) -> bool:
        """Whether the device is on this machine."""


class TorchBackend:
    """torch's own devices: large copies are pinned, copies to a GPU do not wait, large ones from it wait together."""

    def device(self, name: str) -> Any:
        return torch.device(name)

    def is_on(self, tensor: Any, device: Any) -> bool:
        return bool(tensor.device == device)

    def device_of(self, tensor: Any) -> Any:
        return tensor.device

    def move(self, tensors: list[Any], device: Any) -> list[Any]:
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return [t.to(device) for t in tensors]
        if device.type == "cuda":
            return [self._to_gpu(t, device) for t in tensors]
        moved = []
        sources = set()
        for t in tensors:
            if t.is_cuda and _bytes(t) >= PINNED_FROM_BYTES:
                host = torch.empty(t.shape, dtype=t.dtype, pin_memory=True)
                moved.append(host.copy_(t, non_blocking=True))
                sources.add(t.device)
            else:
                moved.append(t.to(device))
        for source in sources:
            torch.cuda.current_stream(source).synchronize()
        return moved

    def store(self, tensor: Any, device: Any) -> Any:
        return tensor.to(device)

    def wait(self, device: Any) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def is_gpu(self, device: Any) -> bool:
        return bool(device.type == "cuda")

    def has(self, name: str) -> bool:
        device = torch.device(name)
        return device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < torch.cuda.device_count())

    def _to_gpu(self, tensor: Any, device: Any) -> Any:
        if _bytes(tensor) >= PINNED_FROM_BYTES and tensor.device.type == "cpu" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(device, non_blocking=True)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
