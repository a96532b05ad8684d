"""One forward of a live module, written down: which module called which, and which tensors went where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary


class Record(NamedTuple):
    """One operator: in which module call it ran, which tensors it read and made."""

    call: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    flops: float
    from_nothing: bool  # it read no tensor at all, not even a weight


class TensorInfo(NamedTuple):
    """What is known of a tensor."""

    size_bytes: int
    shape: tuple[int, ...]


@dataclass
class ModuleCall:
    """One call of a module; ``arguments`` and ``results`` name tensors by their place in the call's values."""

    path: str
    parent: int  # index of the calling module's call, -1 for the root
    arguments: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] = ()
    index_numel: int = 0  # elements of the largest tensor of whole numbers among the arguments
    peak_bytes: int = 0  # of activations alive while it ran
    ended: int = 0  # number of operators that had run when it returned


@dataclass
class Trace:
    """What one forward did, in order."""

    calls: list[ModuleCall] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    tensors: list[TensorInfo] = field(default_factory=list)
    alias_of: dict[int, int] = field(default_factory=dict)  # a view's tensor and what it is a view of
    peak_bytes: int = 0
    changes_in_place: bool = False  # a tensor that modules were given was written to later

    def origin(self, tensor: int) -> int:
        while tensor in self.alias_of:
            tensor = self.alias_of[tensor]
        return tensor


def trace_forward(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Trace, Any]:
    """Run one forward and write it down; returns the trace and what the forward returned."""
    recorder = _Recorder(model)
    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(recorder.entering(path), with_kwargs=True))
        handles.append(module.register_forward_hook(recorder.leaving, with_kwargs=True, always_call=False))
    try:
        with stand_ins_on_meta(model), torch.no_grad(), recorder:
            result = model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return recorder.trace, result


@contextmanager
def stand_ins_on_meta(model: Any) -> Iterator[None]:
    """On ``meta``, let modules with stacked weights return something of the right shape where their kernel cannot run.

    Which experts run, and on what, only data tell.
    """
    changed = []
    for module in model.modules():
        stacked = any(p.dim() == 3 and p.device.type == "meta" for p in module.parameters(recurse=False))
        if stacked and "forward" not in vars(module):
            module.forward = _or_like_its_input(module.forward)
            changed.append(module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _or_like_its_input(forward: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return forward(*args, **kwargs)
        except (RuntimeError, NotImplementedError, ValueError):
            given = [t for _, t in flat_tensors((args, kwargs)) if t.is_floating_point()]
            if not given:
                raise
            return torch.empty_like(given[0])

    return run


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator; module hooks tell it where it is."""

    def __init__(self, model: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self._ids: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._stack: list[int] = []
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._weights = {t.untyped_storage()._cdata for t in [*model.parameters(), *model.buffers()]}
        self._given: set[int] = set()

    def entering(self, path: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            del module
            call = ModuleCall(path, self._stack[-1] if self._stack else -1)
            tensors = list(flat_tensors((args, kwargs)))
            call.arguments = {slot: self._id(t) for slot, t in tensors}
            call.shapes = tuple(tuple(t.shape) for _, t in tensors)
            call.index_numel = max((t.numel() for _, t in tensors if not t.is_floating_point()), default=0)
            self._given.update(call.arguments.values())
            self._stack.append(len(self.trace.calls))
            self.trace.calls.append(call)

        return hook

    def leaving(self, module: Any, args: Any, kwargs: Any, result: Any) -> None:
        del module, args, kwargs
        call = self.trace.calls[self._stack.pop()]
        call.results = {slot: self._id(t) for slot, t in flat_tensors(result)}
        call.ended = len(self.trace.records)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        read = [t for _, t in flat_tensors((args, kwargs))]
        input_ids = tuple(self._id(t) for t in read if t.untyped_storage()._cdata not in self._weights)
        result = func(*args, **kwargs)
        outputs = [t for _, t in flat_tensors(result)]
        returns = func._schema.returns
        aliases = [r.alias_info for r in returns]
        is_view = bool(aliases) and all(a is not None and not a.is_write for a in aliases)
        if any(a is not None and a.is_write for a in (x.alias_info for x in func._schema.arguments)):
            self.trace.changes_in_place |= any(self.trace.origin(i) in self._given for i in input_ids[:1])
        output_ids = tuple(self._new_id(t) for t in outputs)
        if is_view:
            for made in output_ids:
                if input_ids:
                    self.trace.alias_of[made] = input_ids[0]
            return result
        count = flop_registry.get(func._overloadpacket)
        flops = float(count(*args, **kwargs, out_val=result)) if count is not None else 0.0
        call = self._stack[-1] if self._stack else -1
        self.trace.records.append(Record(call, input_ids, output_ids, flops, from_nothing=not read))
        self._note_memory(outputs)
        return result

    def _id(self, tensor: Any) -> int:
        known = self._ids.get(tensor)  # type: ignore[no-untyped-call]
        return self._new_id(tensor) if known is None else int(known)

    def _new_id(self, tensor: Any) -> int:
        number = len(self.trace.tensors)
        self.trace.tensors.append(TensorInfo(tensor.numel() * tensor.element_size(), tuple(tensor.shape)))
        self._ids[tensor] = number
        return number

    def _note_memory(self, outputs: list[Any]) -> None:
        self._alive = {k: e for k, e in self._alive.items() if not e[0].expired()}  # type: ignore[no-untyped-call]
        for tensor in outputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._weights:
                kept = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._alive[storage._cdata] = (kept, storage.nbytes())
        alive = sum(size for _, size in self._alive.values())
        self.trace.peak_bytes = max(self.trace.peak_bytes, alive)
        for number in self._stack:
            self.trace.calls[number].peak_bytes = max(self.trace.calls[number].peak_bytes, alive)


def flat_tensors(value: Any, slot: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors in nested tuples, lists and dictionaries, each with its place. Other objects are not looked into."""
    if isinstance(value, torch.Tensor):
        yield slot, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from flat_tensors(item, f"{slot}.{key}")
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from flat_tensors(item, f"{slot}.{i}")
