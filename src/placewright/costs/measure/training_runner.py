"""Measuring a training step of a zoo module op by op: forward, each gradient, sums of gradients, updates.

The names of backward ops are those of ``frontends/training.py``. Every leaf gets inputs that are cut off from the op
before, so that its gradients can be asked for one by one, on the activations of a real forward pass; the gradients that
flow in are ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from placewright.cluster import DeviceKind
from placewright.costs.measure.torch_runner import Mark, TorchRunner
from placewright.graph import FloatArray, OpGraph

_OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    # A rate of zero does all the work and leaves the weights as they are; fused, as one kernel for each weight.
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.0, fused=True),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.0, momentum=0.9, fused=True),
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.0, fused=True),
}


class TrainingRunner(TorchRunner):
    """A training step of a zoo module on one torch device; ``inputs_of`` lists, for each op, the ops it reads."""

    mode = torch.enable_grad

    def __init__(
        self, module: Any, inputs: Sequence[Any], graph: OpGraph, kind: DeviceKind, inputs_of: dict[str, list[str]]
    ) -> None:
        super().__init__(graph, kind)
        self.module = module.to(device=self.device, dtype=self.dtype).train()
        self.inputs = [self.placed(x) for x in inputs]
        self.index = graph.index_of
        self.inputs_of = inputs_of
        self.make_optimizer = _OPTIMIZERS[graph.metadata["training"]]
        self.optimizer = self.make_optimizer([p for p in module.parameters() if p.requires_grad])
        submodules = dict(module.named_modules())
        self.leaves = [(name, submodules[name]) for name in graph.op_names if name in submodules]
        self.sums = _sums_by_op(graph)
        self.updates = {
            name: self.make_optimizer(list(leaf.parameters(recurse=False)))
            for name, leaf in self.leaves
            if f"{name}/update" in self.index
        }
        for weight in module.parameters():
            weight.grad = torch.ones_like(weight)

    def run(self, mark: Mark | None) -> None:
        loss = _loss(self.module(*self.inputs))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def op_times_s(self) -> tuple[FloatArray, float]:
        torch.set_num_threads(self.threads)
        watch = _Stopwatch(self.is_cuda)
        with torch.enable_grad():
            records, result = self._forward(watch)
            watch.time(self.index["loss"], lambda: _loss(result))
            while records:
                self._backward(watch, *records.pop())
        self.wait()
        times = np.zeros(self.n_ops)
        for op, seconds in watch.spans():
            times[op] += seconds
        return times, 0.0

    def _forward(self, watch: _Stopwatch) -> tuple[list[tuple[str, Any, Any, Any]], Any]:
        records: list[tuple[str, Any, Any, Any]] = []
        hooks = []
        for name, leaf in self.leaves:

            def cut_off(_: Any, inputs: Any) -> Any:
                separate = tuple(_detached(x) for x in inputs)
                watch.start()
                return separate

            def keep(leaf: Any, inputs: Any, result: Any, name: str = name) -> None:
                watch.stop(self.index[name])
                records.append((name, leaf, inputs, result))

            hooks += [leaf.register_forward_pre_hook(cut_off), leaf.register_forward_hook(keep)]
        try:
            return records, self.module(*self.inputs)
        finally:
            for hook in hooks:
                hook.remove()

    def _backward(self, watch: _Stopwatch, name: str, leaf: Any, inputs: Any, result: Any) -> None:
        outputs = [o for o in (result if isinstance(result, (tuple, list)) else [result]) if o.requires_grad]
        incoming = [torch.ones_like(o) for o in outputs]
        for op in self.sums.get(name, ()):
            watch.time(op, lambda: incoming[0] + incoming[0])
        wanted = self._wanted(name, inputs)
        weights = list(leaf.parameters(recurse=False))

        def ask(suffix: str, variables: list[Any]) -> None:
            op = self.index.get(f"{name}/{suffix}")
            if op is not None and variables and any(o.grad_fn is not None for o in outputs):
                watch.time(
                    op,
                    lambda: torch.autograd.grad(outputs, variables, incoming, retain_graph=True, allow_unused=True),
                )

        ask("grad", wanted + weights)
        ask("grad_input", wanted)
        for place, variable in enumerate(wanted):
            ask(f"grad_input{place}", [variable])
        ask("grad_weight", weights)
        if name in self.updates:
            for weight in weights:
                weight.grad = torch.ones_like(weight) if weight.grad is None else weight.grad
            watch.time(self.index[f"{name}/update"], self.updates[name].step)

    def _wanted(self, name: str, inputs: Any) -> list[Any]:
        """Return the inputs that need gradients, in the order in which backward ops are numbered: that of the ops."""
        suffixes = ("grad", "grad_input", "grad_input0", "grad_weight", "update")
        found: dict[str, Any] = {}
        for producer, value in zip(self.inputs_of[name], inputs, strict=True):
            has_gradient = any(f"{producer.partition(':')[0]}/{s}" in self.index for s in suffixes)
            if has_gradient and isinstance(value, torch.Tensor) and value.requires_grad:
                found.setdefault(producer, value)
        return [found[p] for p in sorted(found, key=lambda p: (self.index[p.partition(":")[0]], p))]


class _Stopwatch:
    """Spans of time: by the clock, or on CUDA by events on the stream, which are read when all is done."""

    def __init__(self, is_cuda: bool) -> None:
        self.is_cuda = is_cuda
        self._started: Any = None
        self._spans: list[tuple[int, Any, Any]] = []

    def start(self) -> None:
        self._started = self._now()

    def stop(self, op: int) -> None:
        self._spans.append((op, self._started, self._now()))

    def time(self, op: int, function: Callable[[], Any]) -> None:
        self.start()
        function()
        self.stop(op)

    def spans(self) -> list[tuple[int, float]]:
        if self.is_cuda:
            return [(op, a.elapsed_time(b) * 1e-3) for op, a, b in self._spans]
        return [(op, b - a) for op, a, b in self._spans]

    def _now(self) -> Any:
        if not self.is_cuda:
            return time.perf_counter()
        make: Any = torch.cuda.Event
        event = make(enable_timing=True)
        event.record()
        return event


def tape_inputs(tape: Any) -> dict[str, list[str]]:
    """Return for each op of a tape the ops it reads, with the output's number where an op has several."""
    several = {position for position, op in enumerate(tape.ops) if len(op.outputs) > 1}
    return {
        op.path: [tape.ops[v.op].path + (f":{v.port:06}" if v.op in several else "") for v in op.inputs]
        for op in tape.ops
    }


def _detached(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.is_floating_point())


def _loss(result: Any) -> Any:
    results = result if isinstance(result, (tuple, list)) else [result]
    means = [r.mean() for r in results if r.is_floating_point()]
    return torch.stack(means).sum()


def _sums_by_op(graph: OpGraph) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for op, (name, op_type) in enumerate(zip(graph.op_names, graph.op_types, strict=True)):
        owner, _, suffix = name.rpartition("/")
        if op_type == "AddGrad" and suffix.startswith("sum_"):
            found.setdefault(owner, []).append(op)
    return found
