"""A placement whose every name tries to be something else than text."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device, DeviceKind, Link
from placewright.graph import build_graph
from placewright.placement import Placement, checked_placement
from placewright.problems import Problem

EVIL = [
    "<script>window.evil=1</script>",
    "</script><img src=x onerror=window.evil=2>",
    "<!--<script>",
    "\"'><svg onload=window.evil=3>",
    "emoji 🙂🚀",
    "line\nbreak\u2028and\u2029more\x00",
    "\u202eright to left",
    "\ud800 lone surrogate",
    "&lt;b&gt;",
    "${window.evil=4}",
    "long-" + "n" * 10_000,
]


def evil_placement(devices: tuple[str, str] = ("<b>gpu</b>", "cpu'\"&")) -> Placement:
    n = len(EVIL)
    graph, _ = build_graph(
        "<title>model</title></script>",
        EVIL,
        [(v, 1e6, [v + 1]) for v in range(n - 1)],
        op_types=EVIL[::-1],
        module_paths=[f"{name}.inner" for name in EVIL],
        tensor_names=EVIL[: n - 1],
    )
    link = Link("<link>", bandwidth_bytes_per_s=1e9)
    cluster = Cluster(
        "<cluster>",
        (DeviceKind("<kind>"), DeviceKind("host", is_host=True)),
        (Device(devices[0], "<kind>", 1e9), Device(devices[1], "host")),
        to_host={devices[0]: link},
        from_host={devices[0]: link},
    )
    times = np.ones((n, 2))
    problem = Problem(graph, cluster, times, np.ones(n), np.full((n - 1, 1), 0.1))
    return checked_placement(
        problem, (np.arange(n) // 3 % 2).astype(np.int32), placer="<i>hand</i>", note="<u>note</u>"
    )
