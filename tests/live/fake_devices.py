"""A second device without hardware: tensors carry a tag, and an operator that reads two tags is an error."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from placewright.live.trace import flat_tensors


class MixedDevicesError(AssertionError):
    pass


class FakeDevices(TorchDispatchMode):
    """A backend and a checker in one: real memory, tagged ``cpu`` or whatever a placement calls its devices.

    Tensors made from nothing have no tag until an operator joins them with others: code says where it wants them by
    the device of a tensor at hand, which here is the same for all.
    """

    def __init__(self, model: Any, *inputs: Any) -> None:
        super().__init__()
        self.tags: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self.moves: list[tuple[tuple[int, ...], str | None, str]] = []
        self.is_moving = False
        self._stored: dict[int, tuple[str | None, Any]] = {}  # weights by address; kept, so that none is reused
        for weight in [*model.parameters(), *model.buffers()]:
            self._stored[weight.data_ptr()] = ("cpu", weight.data)
        for _, tensor in flat_tensors(inputs):
            self.tags[tensor] = "cpu"

    def device(self, name: str) -> str:
        return name

    def device_of(self, tensor: Any) -> str | None:
        known = self.tags.get(tensor)
        return known if known is not None else self._stored.get(tensor.data_ptr(), (None,))[0]

    def is_on(self, tensor: Any, device: str) -> bool:
        return self.device_of(tensor) in (None, device)

    def move(self, tensors: list[Any], device: str) -> list[Any]:
        moved = []
        for tensor in tensors:
            self.moves.append((tuple(tensor.shape), self.device_of(tensor), device))
            moved.append(self._copy(tensor, device))
        return moved

    def store(self, tensor: Any, device: str) -> Any:
        copy = self._copy(tensor, device)
        self._stored[copy.data_ptr()] = (device, copy)
        return copy

    def _copy(self, tensor: Any, device: str) -> Any:
        self.is_moving = True
        try:
            copy = tensor.clone()
        finally:
            self.is_moving = False
        self.tags[copy] = device
        return copy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        tensors = [t for _, t in flat_tensors((args, kwargs))]
        tags = {self.device_of(t) for t in tensors if t.dim() > 0} - {None}
        if len(tags) > 1 and not self.is_moving:
            told = ", ".join(f"{tuple(t.shape)} on {self.device_of(t)}" for t in tensors)
            raise MixedDevicesError(f"{func} reads {told}")
        result = func(*args, **kwargs)
        if tags and not self.is_moving:
            for _, made in flat_tensors(result):
                self.tags[made] = next(iter(tags))
        return result
