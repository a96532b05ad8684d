"""Devices without hardware, for live models: tensors carry the name of a device, and mixing two names is an error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from placewright.live.trace import flat_tensors


class MixedDevicesError(AssertionError):
    """An operator read tensors of two devices."""


class TaggedDevices(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A backend for ``fit`` and ``dispatch``, and, as a context, the check that no operator mixes devices.

    All memory is the host's. Tensors made from nothing have no tag until an operator joins them with others: code says
    where it wants them by the device of a tensor at hand, which here is the same for all. ``moves`` lists every
    activation that was moved: its shape, from where, and where to. ``gpus`` are said to be CUDA devices; that needs
    :func:`pretended_cuda`.
    """

    def __init__(self, model: Any, *inputs: Any, gpus: tuple[str, ...] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moves: list[tuple[tuple[int, ...], str | None, str]] = []
        self._gpus = gpus
        self._tags: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._stored: dict[int, tuple[str, Any]] = {}  # weights by address; kept, so that no address is used again
        self._is_moving = False
        for weight in [*model.parameters(), *model.buffers()]:
            self._stored[_address(weight)] = ("cpu", weight.data)
        for _, tensor in flat_tensors(inputs):
            self._tags[tensor] = "cpu"

    def device(self, name: str) -> str:
        return name

    def has(self, name: str) -> bool:
        return bool(name)

    def is_gpu(self, device: str) -> bool:
        return device in self._gpus

    def wait(self, device: str) -> None:
        del device

    def device_of(self, tensor: Any) -> str | None:
        known = self._tags.get(tensor)  # type: ignore[no-untyped-call]
        return known if known is not None else self._stored.get(_address(tensor), (None,))[0]

    def is_on(self, tensor: Any, device: str) -> bool:
        return self.device_of(tensor) in (None, device)

    def move(self, tensors: list[Any], device: str) -> list[Any]:
        moved = []
        for tensor in tensors:
            self.moves.append((tuple(tensor.shape), self.device_of(tensor), device))
            copy = self._copy(tensor)
            self._tags[copy] = device
            moved.append(copy)
        return moved

    def store(self, tensor: Any, device: str) -> Any:
        copy = self._copy(tensor)
        self._stored[_address(copy)] = (device, copy)
        return copy

    def _copy(self, tensor: Any) -> Any:
        self._is_moving = True
        try:
            return tensor.clone()
        finally:
            self._is_moving = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        if self._is_moving or func is torch.ops.aten.copy_.default:  # copies may cross
            return func(*args, **kwargs)
        tensors = [t for _, t in flat_tensors((args, kwargs)) if t.dim() > 0]
        tags = {self.device_of(t) for t in tensors} - {None}
        if len(tags) > 1:
            told = ", ".join(f"{tuple(t.shape)} on {self.device_of(t)}" for t in tensors)
            raise MixedDevicesError(f"{func} reads {told}")
        result = func(*args, **kwargs)
        for _, made in flat_tensors(result):
            if tags:
                self._tags[made] = next(iter(tags))
        return result


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """Let the parts of ``torch.cuda`` that live models use do nothing, so that their GPU path runs on a CPU."""
    no_bytes = {name: (lambda *_: 0) for name in ("memory_allocated", "max_memory_allocated")}
    nothing = {name: (lambda *_: None) for name in ("synchronize", "reset_peak_memory_stats", "empty_cache")}
    no_bytes["mem_get_info"] = lambda *_: (2**33, 2**33)  # type: ignore[assignment]
    stubs = {"Event": _Event, "Stream": _Stream, "current_stream": _Stream, "stream": lambda _: ExitStack()}
    with ExitStack() as patches:
        for name, stub in {**no_bytes, **nothing, **stubs}.items():
            patches.enter_context(patch.object(torch.cuda, name, stub))
        patches.enter_context(patch.object(torch.Tensor, "pin_memory", lambda self: self.clone()))
        patches.enter_context(patch.object(torch.Tensor, "is_pinned", lambda _: False))
        yield


class _Event:
    """A moment; work is done when it is asked for, so none has to be waited for."""

    def __init__(self, enable_timing: bool = False) -> None:
        del enable_timing
        self._at_s = 0.0

    def record(self, stream: Any = None) -> None:
        del stream
        self._at_s = time.perf_counter()

    def elapsed_time(self, later: _Event) -> float:
        return 1e3 * (later._at_s - self._at_s)


class _Stream:
    """A stream that is always up to date."""

    def __init__(self, device: Any = None) -> None:
        del device

    def record_event(self) -> _Event:
        return _Event()

    def wait_event(self, event: _Event) -> None:
        if not isinstance(event, _Event):
            raise TypeError(f"a stream waits for an event, not for {event!r}")

    def synchronize(self) -> None:
        """Nothing is under way."""


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())
