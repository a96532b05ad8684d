"""Shared by the twins: consumers and copy times in the words of the cluster, not of the compiled arrays."""

from __future__ import annotations

from placewright.cluster import Link
from placewright.problems import Problem


def consumers(problem: Problem, tensor: int) -> list[int]:
    """Ops that read the tensor."""
    g = problem.graph
    return [int(v) for v in g.consumer_op[g.consumer_ptr[tensor] : g.consumer_ptr[tensor + 1]]]


def outputs(problem: Problem, op: int) -> list[int]:
    """Tensors that the op produces."""
    return [t for t, u in enumerate(problem.graph.tensor_producer.tolist()) if u == op]


def op_time(problem: Problem, op: int, device: int) -> float:
    """Seconds of an op on a device."""
    kinds = [k.name for k in problem.cluster.kinds]
    return float(problem.op_time_s[op, kinds.index(problem.cluster.devices[device].kind)])


def is_host(problem: Problem, device: int) -> bool:
    """True if the device computes out of host memory."""
    return problem.cluster.kind_of(problem.cluster.devices[device]).is_host


def direct_link(problem: Problem, source: int, target: int) -> Link | None:
    """The direct link of a pair, if it has one."""
    devices = problem.cluster.devices
    return (problem.cluster.direct or {}).get((devices[source].name, devices[target].name))


def copy_time(problem: Problem, tensor: int, link: Link | None) -> float:
    """Seconds of a copy; no link (a host device's way to host memory) costs nothing."""
    return 0.0 if link is None else float(problem.tensor_copy_s[tensor, problem.links.links.index(link)])


def up_link(problem: Problem, device: int) -> Link | None:
    """The device's link to host memory; ``None`` for host devices."""
    return None if is_host(problem, device) else problem.cluster.to_host.get(problem.cluster.devices[device].name)


def down_link(problem: Problem, device: int) -> Link | None:
    """The device's link from host memory; ``None`` for host devices."""
    return None if is_host(problem, device) else problem.cluster.from_host.get(problem.cluster.devices[device].name)
