"""What a campaign needs from a runtime: one model, ready on one kind of device."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from placewright.cluster import DeviceKind
from placewright.costs.machine import core_count
from placewright.graph import FloatArray


class Setting(NamedTuple):
    """How a model is run on a kind of device."""

    runtime: str
    device: str  # as the runtime calls it
    threads: int
    precision: str
    software: str


class Runner(Protocol):
    """A model on a device. Both calls run it once, synchronously, on the same inputs."""

    setting: Setting
    groups: tuple[tuple[str, ...], ...]  # ops that run as one kernel

    def whole_s(self) -> float:
        """Seconds of one ordinary run."""

    def op_times_s(self) -> tuple[FloatArray, float]:
        """[ops] seconds of each op within one run, and the seconds of them that are the runtime's own work."""


def threads_of(kind: DeviceKind) -> int:
    """Threads that a kind asks for; all cores if it leaves that open."""
    return kind.threads or core_count()
