"""``Cluster``: devices and the links between them. It knows no model."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.text import shown

Precision = Literal["", "f32", "bf16", "f16"]
InstructionSet = Literal["", "sse41", "avx", "avx2", "avx512_core"]
Busy = Literal["both", "sender", "receiver", "none"]
_BUSY_BITS: dict[str, int] = {"none": 0, "sender": 1, "receiver": 2, "both": 3}


class Efficiency(NamedTuple):
    """Which fractions of its peak rates a device reaches on one sort of work."""

    flops: float = 1.0
    bandwidth: float = 1.0


@dataclass(frozen=True)
class DeviceKind:
    """What equal devices share.

    ``is_host`` marks devices that compute out of host memory: they pay nothing to reach it, and the ``calls``
    model runs them as one pool of unlimited width. The rates, the overhead per op and ``efficiency`` (by op class,
    "default" for the others) feed the roofline cost model only. ``supported`` and ``unsupported`` are patterns of op
    classes or op types. ``runtime_device``, ``threads`` and ``precision`` say how such a device is run for real;
    empty and 0 leave the choice to the runtime. A kind with an
    ``instruction_set`` runs in a worker process that may use no more than these instructions (OpenVINO only).

    >>> DeviceKind("gpu", flops_per_s=9.3e12, memory_bandwidth_bytes_per_s=732e9).is_host
    False
    """

    name: str
    is_host: bool = False
    flops_per_s: float = math.nan
    memory_bandwidth_bytes_per_s: float = math.nan
    op_overhead_s: float = 0.0
    segment_overhead_s: float = 0.0  # cost of starting one segment under ``sequential``
    efficiency: Mapping[str, Efficiency] = field(default_factory=dict, hash=False)
    supported: tuple[str, ...] = ("*",)
    unsupported: tuple[str, ...] = ()
    runtime_device: str = ""
    threads: int = 0
    precision: Precision = ""
    instruction_set: InstructionSet = ""

    def supports(self, op_class: str, op_type: str) -> bool:
        """Say whether ops of this sort run here; ops that do no work do so everywhere.

        >>> DeviceKind("npu", unsupported=("embedding", "TopK*")).supports("reduce", "TopK-11")
        False
        """
        if op_class == "free":
            return True
        return _matches(self.supported, op_class, op_type) and not _matches(self.unsupported, op_class, op_type)


@dataclass(frozen=True)
class Device:
    """One device: its name, the name of its kind, and how much its memory holds (infinite = unlimited).

    ``half_duplex``: sends and receives share one channel instead of having one each.

    >>> Device("gpu0", "gpu", memory_bytes=16 * 2**30).name
    'gpu0'
    """

    name: str
    kind: str
    memory_bytes: float = math.inf
    half_duplex: bool = False


@dataclass(frozen=True)
class Link:
    """A way for tensors: a copy of ``b`` bytes takes ``latency_s + b / bandwidth_bytes_per_s`` seconds.

    ``busy`` says which ends can do no other copy meanwhile. ``name`` joins the link with measured copy curves of a
    profile. A bandwidth of ``None`` means that the problem states the copy times itself.

    >>> float(Link("pcie", bandwidth_bytes_per_s=10e9, latency_s=1e-5).copy_s(np.array([1e6]))[0])
    0.00011
    """

    name: str
    bandwidth_bytes_per_s: float | None = None
    latency_s: float = 0.0
    busy: Busy = "both"

    def copy_s(self, size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds for copies of the given sizes; zero bytes take no time at all."""
        if self.bandwidth_bytes_per_s is None:
            raise InputError(f"link '{shown(self.name)}' has no bandwidth: its copy times must be given by the problem")
        return np.where(size_bytes > 0, self.latency_s + size_bytes / self.bandwidth_bytes_per_s, 0.0)


class LinkTable(NamedTuple):
    """The links as small arrays; a link class is an index into ``links``, -1 means there is none.

    From device i to device j a tensor takes ``direct[i, j]`` where that exists. Otherwise it goes through host memory:
    ``to_host[i]`` once per tensor, then ``from_host[j]`` once per destination, -1 being free.
    """

    links: tuple[Link, ...]
    direct: NDArray[np.int32]  # [devices, devices]
    to_host: NDArray[np.int32]  # [devices]
    from_host: NDArray[np.int32]  # [devices]
    busy: NDArray[np.uint8]  # [links]: bit 0 = sender busy, bit 1 = receiver busy


@dataclass(frozen=True)
class Cluster:
    """A set of devices, each linked to host memory, to other devices directly, or both.

    ``to_host`` and ``from_host`` give a device's link to and from host memory by device name; ``direct`` gives
    the link of an ordered pair of devices. A pair without a direct link goes through host memory.

    >>> gpu = Device("gpu0", "gpu", memory_bytes=2**30)
    >>> pcie = Link("pcie", bandwidth_bytes_per_s=12e9, latency_s=1e-5)
    >>> Cluster("box", (DeviceKind("gpu"), DeviceKind("cpu", is_host=True)), (gpu, Device("cpu0", "cpu")),
    ...         to_host={"gpu0": pcie}, from_host={"gpu0": pcie})
    Cluster('box': gpu0 (gpu), cpu0 (cpu))
    """

    name: str
    kinds: tuple[DeviceKind, ...]
    devices: tuple[Device, ...]
    to_host: Mapping[str, Link]
    from_host: Mapping[str, Link]
    direct: Mapping[tuple[str, str], Link] | None = None

    def __post_init__(self) -> None:
        _check_devices(self)
        self.link_table()

    @property
    def n_devices(self) -> int:
        return len(self.devices)

    @property
    def device_names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.devices)

    @property
    def device_kind(self) -> NDArray[np.int32]:
        """[devices]: index into ``kinds``."""
        index = {kind.name: k for k, kind in enumerate(self.kinds)}
        return np.array([index[d.kind] for d in self.devices], dtype=np.int32)

    @property
    def is_host(self) -> NDArray[np.bool_]:
        """[devices]: computes out of host memory."""
        host = {k.name: k.is_host for k in self.kinds}
        return np.array([host[d.kind] for d in self.devices], dtype=np.bool_)

    def kind_of(self, device: Device) -> DeviceKind:
        return next(k for k in self.kinds if k.name == device.kind)

    def link_table(self) -> LinkTable:
        """Compile the links; raises :class:`InputError` when two devices cannot reach each other."""
        links: list[Link] = []

        def class_of(link: Link | None) -> int:
            if link is None:
                return -1
            if link not in links:
                links.append(link)
            return links.index(link)

        n, host = self.n_devices, self.is_host
        direct_links = self.direct or {}
        direct = np.full((n, n), -1, dtype=np.int32)
        to_host, from_host = np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int32)
        number = {device.name: i for i, device in enumerate(self.devices)}
        rows: dict[int, dict[int, Link]] = {}
        for (a, b), link in direct_links.items():
            if a != b and a in number and b in number:
                rows.setdefault(number[a], {})[number[b]] = link
        for i, device in enumerate(self.devices):
            to_host[i] = class_of(None if host[i] else self.to_host.get(device.name))
            from_host[i] = class_of(None if host[i] else self.from_host.get(device.name))
            for j, link in sorted(rows.get(i, {}).items(), key=lambda entry: entry[0]):
                direct[i, j] = class_of(link)
        sends, receives = host | (to_host >= 0), host | (from_host >= 0)
        cut_off = (direct < 0) & ~(sends[:, None] & receives[None, :]) & ~np.eye(n, dtype=np.bool_)
        for i, j in np.argwhere(cut_off)[:1].tolist():
            raise InputError(
                f"cluster '{shown(self.name)}': no way from device '{shown(self.devices[i].name)}' to "
                f"'{shown(self.devices[j].name)}': give a direct link, or links of both to host memory"
            )
        busy = np.array([_BUSY_BITS[link.busy] for link in links], dtype=np.uint8)
        return LinkTable(tuple(links), direct, to_host, from_host, busy)

    def device_groups(self) -> list[list[int]]:
        """Devices that can be exchanged without changing anything but names, as lists of indices."""
        groups: list[list[int]] = []
        table = self.link_table()
        for i in range(self.n_devices):
            group = next((g for g in groups if self._alike(g[0], i, table)), None)
            if group is None:
                groups.append([i])
            else:
                group.append(i)
        return groups

    def _alike(self, i: int, j: int, table: LinkTable) -> bool:
        a, b = self.devices[i], self.devices[j]
        if (a.kind, a.memory_bytes, a.half_duplex) != (b.kind, b.memory_bytes, b.half_duplex):
            return False
        if table.to_host[i] != table.to_host[j] or table.from_host[i] != table.from_host[j]:
            return False
        swap = np.arange(self.n_devices)
        swap[[i, j]] = j, i
        return bool(np.array_equal(table.direct, table.direct[np.ix_(swap, swap)]))

    def __repr__(self) -> str:
        devices = ", ".join(f"{shown(d.name)} ({shown(d.kind)})" for d in self.devices)
        return f"Cluster({shown(self.name)!r}: {devices})"


def equal_devices(kind: str, count: int, memory_bytes: float = math.inf, *, half_duplex: bool = False) -> list[Device]:
    """``count`` devices of one kind, named after it: ``gpu0, gpu1, …``."""
    return [Device(f"{kind}{i}", kind, memory_bytes, half_duplex) for i in range(count)]


def _matches(patterns: tuple[str, ...], op_class: str, op_type: str) -> bool:
    return any(fnmatch.fnmatchcase(op_type, p) or fnmatch.fnmatchcase(op_class, p) for p in patterns)


def _check_devices(cluster: Cluster) -> None:
    where = f"cluster '{shown(cluster.name)}'"
    if not cluster.devices:
        raise InputError(f"{where} has no devices; at least one is needed")
    _check_distinct(f"{where}: device names", [d.name for d in cluster.devices])
    _check_distinct(f"{where}: kind names", [k.name for k in cluster.kinds])
    kinds = {k.name for k in cluster.kinds}
    for device in cluster.devices:
        if device.kind not in kinds:
            raise InputError(f"{where}: device '{shown(device.name)}' is of the unknown kind '{shown(device.kind)}'")
        if not device.memory_bytes >= 0:
            raise InputError(
                f"{where}: memory of '{shown(device.name)}' is {device.memory_bytes}, expected bytes, at least 0"
            )


def _check_distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{what} must differ, '{shown(name)}' is there twice")
        seen.add(name)
