"""Checkpoints straight to their placement: every weight is read from its mapped file to where it will be used."""

from __future__ import annotations

import gc
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from placewright.documents import Fields
from placewright.errors import InputError
from placewright.files import read_json
from placewright.live.dispatch import DISK, STREAMED, dispatch, live_of, places_of
from placewright.live.hf import empty_model
from placewright.live.storage import map_weights, mark_mapped
from placewright.live.transfer import Backend, TorchBackend
from placewright.placement import Placement
from placewright.reading import reading
from placewright.text import shown, shown_list

Reader = Callable[[], Any]


def load(
    folder: str | Path,
    placement: Placement,
    *,
    offload_folder: str | Path | None = None,
    backend: Backend | None = None,
) -> Any:
    """Load a checkpoint folder as a placement says, and dispatch it.

    Host memory holds the CPU's share and one tensor at a time; weights for a GPU go there from the mapped file, those
    on ``disk`` stay mapped. Weights on disk that the checkpoint keeps in another form are written to
    ``offload_folder`` once.
    """
    model = empty_model(folder)
    backend = backend or TorchBackend()
    live, places = live_of(placement), places_of(placement)
    readers = _readers(model, Path(folder))
    holders = _holders(model)
    loaded: dict[int, tuple[Any, Any]] = {}
    for name, (read, is_mapped) in readers.items():
        module, attribute = holders[name]
        old = getattr(module, attribute)
        owner = live.units.owner[name.rpartition(".")[0]]
        place = places[owner if owner in places else live.units.home_of[owner]]
        tensor = read().to(old.dtype)
        if place == DISK and not is_mapped:
            if offload_folder is None:
                raise InputError(f"'{shown(name)}' goes to disk in a form the checkpoint lacks: name an offload_folder")
            tensor = map_weights({name: tensor}, Path(offload_folder) / f"{name}.safetensors")[name]
        elif place == "cpu" or place.endswith(STREAMED):
            tensor = tensor.clone()  # memory of its own: the file can be let go
        elif place != DISK:
            tensor = backend.store(tensor, backend.device(place))
        loaded[id(old)] = (old, _set(module, attribute, tensor, old))  # the old one is kept: its id must stay its own
        if place == DISK:
            mark_mapped(loaded[id(old)][1])
    _tie(model, loaded)
    left = [n for n, p in model.named_parameters() if p.device.type == "meta"]
    if left:
        raise InputError(f"{shown(str(folder), 200)}: the checkpoint lacks {shown_list(left, 3)}")
    gc.collect()
    return dispatch(model, placement, backend=backend, offload_folder=offload_folder)


def _set(module: Any, attribute: str, tensor: Any, old: Any) -> Any:
    if attribute in module._parameters:
        module._parameters[attribute] = torch.nn.Parameter(tensor, requires_grad=old.requires_grad)
        return module._parameters[attribute]
    module._buffers[attribute] = tensor
    return tensor


def _holders(model: Any) -> dict[str, tuple[Any, str]]:
    found = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name in [*module._parameters, *module._buffers]:
            found[f"{path}.{name}" if path else name] = (module, name)
    return found


def _tie(model: Any, loaded: dict[int, tuple[Any, Any]]) -> None:
    """Give modules that shared a parameter the loaded one."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and id(parameter) in loaded:
                module._parameters[name] = loaded[id(parameter)][1]


def _readers(model: Any, folder: Path) -> dict[str, tuple[Reader, bool]]:
    """How to read every weight of the model, and whether it then is a view of the mapped file."""
    files = _shards(folder)
    wanted = dict(model.state_dict(keep_vars=True))
    keys: dict[str, Any] = {}
    for path in files:
        for key in _open(path).keys():  # noqa: SIM118
            keys[key] = path
    prefix = getattr(model, "base_model_prefix", "")
    direct: dict[str, tuple[Reader, bool]] = {}
    for name in wanted:
        for key in (name, name.removeprefix(prefix + "."), f"{prefix}.{name}"):
            if key in keys:
                direct[name] = (_reader(keys[key], key), True)
                break
    missing = [n for n in wanted if n not in direct]
    tied = {id(wanted[n]) for n in direct}
    if all(id(wanted[n]) in tied for n in missing):
        return direct
    return {**direct, **_converted(model, keys, set(missing))}


def _converted(model: Any, keys: dict[str, Any], missing: set[str]) -> dict[str, tuple[Reader, bool]]:
    """Weights that the checkpoint keeps in another form, by the conversions that transformers itself would do."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key
    except ImportError:
        raise InputError(
            f"the checkpoint's names do not fit the model: it lacks {shown_list(sorted(missing), 3)}"
        ) from None
    transforms = get_model_conversion_mapping(model)
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    by_pattern = {p: c for c in converters for p in c.source_patterns}
    state, prefix = model.state_dict(), model.base_model_prefix
    collected: dict[str, Any] = {}
    for key in sorted(keys, key=dot_natural_key):
        target, pattern = rename_source_key(key, renamings, converters, prefix, state)
        if target not in missing:
            continue
        if pattern is None:
            collected.setdefault(target, WeightRenaming(key, target))
            pattern = key
        else:
            collected.setdefault(target, deepcopy(by_pattern[pattern]))
        collected[target].add_tensor(target, key, pattern, _reader(keys[key], key))

    def reader(target: str) -> Reader:
        def read() -> Any:
            made = collected[target].convert(target, model=model, config=model.config)[target]
            return made[0] if isinstance(made, list) else made

        return read

    return {target: (reader(target), False) for target in collected}


def _reader(path: Path, key: str) -> Reader:
    return lambda: _open(path).get_tensor(key)


def _open(path: Path) -> Any:
    from safetensors import safe_open

    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except Exception as error:
        raise InputError(f"{shown(str(path), 200)}: not a safetensors file: {shown(str(error))}") from error


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        found = [folder / name for name in _named_shards(index)]
    else:
        found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise InputError(f"{shown(str(folder), 200)}: no .safetensors files there")
    return found


def _named_shards(index: Path) -> list[str]:
    """Files that an index names; they lie beside it."""
    with reading(index, "an index of weights") as where:
        table = Fields(Fields(read_json(index), where).data.get("weight_map"), f"{where}: weight_map")
        names = sorted({table.text(key) for key in table.data})
        for name in names:
            if Path(name).name != name:
                raise InputError(f"{table.where}: names '{shown(name)}', expected a file of the folder")
        return names
