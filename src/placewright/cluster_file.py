"""Clusters from TOML files and from the presets that come with the package.

format = "placewright-cluster/1"     # may be left out
name = "box"

[[device]]
kind = "gpu"                        # devices are called gpu0, gpu1, …
count = 2
memory = "16GiB"                    # no limit if left out
flops = 9.3e12                      # for the roofline cost model
memory_bandwidth = "732GB/s"
op_overhead = "5us"
segment_overhead = "20us"           # under execution model ``sequential``
half_duplex = false
unsupported = ["embedding", "TopK*"]  # op classes or op types that cannot run here; or supported = [...]
runtime_device = "cuda"             # what the runtime calls it
threads = 0                         # that the runtime may use, 0 = its own choice
precision = "f32"                   # f32, bf16, f16
instruction_set = "sse41"           # no more than these, in a worker process: sse41, avx, avx2, avx512_core

[device.efficiency]                 # of the device above: the fraction of its peak reached, by op class
conv = 0.6
elementwise = { bandwidth = 0.8 }
default = { flops = 0.5, bandwidth = 0.7 }

[[device]]
kind = "cpu"
host = true                         # computes out of host memory

[[link]]
from = "gpu*"                       # device names, * and ? allowed
to = "host"                         # host memory, or device names for direct links
bandwidth = "12GB/s"
latency = "10us"
busy = "both"                       # which end can do no other copy meanwhile: both, sender, receiver, none
one_way = false
"""

from __future__ import annotations

import fnmatch
import math
import os
from importlib.resources import files
from pathlib import Path
from typing import Any, cast, get_args

from placewright.cluster import Cluster, Device, DeviceKind, Efficiency, InstructionSet, Link, Precision, equal_devices
from placewright.costs.cores import CORES_PREFIX, cores_cluster
from placewright.documents import check_version, kind_text, value_text
from placewright.errors import InputError, suggestion
from placewright.files import read_text
from placewright.op_classes import OP_CLASSES
from placewright.reading import reading
from placewright.text import shown
from placewright.toml_fields import LARGEST_TOML_BYTES, only_known, parse_toml, quantity, tables, whole_number

_DEVICE_FIELDS = {
    "kind", "count", "memory", "host", "flops", "memory_bandwidth", "op_overhead", "segment_overhead", "half_duplex",
    "efficiency", "supported", "unsupported", "runtime_device", "threads", "precision",
    "instruction_set",
}  # fmt: skip
_LINK_FIELDS = {"from", "to", "bandwidth", "latency", "busy", "one_way"}
VERSION = 1  # of the format
_MAX_DEVICES = 1024
_MAX_LINKS = 1024
_MAX_THREADS = 4096


def preset_names() -> list[str]:
    """Names of the clusters that come with the package."""
    return sorted(f.name.removesuffix(".toml") for f in _presets().iterdir() if f.name.endswith(".toml"))


def load_cluster(name_or_path: str) -> Cluster:
    """Load a preset by name, the cores of this machine (``cores:2``, ``cores:f32+bf16``) or a TOML file by path."""
    if name_or_path.startswith(CORES_PREFIX):
        return cores_cluster(name_or_path)
    if name_or_path in preset_names():
        return parse_cluster((_presets() / f"{name_or_path}.toml").read_text(encoding="utf-8"), name_or_path)
    if not (name_or_path.endswith(".toml") or "/" in name_or_path or os.path.exists(name_or_path)):
        known = suggestion(name_or_path, [*preset_names(), "cores:2", "cores:f32+bf16"])
        raise InputError(f"unknown cluster '{shown(name_or_path)}': neither a preset nor a TOML file; {known}")
    with reading(name_or_path, "a cluster") as where:
        return parse_cluster(read_text(name_or_path, LARGEST_TOML_BYTES), where)


def parse_cluster(text: str, where: str) -> Cluster:
    """Read a cluster from TOML text; ``where`` is its name in messages."""
    document = parse_toml(text, where)
    if "format" in document:
        check_version(document["format"], "cluster", VERSION, where)
    only_known(document, {"format", "name", "device", "link"}, where)
    kinds: list[DeviceKind] = []
    devices: list[Device] = []
    for i, entry in enumerate(tables(document, "device", where)):
        kind, made = _devices(entry, f"{where}: device[{i}]")
        if kind.name in [k.name for k in kinds]:
            raise InputError(
                f"{where}: device[{i}]: kind '{shown(kind.name)}' is there twice, expected one table per kind"
            )
        kinds.append(kind)
        devices += made
        if len(devices) > _MAX_DEVICES:
            raise InputError(f"{where}: has more than {_MAX_DEVICES} devices, the most that are placed on")
    to_host: dict[str, Link] = {}
    from_host: dict[str, Link] = {}
    direct: dict[tuple[str, str], Link] = {}
    links = tables(document, "link", where)
    if len(links) > _MAX_LINKS:
        raise InputError(f"{where}: has {len(links)} [[link]] tables, expected at most {_MAX_LINKS}")
    for i, entry in enumerate(links):
        _add_links(entry, f"{where}: link[{i}]", [d.name for d in devices], to_host, from_host, direct)
    name = document.get("name", Path(where).stem)
    if not isinstance(name, str):
        raise InputError(f"{where}: 'name' is {kind_text(name)}, expected a name")
    return Cluster(name, tuple(kinds), tuple(devices), to_host, from_host, direct or None)


def _presets() -> Any:
    return files("placewright.costs") / "presets"


def _devices(entry: dict[str, Any], where: str) -> tuple[DeviceKind, list[Device]]:
    only_known(entry, _DEVICE_FIELDS, where)
    name = entry.get("kind")
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: 'kind' is missing, expected a name such as \"gpu\"")
    count = whole_number(entry, "count", where, 1, 1, _MAX_DEVICES)
    kind = DeviceKind(
        name=name,
        is_host=_flag(entry, "host", where),
        flops_per_s=quantity(entry, "flops", "flops", where, math.nan),
        memory_bandwidth_bytes_per_s=quantity(entry, "memory_bandwidth", "bytes/s", where, math.nan),
        op_overhead_s=quantity(entry, "op_overhead", "seconds", where, 0.0),
        segment_overhead_s=quantity(entry, "segment_overhead", "seconds", where, 0.0),
        efficiency=_efficiency(entry, where),
        supported=_patterns(entry, "supported", where, ("*",)),
        unsupported=_patterns(entry, "unsupported", where, ()),
        runtime_device=_runtime_device(entry, where),
        threads=whole_number(entry, "threads", where, 0, 0, _MAX_THREADS),
        precision=_precision(entry, where),
        instruction_set=_instruction_set(entry, where),
    )
    memory = quantity(entry, "memory", "bytes", where, math.inf)
    return kind, equal_devices(name, count, memory, half_duplex=_flag(entry, "half_duplex", where))


def _efficiency(entry: dict[str, Any], where: str) -> dict[str, Efficiency]:
    table = entry.get("efficiency", {})
    if not isinstance(table, dict):
        raise InputError(f"{where}: 'efficiency' is '{value_text(table)}', expected a table [device.efficiency]")
    known = [*(c for c in OP_CLASSES if c != "free"), "default"]
    found: dict[str, Efficiency] = {}
    for name, value in table.items():
        if name not in known:
            raise InputError(f"{where}: efficiency: unknown op class '{shown(name)}'; {suggestion(name, known)}")
        here = f"{where}: efficiency of '{name}'"
        rates = value if isinstance(value, dict) else {"flops": value}
        only_known(rates, {"flops", "bandwidth"}, here)
        found[name] = Efficiency(_fraction(rates, "flops", here), _fraction(rates, "bandwidth", here))
    return found


def _fraction(rates: dict[str, Any], field: str, where: str) -> float:
    value = rates.get(field, 1.0)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise InputError(
            f"{where}: '{field}' is {value_text(value)}, expected a fraction of the peak, above 0 and at most 1"
        )
    return float(value)


def _patterns(entry: dict[str, Any], field: str, where: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = entry.get(field)
    if value is None:
        return default
    if not isinstance(value, list) or not all(isinstance(p, str) and p for p in value):
        raise InputError(
            f"{where}: '{field}' is {value_text(value)}, expected a list of op classes or op types, "
            'for example ["embedding", "TopK*"]'
        )
    return tuple(value)


def _runtime_device(entry: dict[str, Any], where: str) -> str:
    value = entry.get("runtime_device", "")
    if not isinstance(value, str):
        raise InputError(
            f'{where}: \'runtime_device\' is {value_text(value)}, expected a name such as "GPU.1" or "cuda:0"'
        )
    return value


def _precision(entry: dict[str, Any], where: str) -> Precision:
    value = entry.get("precision", "")
    if value not in get_args(Precision) or (value == "" and "precision" in entry):
        raise InputError(f"{where}: 'precision' is '{value_text(value)}', expected f32, bf16 or f16")
    return cast(Precision, value)


def _instruction_set(entry: dict[str, Any], where: str) -> InstructionSet:
    value, known = entry.get("instruction_set", ""), [k for k in get_args(InstructionSet) if k]
    if "instruction_set" in entry and value not in known:
        raise InputError(f"{where}: 'instruction_set' is '{value_text(value)}', expected one of {', '.join(known)}")
    return cast(InstructionSet, value)


def _add_links(
    entry: dict[str, Any], where: str, names: list[str], to_host: dict[str, Link], from_host: dict[str, Link],
    direct: dict[tuple[str, str], Link],
) -> None:  # fmt: skip
    only_known(entry, _LINK_FIELDS, where)
    busy = entry.get("busy", "both")
    if busy not in ("both", "sender", "receiver", "none"):
        raise InputError(f"{where}: 'busy' is '{value_text(busy)}', expected both, sender, receiver or none")
    bandwidth = quantity(entry, "bandwidth", "bytes/s", where, None)
    link = Link(
        f"{entry.get('from')} - {entry.get('to')}", bandwidth, quantity(entry, "latency", "seconds", where, 0.0), busy
    )
    if not bandwidth > 0:
        raise InputError(f"{where}: 'bandwidth' is 0, expected more")
    ends = [_matching(entry, end, where, names) for end in ("from", "to")]
    for source, target in [ends] if _flag(entry, "one_way", where) else [ends, ends[::-1]]:
        if source == ["host"] and target == ["host"]:
            raise InputError(f"{where}: leads from host memory to host memory, expected a device at one end")
        for a in source:
            for b in target:
                if a == "host":
                    from_host[b] = link
                elif b == "host":
                    to_host[a] = link
                elif a != b:
                    direct[a, b] = link


def _matching(entry: dict[str, Any], end: str, where: str, names: list[str]) -> list[str]:
    pattern = entry.get(end)
    if not isinstance(pattern, str):
        raise InputError(f"{where}: '{end}' is missing, expected device names or \"host\"")
    hits = ["host"] if pattern == "host" else [n for n in names if fnmatch.fnmatchcase(n, pattern)]
    if not hits:
        raise InputError(
            f"{where}: '{end}' is '{shown(pattern)}', which matches no device; {suggestion(pattern, names)}"
        )
    return hits


def parse_bytes(value: float | str, where: str) -> float:
    """A size in bytes, given as a number or with a unit; ``where`` begins the message if it is neither.

    >>> parse_bytes("8GiB", "--memory")
    8589934592.0
    """
    return quantity({"memory": value}, "memory", "bytes", where, None)


def _flag(entry: dict[str, Any], field: str, where: str) -> bool:
    value = entry.get(field, False)
    if not isinstance(value, bool):
        raise InputError(f"{where}: '{field}' is '{value_text(value)}', expected true or false")
    return value
