"""Tensors of a ``.pt2`` archive over the bytes that were read: nothing is copied, and no name in it is followed."""

from __future__ import annotations

import math
import sys
from typing import Any

from placewright.errors import InputError
from placewright.frontends.archive_entries import Entry
from placewright.frontends.document import Check, Misfit, decoded, flag, named, optional, record, text
from placewright.frontends.tensor_pickle import RawTensor
from placewright.frontends.torch_document import BITS, STRIDED, path, tensor_meta
from placewright.text import shown

_LARGEST_CONFIG_BYTES = 64 << 20
_ALIGNMENT_BYTES = 64
_REPEATED_BYTES = 64 << 20  # how much larger than the bytes behind it a tensor may be that repeats them


def payload_config(kind: str) -> Check:
    """A check of ``model_weights_config.json`` (``kind`` weight) or its twin for constants (tensor)."""
    payload = record(
        path_name=text(100, rf"{kind}_\d+"), is_param=flag, use_pickle=flag, tensor_meta=optional(tensor_meta)
    )
    return record(config=named(path, payload))


def raw_tensors(entries: dict[str, Entry], folder: str, kind: str, config: str, where: str) -> dict[str, RawTensor]:
    """What a configuration in the archive names, by the paths of the module's attributes."""
    rows = _config(entries, f"{folder}/{config}", kind, where)
    whole: set[str] = set()
    found: dict[str, RawTensor] = {}
    for name, row in rows.items():
        told = f"{where}: torch does not load it: {kind} '{shown(name)}'"
        if row["use_pickle"] or row["tensor_meta"] is None:
            raise InputError(f"{told} is pickled, which may run code when it is read; export it with plain tensors")
        entry = entries.get(f"{folder}/{row['path_name']}")
        if entry is None:
            raise InputError(f"{told} is missing: expected '{row['path_name']}'")
        if row["path_name"] not in whole and not entry.is_whole():
            raise InputError(f"{told} is damaged: '{row['path_name']}' does not have its checksum")
        whole.add(row["path_name"])
        found[name] = _raw_tensor(row, entry, told)
    return found


def _config(entries: dict[str, Entry], name: str, kind: str, where: str) -> dict[str, Any]:
    entry = entries.get(name)
    if entry is None:
        raise InputError(f"{where}: lacks '{name}', the list of its tensors")
    if entry.size > _LARGEST_CONFIG_BYTES or not entry.is_whole():
        raise InputError(f"{where}: '{name}', the list of its tensors, is damaged")
    try:
        document = payload_config(kind)(decoded(bytes(entry.data)))
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, Misfit) else "it is not valid JSON"
        raise InputError(f"{where}: '{name}', the list of its tensors, is damaged: {shown(what, 160)}") from error
    rows: dict[str, Any] = document["config"]
    return rows


def _raw_tensor(row: dict[str, Any], entry: Entry, told: str) -> RawTensor:
    meta = row["tensor_meta"]
    numbers = [*meta["sizes"], *meta["strides"], meta["storage_offset"]]
    if meta["layout"] != STRIDED or any(n.get("as_int", -1) < 0 for n in numbers):
        raise InputError(f"{told} has no plain layout in memory")
    if meta["device"]["type"] == "meta":
        raise InputError(f"{told} has no data (device 'meta')")
    *both, offset = [n["as_int"] for n in numbers]
    n_ranks = len(meta["sizes"])
    return RawTensor(
        entry.data,
        meta["dtype"],
        tuple(both[:n_ranks]),
        tuple(both[n_ranks:]),
        offset,
        meta["requires_grad"],
        row["is_param"],
    )


def check_extent(raw: RawTensor, told: str) -> None:
    """Refuse a tensor that reaches beyond its bytes, or that repeats them without end."""
    size_bytes = BITS[raw.dtype] // 8
    n_elements = math.prod(raw.sizes)
    if len(raw.sizes) != len(raw.strides):
        raise InputError(f"{told} has {len(raw.sizes)} sizes and {len(raw.strides)} strides")
    last = raw.offset + sum((n - 1) * s for n, s in zip(raw.sizes, raw.strides, strict=True))
    needed = (last + 1) * size_bytes if n_elements else 0
    if needed > len(raw.data):
        raise InputError(f"{told} needs {needed} bytes, and its part of the file has {len(raw.data)}")
    if n_elements * size_bytes > len(raw.data) + _REPEATED_BYTES:
        raise InputError(f"{told} repeats {len(raw.data)} bytes to {n_elements * size_bytes}")
    if max((n_elements, *raw.sizes, *raw.strides)) >= 2**62:
        raise InputError(f"{told} has impossible sizes")


class Tensors:
    """Makes torch's tensors of raw ones; those that share their bytes in the file share their memory."""

    def __init__(self, where: str) -> None:
        if sys.byteorder != "little":
            raise InputError(f"{where}: .pt2 archives are read on little-endian machines only")
        self.where = where
        self._storages: dict[int, tuple[Any, memoryview]] = {}

    def tensor(self, raw: RawTensor, name: str) -> Any:
        import torch

        check_extent(raw, f"{self.where}: tensor '{shown(name)}'")
        tensor = torch.empty(0, dtype=_type(raw.dtype))
        tensor.set_(self._storage(raw), raw.offset, raw.sizes, raw.strides)
        is_number = tensor.is_floating_point() or tensor.is_complex()
        requires_grad = raw.requires_grad and is_number
        if raw.is_parameter:
            return torch.nn.Parameter(tensor, requires_grad=requires_grad)
        return tensor.requires_grad_(requires_grad) if is_number else tensor

    def _storage(self, raw: RawTensor) -> Any:
        import torch

        if id(raw.data) not in self._storages:
            flat = torch.frombuffer(raw.data, dtype=torch.uint8) if len(raw.data) else torch.empty(0, dtype=torch.uint8)
            if flat.data_ptr() % _ALIGNMENT_BYTES:  # another program than torch wrote the archive
                flat = flat.clone()
            self._storages[id(raw.data)] = (flat.untyped_storage(), raw.data)  # so that no other view gets its number
        return self._storages[id(raw.data)][0]


def _type(number: int) -> Any:
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    return _SERIALIZE_TO_TORCH_DTYPE[number]
