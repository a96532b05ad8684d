"""Measuring in PyTorch: zoo modules leaf by leaf, exported programs node by node, each within a run of the whole.

An op's time reaches from the end of the op before to its own end, so that the times add up to the run: caches are as
they are in real life, and what the interpreter spends between ops is not lost. On CUDA, events are the clock.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from placewright.cluster import DeviceKind
from placewright.costs.measure.runner import Setting, threads_of
from placewright.errors import InputError
from placewright.execute.torch_program import example_inputs, is_check
from placewright.execute.torch_weights import WeightStore
from placewright.execute.torch_workers import keep_freed_memory
from placewright.graph import FloatArray, OpGraph
from placewright.text import shown

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
Mark = Callable[[int], None]


def torch_device(kind: DeviceKind) -> torch.device:
    """Return the torch device of a kind; :class:`InputError` if this machine has none."""
    name = kind.runtime_device.lower() or ("cpu" if kind.is_host else "cuda")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(
            f"device kind '{shown(kind.name)}': torch has no device called '{shown(name)}'; expected cpu or cuda:0"
        ) from None
    if device.type == "cuda" and not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()):
        raise InputError(
            f"device kind '{shown(kind.name)}' cannot be measured here: torch sees no device '{shown(name)}'; "
            "name the kinds that are here with --kinds"
        )
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device kind '{shown(kind.name)}': torch device '{shown(name)}' cannot be timed")
    return device


class TorchRunner(ABC):
    """One model on one torch device; subclasses say how it runs and when an op has ended."""

    groups: tuple[tuple[str, ...], ...] = ()
    mode: Any = torch.inference_mode  # under which the model runs

    def __init__(self, graph: OpGraph, kind: DeviceKind) -> None:
        keep_freed_memory()  # as the executor does
        self.device = torch_device(kind)
        self.dtype = _DTYPES.get(kind.precision)  # None: as the model is
        self.n_ops = graph.n_ops
        self.is_cuda = self.device.type == "cuda"
        threads = threads_of(kind)
        name = torch.cuda.get_device_name(self.device) if self.is_cuda else "cpu"
        software = f"torch {torch.__version__}"
        self.setting = Setting("torch", name, threads, kind.precision or "as the model is", software)
        self.threads = threads
        self._events: dict[int, Any] = {}

    @abstractmethod
    def run(self, mark: Mark | None) -> None:
        """Run the model; call ``mark`` with the number of each op that has ended."""

    def whole_s(self) -> float:
        torch.set_num_threads(self.threads)
        with self.mode():
            self.wait()
            start = time.perf_counter()
            self.run(None)
            self.wait()
            return time.perf_counter() - start

    def op_times_s(self) -> tuple[FloatArray, float]:
        torch.set_num_threads(self.threads)
        times = np.zeros(self.n_ops)
        with torch.inference_mode():
            order, ends = self._timed_on_cuda() if self.is_cuda else self._timed_on_cpu()
        np.add.at(times, order, np.diff(ends))
        return times, 0.0

    def placed(self, value: Any) -> Any:
        """Return a tensor on this device, in this precision if it holds fractions."""
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(self.device, self.dtype if value.is_floating_point() else None)

    def _timed_on_cpu(self) -> tuple[list[int], list[float]]:
        order: list[int] = []
        ends = [0.0]

        def mark(op: int) -> None:
            order.append(op)
            ends.append(time.perf_counter())

        ends[0] = time.perf_counter()
        self.run(mark)
        return order, ends

    def _timed_on_cuda(self) -> tuple[list[int], list[float]]:
        order: list[int] = []

        def mark(op: int) -> None:
            order.append(op)
            self._event(len(order)).record(stream)

        self.wait()
        stream = torch.cuda.current_stream(self.device)
        self._event(0).record(stream)
        self.run(mark)
        self.wait()
        first = self._event(0)
        return order, [first.elapsed_time(self._event(i)) * 1e-3 if i else 0.0 for i in range(len(order) + 1)]

    def _event(self, number: int) -> Any:
        if number not in self._events:
            event: Any = torch.cuda.Event
            self._events[number] = event(enable_timing=True)
        return self._events[number]

    def wait(self) -> None:
        """Let the device finish."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)


class ModuleRunner(TorchRunner):
    """A zoo module: an op is the submodule at its path."""

    def __init__(self, module: torch.nn.Module, inputs: Sequence[Any], graph: OpGraph, kind: DeviceKind) -> None:
        super().__init__(graph, kind)
        layout = torch.contiguous_format if self.is_cuda else torch.channels_last  # as the executor keeps weights
        self.module = module.to(device=self.device, dtype=self.dtype, memory_format=layout)  # type: ignore[call-overload]
        self.inputs = [self.placed(x) for x in inputs]
        submodules = dict(module.named_modules())
        self._leaves = [(v, submodules[name]) for v, name in enumerate(graph.op_names) if name in submodules]

    def run(self, mark: Mark | None) -> None:
        hooks = []
        if mark is not None:
            hooks = [leaf.register_forward_hook(lambda *_, op=v: mark(op)) for v, leaf in self._leaves]
        try:
            self.module(*self.inputs)
        finally:
            for hook in hooks:
                hook.remove()


class ExportedRunner(TorchRunner):
    """An exported program, interpreted node by node; values are dropped after their last use."""

    def __init__(self, program: Any, graph: OpGraph, kind: DeviceKind) -> None:
        super().__init__(graph, kind)
        self._nodes = list(program.graph.nodes)
        self._modules = program.graph_module
        self._bound = self._bindings(program)
        self._op_of_node = {node: graph.index_of[node.name] for node in self._nodes if node.name in graph.index_of}
        last_user = {value: node for node in self._nodes for value in node.all_input_nodes}
        self._dead: dict[Any, list[Any]] = {}
        for value, node in last_user.items():
            self._dead.setdefault(node, []).append(value)

    def run(self, mark: Mark | None) -> None:
        from torch.fx.node import map_arg

        values: dict[Any, Any] = {}
        for node in self._nodes:
            if node.op == "placeholder":
                values[node] = self._bound[node.name]
            elif node.op == "get_attr":
                values[node] = attrgetter(node.target)(self._modules)
            elif node.op == "call_function" and not is_check(node):
                options = dict(map_arg(node.kwargs, values.__getitem__))
                if options.get("device") is not None:  # made where the program was exported
                    options["device"] = self.device
                values[node] = node.target(*map_arg(node.args, values.__getitem__), **options)
                if mark is not None and node in self._op_of_node:
                    mark(self._op_of_node[node])
            for dead in self._dead.get(node, ()):
                del values[dead]

    def _bindings(self, program: Any) -> dict[str, Any]:
        store = WeightStore(program)  # weights lie as the executor keeps them
        names = [name for name in program.graph_signature.user_inputs if isinstance(name, str)]
        given = dict(zip(names, example_inputs(program), strict=True))  # None: a number that the export has fixed
        bound: dict[str, Any] = {}
        for node in self._nodes:
            if node.op == "placeholder":
                is_weight = node.name in store.by_placeholder
                value = store.on(node.name, self.device) if is_weight else given.get(node.name)
                bound[node.name] = self.placed(value)
        return bound
