"""The cores of this machine as devices: ``cores:K`` (equal ones), ``cores:f32+bf16`` (unlike precisions), ``slow``.

A slow core computes in f32 with the instructions of an old processor, in a worker process.
"""

from __future__ import annotations

from typing import cast

from placewright.cluster import Cluster, Device, DeviceKind, Efficiency, Link, Precision
from placewright.costs.machine import core_flops_per_s
from placewright.errors import InputError
from placewright.text import shown

CORES_PREFIX = "cores:"
_SLOW = "slow"
_WAYS = ("f32", "bf16", _SLOW)
_SLOWER = 4.0  # roughly, until a profile is measured
_MAX_CORES = 1024
# Modelled only, until a profile is measured: what one core of a present server reaches.
_CORE_BANDWIDTH_BYTES_PER_S = 12e9
_EFFICIENCY = {
    "conv": Efficiency(0.8),
    "conv1x1": Efficiency(0.8),
    "matmul": Efficiency(0.8),
    "attention": Efficiency(0.6),
    "depthwise": Efficiency(0.2),
    "recurrent": Efficiency(0.5),
    "default": Efficiency(0.1),
}
# Handing a tensor to another core: a wake-up, then its cache lines.
_HANDOVER = Link("core* - core*", bandwidth_bytes_per_s=8e9, latency_s=20e-6, busy="both")


def cores_cluster(reference: str) -> Cluster:
    """Make the cluster of ``cores:K`` or ``cores:f32+bf16``; more devices than cores can be planned for, not run.

    >>> cores_cluster("cores:1").device_names
    ('core0',)
    """
    text = reference.removeprefix(CORES_PREFIX)
    wanted = ["f32"] * int(text) if text.isascii() and text.isdigit() and len(text) < 5 else text.split("+")
    if not 1 <= len(wanted) <= _MAX_CORES or any(p not in _WAYS for p in wanted):
        raise InputError(
            f"cluster '{shown(reference)}': expected 1 to {_MAX_CORES} cores such as cores:2, or one of "
            f"{', '.join(_WAYS)} per core such as cores:f32+bf16"
        )
    kinds = tuple(_kind(p) for p in dict.fromkeys(wanted))
    devices = tuple(Device(f"core{i}", p) for i, p in enumerate(wanted))
    pairs = {(a.name, b.name): _HANDOVER for a in devices for b in devices if a is not b}
    return Cluster(reference, kinds, devices, {}, {}, pairs or None)


def _kind(way: str) -> DeviceKind:
    precision = "f32" if way == _SLOW else way
    return DeviceKind(
        name=way,
        is_host=True,
        flops_per_s=core_flops_per_s(precision) / (_SLOWER if way == _SLOW else 1.0),
        memory_bandwidth_bytes_per_s=_CORE_BANDWIDTH_BYTES_PER_S,
        op_overhead_s=2e-6,
        segment_overhead_s=30e-6,
        efficiency=_EFFICIENCY,
        runtime_device="CPU",
        threads=1,
        precision=cast(Precision, precision),
        instruction_set="sse41" if way == _SLOW else "",
    )
