"""Run a live module as a placement says, without changing its code.

Weights lie on their unit's device. A module that needs a tensor from elsewhere gets its ``forward`` wrapped: what it
reads is moved to its device, what its caller's own code reads is moved to the caller's home. A tensor is moved once per
device and forward. Modules that nothing crosses are left as they are. :func:`undispatch` takes everything back.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from placewright.errors import InputError
from placewright.live import METADATA, caches
from placewright.live.module_graph import INPUT, OUTPUT, LiveModel, owners_of_weights
from placewright.live.storage import is_mapped, map_weights
from placewright.live.streaming import StreamedWeights, stream_units
from placewright.live.transfer import Backend, TorchBackend
from placewright.placement import Placement
from placewright.text import shown

ATTRIBUTE = "_placewright_dispatch"
STREAMED = " streamed"  # a device's name with this behind it: computes there, its weights wait in host memory
DISK = "disk"  # computes on the CPU, weights mapped from a file


def dispatch(
    model: Any,
    placement: Placement,
    *,
    backend: Backend | None = None,
    keep_weights: bool = False,
    offload_folder: str | Path | None = None,
) -> Any:
    """Put every unit of the model on its device and let forwards cross where they must; returns the model.

    ``keep_weights`` keeps the weights where they were as well, so that taking them back costs nothing. Units on
    ``disk`` are written to ``offload_folder`` and mapped from there, unless they were loaded so or are kept.
    """
    undispatch(model)
    live = live_of(placement)
    if placement.device_of_op is None or not placement.is_valid:
        reason = "; ".join(f.message for f in placement.faults[:3]) or placement.note
        raise InputError(f"an invalid placement cannot be run: {reason}")
    _check_model(model, live)
    setattr(model, ATTRIBUTE, Dispatched(model, live, placement, backend, keep_weights, offload_folder))
    return model


def undispatch(model: Any) -> Any:
    """Take weights and wrappers back to how they were before :func:`dispatch`; returns the model."""
    run = getattr(model, ATTRIBUTE, None)
    if run is not None:
        run.take_back()
        delattr(model, ATTRIBUTE)
    return model


def live_of(placement: Placement) -> LiveModel:
    """What a placement of a live model knows of it."""
    live = placement.problem.graph.metadata.get(METADATA)
    if not isinstance(live, LiveModel):
        raise InputError("this placement is not of a live model: make it with placewright.torch.fit")
    return live


def places_of(placement: Placement) -> dict[str, str]:
    """Device name of every unit and home; a home without code is where its weights are shared, or what it calls is."""
    graph = placement.problem.graph
    live = live_of(placement)
    assert placement.device_of_op is not None
    names = placement.problem.cluster.device_names
    device_of_op = placement.device_of_op.tolist()
    places = {
        path: names[d]
        for path, name, d in zip(graph.module_paths, graph.op_names, device_of_op, strict=True)
        if name not in (INPUT, OUTPUT)
    }
    for path in live.units.home_of.values():
        if path not in places:
            tied = [p for tie in live.ties if path in tie for p in tie if p in places]
            places[path] = places[tied[0]] if tied else _where_most_is(path, places, live)
    return places


def _where_most_is(home: str, places: dict[str, str], live: LiveModel) -> str:
    """Where most units are that a home's code calls: the fewest tensors cross."""
    units = live.units
    called = [p for p in units.paths if units.home_of[units.parent[p]] == home] or units.paths
    name = Counter(places[p] for p in called).most_common(1)[0][0]
    return name.removesuffix(STREAMED)


def _check_model(model: Any, live: LiveModel) -> None:
    modules = dict(model.named_modules())
    absent = [p for p in [*live.units.paths, *live.units.containers] if p not in modules]
    if absent:
        raise InputError(f"the placement is of another model: this one has no module '{shown(absent[0])}'")
    if any(t.device.type == "meta" for t in model.parameters()):
        raise InputError("the model's weights are on 'meta': load them with placewright.torch.load")


class Dispatched:
    """What was done to a model."""

    def __init__(
        self,
        model: Any,
        live: LiveModel,
        placement: Placement,
        backend: Backend | None,
        keep_weights: bool,
        offload_folder: str | Path | None,
    ) -> None:
        self._backend: Backend = backend or TorchBackend()
        self._model, self._live, self._places = model, live, places_of(placement)
        self._offload_folder = offload_folder
        self._names = placement.problem.cluster.device_names
        self._devices = {name: self._backend.device(compute_device(name)) for name in self._names}
        self._wrapped: list[tuple[Any, Any]] = []
        self._old_weights: list[tuple[Any, Any]] = []
        # By a tensor's id: the tensor, weakly, and its copies. An entry goes with its tensor.
        self._copies: dict[int, tuple[Any, dict[Any, tuple[int, Callable[[], Any]]]]] = {}
        self._streamed: dict[str, StreamedWeights] = {}
        self._first_streamed: list[StreamedWeights] = []
        self._keep = keep_weights
        self._layer_device = {layer: self.device_of(unit) for unit, layer in live.layer_of_unit.items()}
        assert placement.device_of_op is not None
        self._entry = self._devices[self._names[placement.device_of_op[placement.problem.graph.index_of[INPUT]]]]
        try:
            self._store_weights()
            self._is_whole = len({self.device_of(p) for p in self._places}) == 1 and not self._streamed
            self._wrap(placement)
        except BaseException:
            self.take_back()
            raise

    def device_of(self, path: str) -> Any:
        """Device of a unit, or home of a container."""
        units = self._live.units
        return self._devices[self._places[path if path in self._places else units.home_of.get(path, "")]]

    def bring_caches(self, values: list[Any]) -> None:
        """Move what caches already hold to the devices of their layers."""
        for value in values:
            caches.bring(value, self._layer_device, self._backend)

    def take_back(self) -> None:
        for module, old in reversed(self._wrapped):
            if old is None:
                del module.forward
            else:
                module.forward = old
        for stream in self._streamed.values():
            stream.close()
        with torch.no_grad():
            for tensor, old in self._old_weights:
                if self._keep:
                    tensor.data = old
                    continue
                back = self._backend.store(tensor.data, old)
                is_same = back.data_ptr() == tensor.data_ptr()  # mapped or pinned: give it memory of its own
                self._put(tensor, back.clone() if is_same else back, old)
        self._wrapped, self._old_weights, self._streamed, self._first_streamed = [], [], {}, []
        self._copies.clear()

    def _store_weights(self) -> None:
        streamed: dict[str, list[Any]] = {}
        mapped: dict[str, list[Any]] = {}
        with torch.no_grad():
            for tensor, holders in owners_of_weights(self._model, self._live.units).values():
                place = self._places[holders[0]]
                old = tensor.data if self._keep else self._backend.device_of(tensor)
                device = self._devices[place]
                if place.endswith(STREAMED):
                    streamed.setdefault(holders[0], []).append(tensor)
                elif place == DISK and not is_mapped(tensor) and not self._keep:
                    mapped.setdefault(holders[0], []).append(tensor)
                elif not self._backend.is_on(tensor, device):
                    self._put(tensor, self._backend.store(tensor.data, device), device)
                else:
                    continue
                self._old_weights.append((tensor, old))
            for path, tensors in mapped.items():
                self._map(path, tensors)
        for device in dict.fromkeys(self.device_of(p) for p in streamed):
            paths = [p for p in self._live.units.paths if p in streamed and self.device_of(p) == device]
            made = stream_units([streamed[p] for p in paths], device, self._backend)
            self._streamed.update(zip(paths, made, strict=True))
            self._first_streamed.append(made[0])

    def _put(self, tensor: Any, data: Any, device: Any) -> None:
        """Exchange a weight's memory; a gradient follows."""
        gradient, tensor.grad = tensor.grad, None
        tensor.data = data
        if gradient is not None:
            tensor.grad = self._backend.store(gradient, device)

    def _map(self, path: str, tensors: list[Any]) -> None:
        if self._offload_folder is None:
            raise InputError(f"'{shown(path)}' goes to disk: name an offload_folder to keep its weights in")
        names = {str(i): t.data for i, t in enumerate(tensors)}
        views = map_weights(names, Path(self._offload_folder) / f"{path}.safetensors")
        for i, tensor in enumerate(tensors):
            tensor.data = views[str(i)]

    def _wrap(self, placement: Placement) -> None:
        modules = dict(self._model.named_modules())
        units = self._live.units
        unit_paths = set(units.paths)
        for path in [] if self._is_whole else self._crossed(placement):
            if path:
                make = self._unit_forward if path in unit_paths else self._home_forward
                self._replace(modules[path], make, path)
        if not self._is_whole or self._entry != self.device_of(""):
            self._replace(self._model, self._root_forward, "")

    def _crossed(self, placement: Placement) -> list[str]:
        """Modules that tensors come to, or leave for their caller's code, from another device."""
        units, graph = self._live.units, placement.problem.graph
        assert placement.device_of_op is not None
        device = placement.device_of_op
        crossed: set[str] = set(self._streamed)
        sharing: dict[str, list[str]] = {}
        for container, home in units.home_of.items():
            sharing.setdefault(home, []).append(container)
        unit_paths = set(units.paths)
        for u, v in zip(graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True):
            if device[u] == device[v] or graph.op_names[v] == OUTPUT:
                continue
            target = graph.module_paths[v]
            source = None if graph.op_names[u] == INPUT else graph.module_paths[u]
            if target in unit_paths:
                crossed.add(target)
            else:
                crossed.update(*(self._on_the_way(source, container) for container in sharing[target]))
        for path in [*units.paths, *units.containers]:
            if path and self.device_of(path) != self.device_of(units.parent[path]):
                crossed.add(path)
        return [path for path in [*units.containers, *units.paths] if path in crossed]

    def _on_the_way(self, source: str | None, container: str) -> list[str]:
        """Modules whose wrappers bring a tensor from a unit's or home's code (or the caller) to a container's code.

        Results climb to the first common caller, arguments go down from there. A module is needed while the tensor may
        not be where the module's code is; one that code on the way reads has been moved there.
        """
        parent, slots = self._live.units.parent, self._live.slots
        down = [container]
        while down[-1]:
            down.append(parent[down[-1]])
        needed: list[str] = []
        path, is_there = (source, False) if source is not None else ("", not slots.idle_arguments.get(""))
        while path not in down:
            is_there = is_there and self.device_of(path) == self.device_of(parent[path])
            if not is_there:
                needed.append(path)
            is_there = is_there or not slots.idle_results.get(path)
            path = parent[path]
        if path == source:
            is_there = True  # that code's own device
        for inner in reversed(down[: down.index(path)]):
            is_there = is_there and self.device_of(inner) == self.device_of(parent[inner])
            if not is_there:
                needed.append(inner)
            is_there = is_there or not slots.idle_arguments.get(inner)
        return needed

    def _replace(self, module: Any, make: Any, path: str) -> None:
        old = module.__dict__.get("forward")
        module.forward = make(module, module.forward, path)
        self._wrapped.append((module, old))

    def _unit_forward(self, module: Any, forward: Any, path: str) -> Any:
        device, caller = self.device_of(path), self.device_of(self._live.units.parent[path])
        idle = self._live.slots.idle_results.get(path, frozenset())
        stream = self._streamed.get(path)

        def run(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self._moved((args, kwargs), device, frozenset())
            if stream is None:
                return self._moved(forward(*args, **kwargs), caller, idle, is_result=True)
            with stream:
                return self._moved(forward(*args, **kwargs), caller, idle, is_result=True)

        del module
        return run

    def _home_forward(self, module: Any, forward: Any, path: str) -> Any:
        device, caller = self.device_of(path), self.device_of(self._live.units.parent[path])
        slots = self._live.slots
        idle, idle_results = slots.idle_arguments.get(path, frozenset()), slots.idle_results.get(path, frozenset())

        def run(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self._moved((args, kwargs), device, idle)
            return self._moved(forward(*args, **kwargs), caller, idle_results, is_result=True)

        del module
        return run

    def _root_forward(self, module: Any, forward: Any, path: str) -> Any:
        device, backend = self.device_of(""), self._backend
        entry, idle = self._entry, self._live.slots.idle_arguments.get(path, frozenset())
        if self._is_whole:  # no unit is wrapped to bring what it reads: all of it is brought here, and at once
            entry, idle = device, frozenset()

        def run(*args: Any, **kwargs: Any) -> Any:
            back = next((backend.device_of(t) for t in tensors_in((args, kwargs))), entry)
            self._copies.clear()
            for stream in self._first_streamed:
                stream.fetch()
            try:
                args, kwargs = self._moved((args, kwargs), entry, frozenset())
                args, kwargs = self._moved((args, kwargs), device, idle)
                self.bring_caches([*args, *kwargs.values()])
                return self._moved(forward(*args, **kwargs), back, frozenset())
            finally:
                self._copies.clear()

        del module
        return run

    def _moved(self, value: Any, device: Any, idle: frozenset[str], *, is_result: bool = False) -> Any:
        """The value with its tensors on a device, those in ``idle`` places left where they are."""
        absent = self._absent(value, device) if not idle else self._absent_but(value, device, idle)
        if not absent:
            return value
        new: list[Any] = []
        known: dict[int, Any] = {}
        for tensor in absent:
            copy = self._known_copy(tensor, device)
            if copy is None:
                if id(tensor) not in known:
                    new.append(tensor)
                known[id(tensor)] = None
            else:
                known[id(tensor)] = copy
        for tensor, copy in zip(new, self._backend.move(new, device) if new else [], strict=True):
            known[id(tensor)] = copy
            # The caller's code holds what it passes on, and of results what it gets: the other one lives as long.
            here, there = (weakref.ref(copy), _always(tensor)) if is_result else (_always(copy), weakref.ref(tensor))
            self._remember(tensor, device, here)
            self._remember(copy, self._backend.device_of(tensor), there)
        return _replaced(value, known, "", idle)

    def _absent(self, value: Any, device: Any) -> list[Any]:
        """Tensors in a value that are elsewhere; this is on the way of every forward."""
        if isinstance(value, torch.Tensor):
            return [] if self._backend.is_on(value, device) else [value]
        if isinstance(value, (tuple, list)):
            return [t for item in value for t in self._absent(item, device)] if value else []
        if isinstance(value, dict):
            return [t for item in value.values() for t in self._absent(item, device)] if value else []
        return []

    def _absent_but(self, value: Any, device: Any, idle: frozenset[str]) -> list[Any]:
        """The same, without those in ``idle`` places."""
        absent = self._absent(value, device)
        if not absent:
            return absent
        return [t for slot, t in slotted(value, "") if slot not in idle and not self._backend.is_on(t, device)]

    def _known_copy(self, tensor: Any, device: Any) -> Any:
        entry = self._copies.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return None
        version, copy = entry[1].get(device, (None, None))
        return copy() if copy is not None and version == _version(tensor) else None

    def _remember(self, tensor: Any, device: Any, copy: Callable[[], Any]) -> None:
        if self._live.changes_in_place and tensor.is_inference():
            return  # such tensors do not say whether they were written to since
        key, copies = id(tensor), self._copies
        entry = copies.get(key)
        if entry is None or entry[0]() is not tensor:
            entry = copies[key] = (weakref.ref(tensor, lambda _: copies.pop(key, None)), {})
        entry[1][device] = (_version(tensor), copy)


def compute_device(name: str) -> str:
    """The torch device that computes for a device of the cluster.

    >>> compute_device("cuda:0 streamed"), compute_device("disk")
    ('cuda:0', 'cpu')
    """
    return "cpu" if name == DISK else name.removesuffix(STREAMED)


def tensors_in(value: Any) -> Any:
    """All tensors in a value."""
    return (t for _, t in slotted(value, ""))


def slotted(value: Any, slot: str) -> list[tuple[str, Any]]:
    """As ``trace.flat_tensors``, as a list."""
    if isinstance(value, torch.Tensor):
        return [(slot, value)]
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in slotted(item, f"{slot}.{key}")]
    if isinstance(value, (tuple, list)):
        return [pair for i, item in enumerate(value) for pair in slotted(item, f"{slot}.{i}")]
    return []


def _replaced(value: Any, known: dict[int, Any], slot: str, idle: frozenset[str]) -> Any:
    if isinstance(value, torch.Tensor):
        return value if slot in idle else known.get(id(value), value)
    if isinstance(value, dict):
        items = {key: _replaced(item, known, f"{slot}.{key}", idle) for key, item in value.items()}
        if type(value) is dict:
            return items
        for key, item in items.items():  # a model's own output class: keep it
            value[key] = item
        return value
    if isinstance(value, (tuple, list)):
        members = [_replaced(item, known, f"{slot}.{i}", idle) for i, item in enumerate(value)]
        return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    return value


def _always(tensor: Any) -> Callable[[], Any]:
    return lambda: tensor


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)
