"""How long copies take, over sizes from 1 KiB to 64 MiB: between host memory and CUDA devices, and between cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from placewright.cluster import Cluster, DeviceKind, Link

COPY_SIZES_BYTES = tuple(2**10 * 4**k for k in range(9))
HOST = "cpu"
Copy = Callable[[], float]  # copies once and returns the seconds


def link_ends(cluster: Cluster) -> Iterator[tuple[Link, DeviceKind | None, DeviceKind | None]]:
    """Yield each link with the kinds at its two ends, ``None`` being host memory; once per kind and direction."""
    kind_of = {d.name: cluster.kind_of(d) for d in cluster.devices}
    ways: dict[tuple[str, str, str], tuple[Link, DeviceKind | None, DeviceKind | None]] = {}

    def add(link: Link, source: DeviceKind | None, target: DeviceKind | None) -> None:
        key = (link.name, source.name if source else "", target.name if target else "")
        ways.setdefault(key, (link, source, target))

    for name, link in cluster.to_host.items():
        add(link, kind_of[name], None)
    for name, link in cluster.from_host.items():
        add(link, None, kind_of[name])
    for (source, target), link in (cluster.direct or {}).items():
        add(link, kind_of[source], kind_of[target])
    yield from ways.values()


def copier(source: str, target: str, size_bytes: int) -> Copy | None:
    """Return what copies that many bytes from one torch device to another; ``None`` if this cannot be measured here.

    Both ends being the host means that one core hands a tensor over to another.
    """
    if source == target == HOST:
        return lambda: handover_s(size_bytes)
    if "cuda" not in source + target:
        return None
    import torch

    if source == target:  # two devices of one kind
        source, target = "cuda:0", "cuda:1"
    if not torch.cuda.is_available() or (target == "cuda:1" and torch.cuda.device_count() < 2):
        return None
    return _cuda_copier(source, target, size_bytes)


def handover_s(size_bytes: int) -> float:
    """Seconds from one thread's signal until another thread has woken up and copied what the first one wrote."""
    written, received = np.ones(size_bytes, dtype=np.uint8), np.zeros(size_bytes, dtype=np.uint8)
    ready, ended = threading.Event(), [0.0]

    def receive() -> None:
        ready.wait()
        np.copyto(received, written)
        ended[0] = time.perf_counter()

    thread = threading.Thread(target=receive)
    thread.start()
    written[:] = 2  # in this core's cache, as an op would leave its result
    start = time.perf_counter()
    ready.set()
    thread.join()
    return ended[0] - start


def _cuda_copier(source: str, target: str, size_bytes: int) -> Copy:
    import torch

    def buffer(device: str) -> torch.Tensor:
        return torch.ones(size_bytes, dtype=torch.uint8, device=device, pin_memory=device == HOST)

    origin, goal = buffer(source), buffer(target)

    def wait() -> None:
        for tensor in (origin, goal):
            if tensor.is_cuda:
                torch.cuda.synchronize(tensor.device)

    def copy() -> float:
        wait()
        start = time.perf_counter()
        goal.copy_(origin, non_blocking=True)
        wait()
        return time.perf_counter() - start

    return copy
