"""What units and own code cost on each device, measured by running them.

On the device that holds the model, whole forwards are clocked at the borders of modules. On others one representative
of each kind of block visits, with the inputs that it got in a real forward.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch

from placewright.live import caches
from placewright.live.module_graph import LiveModel
from placewright.live.trace import flat_tensors
from placewright.live.transfer import Backend
from placewright.live.units import structure_of
from placewright.live.workload import Workload
from placewright.profiles import CopyCurve

WARM_UPS, MOST_REPEATS = 2, 9
ENOUGH_S = 1.0  # of repeats of one thing
COPY_SIZES = (4096, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
CODE_RATIO = 1.5  # own code on a GPU against the CPU, where nothing was measured


@dataclass
class Costs:
    """Seconds of every unit and of every home's own code on one device, for one workload; absent = cannot be there."""

    time_s: dict[str, float] = field(default_factory=dict)
    workspace_bytes: float = 0.0  # the most that a block took besides its weights, where that was measured
    whole_s: float = 0.0  # the whole forward, where it was measured


class Clock:
    """Notes when modules are entered and left: host time, or the GPU's own time by events."""

    def __init__(self, device: Any, backend: Backend) -> None:
        self._device, self._backend = device, backend
        self._by_events = backend.is_gpu(device)
        self._marks: list[tuple[str, bool, Any]] = []
        self._handles: list[Any] = []

    def attach(self, modules: Iterable[tuple[str, Any]]) -> None:
        for path, module in modules:
            self._handles.append(module.register_forward_pre_hook(self._noter(path, True)))
            self._handles.append(module.register_forward_hook(self._noter(path, False)))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def start(self) -> None:
        self._marks = []

    def _noter(self, path: str, enters: bool) -> Callable[..., None]:
        if self._by_events:

            def note(*_: Any) -> None:
                event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                event.record(torch.cuda.current_stream(self._device))
                self._marks.append((path, enters, event))

        else:

            def note(*_: Any) -> None:
                self._marks.append((path, enters, time.perf_counter()))

        return note

    def exclusive_s(self) -> dict[str, float]:
        """Seconds in each module less those in marked modules it called; summed over its calls."""
        self._backend.wait(self._device)
        spent: dict[str, float] = {}
        stack: list[list[Any]] = []
        for path, enters, mark in self._marks:
            if enters:
                stack.append([path, mark, 0.0])
                continue
            name, began, inner = stack.pop()
            whole = began.elapsed_time(mark) / 1e3 if self._by_events else mark - began
            spent[name] = spent.get(name, 0.0) + max(0.0, whole - inner)
            if stack:
                stack[-1][2] += whole
        return spent


def measure_whole(model: Any, live: LiveModel, work: Workload, device: Any, backend: Backend) -> Costs:
    """Clock whole forwards of a model that lies on one device."""
    modules = dict(model.named_modules())
    clock = Clock(device, backend)
    places = [*live.units.paths, *live.units.containers]
    plain_s, repeats = _plain_s(partial(work.run, model), device, backend)
    clock.attach((path, modules[path]) for path in places)
    samples: list[dict[str, float]] = []
    try:
        for turn in range(repeats):
            clock.start()
            work.run(model, turn)
            samples.append(clock.exclusive_s())
    finally:
        clock.detach()
    scale = _scale(plain_s, samples)
    costs = Costs(whole_s=plain_s)
    alike: dict[Any, list[str]] = {}
    for path in places:
        alike.setdefault(structure_of(modules[path]) if path else "", []).append(path)
    for paths in alike.values():
        each = median([s.get(path, 0.0) for s in samples for path in paths]) * scale
        for path in paths:
            costs.time_s[path] = each
    _give_to_homes(costs, live)
    return costs


def measure_visits(
    model: Any, live: LiveModel, work: Workload, device: Any, backend: Backend, room_bytes: float, base: Costs
) -> Costs:
    """Let one representative of each kind of block visit a device; own code outside of blocks is scaled from ``base``.

    A block that the room does not hold has no cost there: it cannot be placed there either.
    """
    modules = dict(model.named_modules())
    targets = _targets(modules, live, room_bytes)
    inputs = _captured(model, work, [path for path, _ in targets], modules)
    costs = Costs()
    measured: dict[Any, dict[str, float]] = {}
    for path, _ in targets:
        if path not in inputs:
            continue
        args, kwargs = inputs[path]
        shapes = tuple(tuple(t.shape) for t in _tensors((args, kwargs)))
        key = (structure_of(modules[path]), shapes)
        if key not in measured:
            measured[key], extra = _visit(modules[path], path, args, kwargs, live, device, backend)
            costs.workspace_bytes = max(costs.workspace_bytes, extra)
        for inner, seconds in measured[key].items():
            full = f"{path}.{inner}" if inner and path else path or inner
            costs.time_s[full] = seconds
    missing = [p for p in live.units.containers if p not in costs.time_s]
    shared = [p for p in live.units.containers if p in costs.time_s and base.time_s.get(p, 0.0) > 0]
    ratio = (
        sum(costs.time_s[p] for p in shared) / sum(base.time_s[p] for p in shared)
        if shared and sum(base.time_s[p] for p in shared) > 0
        else CODE_RATIO
    )
    for path in missing:
        costs.time_s[path] = base.time_s.get(path, 0.0) * max(0.5, min(ratio, 4.0))
    _give_to_homes(costs, live)
    return costs


def measure_copies(device: Any, backend: Backend) -> dict[str, CopyCurve]:
    """Copies from host memory and back, as dispatching makes them after a kernel: ``in`` and ``out``."""
    host = backend.device("cpu")
    seconds: dict[str, list[float]] = {"in": [], "out": []}
    with torch.no_grad():
        trigger = backend.store(torch.ones(8), device)
        for size in COPY_SIZES:
            here = torch.ones(size, dtype=torch.uint8)
            there = backend.store(here, device)
            for way, tensor, target in (("in", here, device), ("out", there, host)):
                samples = []
                for _ in range(12):
                    backend.wait(device)
                    began = time.perf_counter()
                    trigger.add_(1)
                    backend.move([tensor], target)
                    backend.wait(device)
                    samples.append(time.perf_counter() - began)
                seconds[way].append(median(samples[2:]))
    return {way: CopyCurve(tuple(float(s) for s in COPY_SIZES), tuple(values)) for way, values in seconds.items()}


def measure_streaming(device: Any, backend: Backend, size_bytes: int = 1 << 27) -> float:
    """Bytes per second from pinned host memory to a GPU."""
    host = torch.ones(size_bytes, dtype=torch.uint8).pin_memory()
    there = backend.store(host, device)
    best = float("inf")
    for _ in range(4):
        backend.wait(device)
        began = time.perf_counter()
        there.copy_(host, non_blocking=True)
        backend.wait(device)
        best = min(best, time.perf_counter() - began)
    return size_bytes / best


def _targets(modules: dict[str, Any], live: LiveModel, room_bytes: float) -> list[tuple[str, float]]:
    """The outermost modules that fit, none of them the root."""
    units = live.units
    called: dict[str, list[str]] = {}
    for path, caller in units.parent.items():
        called.setdefault(caller, []).append(path)
    targets: list[tuple[str, float]] = []

    def descend(path: str) -> None:
        size = float(sum(t.numel() * t.element_size() for t in modules[path].parameters()))
        is_outer = units.home_of.get(path, path) != path  # its code is the root's: not one of repeated blocks
        if size <= room_bytes and not is_outer:
            targets.append((path, size))
        elif path in units.containers:
            for child in called.get(path, []):
                descend(child)

    for child in called.get("", []):
        descend(child)
    return targets


def _captured(model: Any, work: Workload, paths: list[str], modules: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the first call of each kind of module; caches are copied as they were then."""
    captured: dict[str, Any] = {}
    kinds: set[Any] = set()
    handles = []

    def catcher(path: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            del module
            if path in captured:
                return
            kind = (structure_of(modules[path]), tuple(tuple(t.shape) for t in _tensors((args, kwargs))))
            captured[path] = _detached((args, kwargs), copies_caches=kind not in kinds)
            kinds.add(kind)

        return hook

    for path in paths:
        handles.append(modules[path].register_forward_pre_hook(catcher(path), with_kwargs=True))
    try:
        work.run(model)
    finally:
        for handle in handles:
            handle.remove()
    return captured


def _visit(
    module: Any, path: str, args: Any, kwargs: Any, live: LiveModel, device: Any, backend: Backend
) -> tuple[dict[str, float], float]:
    """Seconds inside one module on another device by path relative to it, and the memory it took besides weights."""
    tensors = {id(t): t for t in [*module.parameters(), *module.buffers()]}.values()
    old = [(t, t.data) for t in tensors]
    is_gpu = backend.is_gpu(device)
    prefix = path + "." if path else ""
    inside = [p for p in [*live.units.paths, *live.units.containers] if p == path or p.startswith(prefix)]
    inner = {p: p[len(prefix) :] if p != path else "" for p in inside}
    clock = Clock(device, backend)
    try:
        with torch.no_grad():
            for t, data in old:
                t.data = backend.store(data, device)
            args, kwargs = _on_device((args, kwargs), device, backend)
            held = [v for v in [*args, *kwargs.values()] if caches.is_cache(v)]
            for cache in held:
                caches.bring(cache, dict.fromkeys(range(_layers(cache)), device), backend)
            submodules = dict(module.named_modules())
            state = caches.CacheState(held)

            def run(_: int) -> None:
                module(*args, **kwargs)
                state.restore()

            if is_gpu:
                torch.cuda.synchronize(device)
                torch.cuda.reset_peak_memory_stats(device)
                before = torch.cuda.memory_allocated(device)
            samples: list[dict[str, float]] = []
            plain_s, repeats = _plain_s(run, device, backend)
            clock.attach((inner[p], submodules[inner[p]]) for p in inside)
            for turn in range(repeats):
                clock.start()
                run(turn)
                samples.append(clock.exclusive_s())
            extra = float(torch.cuda.max_memory_allocated(device) - before) if is_gpu else 0.0
    finally:
        clock.detach()
        for t, data in old:
            t.data = data
    found: dict[str, list[float]] = {}
    for sample in samples:
        for name, seconds in sample.items():
            found.setdefault(name, []).append(seconds)
    scale = _scale(plain_s, samples)
    return {name: median(values) * scale for name, values in found.items()}, extra


def _plain_s(run: Callable[[int], Any], device: Any, backend: Backend) -> tuple[float, int]:
    """Seconds of one run among several that follow each other, without a clock inside, and how many those were."""
    backend.wait(device)
    for turn in range(WARM_UPS):
        began = time.perf_counter()
        run(turn)
        backend.wait(device)
        last_s = time.perf_counter() - began
    repeats = int(min(MOST_REPEATS, max(2, ENOUGH_S / last_s)))
    if backend.is_gpu(device):
        began = time.perf_counter()
        for turn in range(repeats):
            run(turn)
        backend.wait(device)
        return (time.perf_counter() - began) / repeats, repeats
    samples = []
    for turn in range(repeats):
        began = time.perf_counter()
        run(turn)
        samples.append(time.perf_counter() - began)
    return median(samples), repeats


def _scale(plain_s: float, samples: list[dict[str, float]]) -> float:
    """What to multiply clocked figures with: the clock itself takes time."""
    clocked_s = median([sum(sample.values()) for sample in samples])
    return min(1.0, plain_s / clocked_s) if clocked_s > 0 else 1.0


def _give_to_homes(costs: Costs, live: LiveModel) -> None:
    """Own code of containers that share a home is one figure."""
    for path, home in live.units.home_of.items():
        if home != path and path in costs.time_s:
            costs.time_s[home] = costs.time_s.get(home, 0.0) + costs.time_s.pop(path)


def _tensors(value: Any) -> list[Any]:
    return [t for _, t in flat_tensors(value)]


def _detached(value: Any, *, copies_caches: bool) -> Any:
    """The value as it is now; tensors are shared, caches copied where asked for."""
    if isinstance(value, dict):
        return {k: _detached(v, copies_caches=copies_caches) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_detached(v, copies_caches=copies_caches) for v in value)
    if caches.is_cache(value):
        return copy.deepcopy(value) if copies_caches else None
    return value


def _on_device(value: Any, device: Any, backend: Backend) -> Any:
    if isinstance(value, torch.Tensor):
        return value if backend.is_on(value, device) else backend.move([value], device)[0]
    if isinstance(value, dict):
        return {k: _on_device(v, device, backend) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_on_device(v, device, backend) for v in value)
    return value


def _layers(cache: Any) -> int:
    layers = getattr(cache, "layers", None)
    return len(layers) if isinstance(layers, list) else len(cache.key_cache)
