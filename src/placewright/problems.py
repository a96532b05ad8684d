"""``Problem``: graph x cluster x costs x objective x constraints, compiled once to the arrays that kernels read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from placewright import _core
from placewright.cluster import Cluster, LinkTable
from placewright.costs.roofline import supported_ops
from placewright.errors import InputError, suggestion
from placewright.graph import BoolArray, FloatArray, IntArray, OpGraph
from placewright.patterns import matching
from placewright.profiles import Profile, colocated
from placewright.text import shown

Objective = Literal["latency", "throughput"]
Execution = Literal["overlap", "sequential", "calls", "pipeline"]
Schedule = Literal["1f1b", "gpipe"]
Communication = Literal["added", "overlapped"]
Result = TypeVar("Result")
EXECUTIONS: tuple[Execution, ...] = ("overlap", "sequential", "calls", "pipeline")
OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput")
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
COMMUNICATIONS: tuple[Communication, ...] = ("added", "overlapped")
# Fields of a problem that are wishes; a saved placement keeps them.
SAVED_OPTIONS = ("max_segments", "contiguous", "schedule", "communication", "max_replicas", "track_activations")


@dataclass(frozen=True)
class Rule:
    """A wish of the user: ``pin`` ops to a device or kind, ``forbid`` one to them, or keep them ``together``.

    ``pattern`` is a regular expression searched for in op names; ``target`` a device name or a kind name; ``source``
    says how the rule was written where that was not the command line.

    >>> str(Rule("pin", "^embed", "cpu0"))
    "--pin '^embed=cpu0'"
    """

    action: Literal["pin", "forbid", "together"]
    pattern: str
    target: str = ""
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.source:
            return self.source
        text = f"--{self.action} '{shown(self.pattern)}"
        return text + (f"={shown(self.target)}'" if self.target else "'")


class Arrays(NamedTuple):
    """All that evaluation kernels need, C-contiguous. Names as in :class:`OpGraph` and :class:`Problem`."""

    tensor_ptr: IntArray
    tensor_producer: IntArray
    consumer_ptr: IntArray
    consumer_op: IntArray
    input_ptr: IntArray
    input_tensor: IntArray
    is_backward: BoolArray
    op_time_s: FloatArray  # [ops, kinds]
    memory_bytes: FloatArray  # [ops]
    live_bytes: FloatArray  # [tensors]: zero where activations are not tracked
    copy_s: FloatArray  # [tensors, link classes]
    device_kind: IntArray
    memory_limit_bytes: FloatArray  # [devices]
    is_host: BoolArray  # [devices]
    segment_overhead_s: FloatArray  # [devices]
    direct: IntArray  # [devices, devices]
    to_host: IntArray
    from_host: IntArray
    link_busy: NDArray[np.uint8]
    send_channel: IntArray  # [devices]
    receive_channel: IntArray  # [devices]
    colocation_first: IntArray  # [ops]: first op of its class, itself where free
    allowed: BoolArray  # [ops, devices]: supported and not ruled out
    order_source: IntArray  # edges that contiguous stages must respect
    order_target: IntArray


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be decided, and by which rules it is judged. Make one with :func:`build_problem` or a frontend.

    Times are in ``time_unit`` ("s", or "" for a published file's own unit). ``schedule`` and ``communication`` matter
    to ``pipeline`` only: ``1f1b`` minimises max(FW + BW), ``gpipe`` max FW + max BW; copies are ``added`` to compute
    or ``overlapped`` with it. ``contiguous`` asks ``pipeline`` stages to follow one another (forward ops only). A
    stage may be replicated over up to ``max_replicas`` devices of its kind, taking samples in turn.

    >>> from placewright import load
    >>> problem = load("zoo:chain?ops=3", cluster="p100x2")
    >>> problem.n_ops, problem.n_devices, problem.with_options(execution="sequential").execution
    (3, 3, 'sequential')
    """

    graph: OpGraph
    cluster: Cluster
    op_time_s: FloatArray  # [ops, kinds], infinite = not supported
    memory_bytes: FloatArray  # [ops] resident
    tensor_copy_s: FloatArray  # [tensors, link classes]
    objective: Objective = "latency"
    execution: Execution = "overlap"
    track_activations: bool = True
    contiguous: bool = True
    schedule: Schedule = "1f1b"
    communication: Communication = "added"
    max_segments: int | None = None
    max_replicas: int = 1
    sync_s: FloatArray | None = (
        None  # [ops, kinds]: one exchange of an op's weights between replicas, zero if not given
    )
    rules: tuple[Rule, ...] = ()
    permitted: BoolArray | None = None  # [ops, devices]: what rules left open, once names are gone (after a reduction)
    time_unit: str = "s"
    origin: Mapping[str, Any] = field(
        default_factory=dict
    )  # what ``load`` was given by name: model, cluster, profile, …

    def __post_init__(self) -> None:
        from placewright.problem_checks import check_problem

        check_problem(self)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept for speed: another process makes its own."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @property
    def n_ops(self) -> int:
        return self.graph.n_ops

    @property
    def n_devices(self) -> int:
        return self.cluster.n_devices

    @property
    def needs_contiguous_stages(self) -> bool:
        return self.execution == "pipeline" and self.contiguous

    @property
    def memory_cannot_bind(self) -> bool:
        """True if even the smallest memory holds everything that is resident."""
        return bool(self.memory_bytes.sum() <= min(d.memory_bytes for d in self.cluster.devices))

    @cached_property
    def links(self) -> LinkTable:
        return self.cluster.link_table()

    @cached_property
    def op_device_time_s(self) -> FloatArray:
        """[ops, devices] seconds, infinite where the op may not be."""
        times = self.op_time_s[:, self.cluster.device_kind]
        return np.where(self.allowed, times, np.inf)

    @cached_property
    def allowed(self) -> BoolArray:
        """[ops, devices]: the device supports the op and no rule forbids it."""
        allowed = np.isfinite(self.op_time_s[:, self.cluster.device_kind])
        if self.permitted is not None:
            allowed &= self.permitted
        for rule in self.rules:
            if rule.action != "together":
                ops, devices = self._matching_ops(rule), self._matching_devices(rule)
                ruled_out = devices if rule.action == "forbid" else ~devices
                allowed[np.ix_(ops, ruled_out)] = False
        return allowed

    @cached_property
    def group_of_op(self) -> IntArray:
        """[ops]: the first op of the group that must share a device (classes and ``together`` rules united)."""
        parent = _first_of_class(self.graph.colocation)
        together = [rule for rule in self.rules if rule.action == "together"]
        if not together:
            return parent
        for rule in together:
            roots = np.unique([_root(parent, int(v)) for v in np.flatnonzero(self._matching_ops(rule))])
            parent[roots] = roots[0]
        return np.array([_root(parent, int(v)) for v in range(self.n_ops)], dtype=np.int32)

    @cached_property
    def arrays(self) -> Arrays:
        """The compiled form."""
        g, links = self.graph, self.links
        n_devices = self.n_devices
        half = np.array([d.half_duplex for d in self.cluster.devices])
        send = np.arange(n_devices, dtype=np.int32)
        source, target = contiguity_edges(self)
        kinds = {k.name: k for k in self.cluster.kinds}
        return Arrays(
            tensor_ptr=g.tensor_ptr,
            tensor_producer=g.tensor_producer,
            consumer_ptr=g.consumer_ptr,
            consumer_op=g.consumer_op,
            input_ptr=g.input_ptr,
            input_tensor=g.input_tensor,
            is_backward=g.is_backward,
            op_time_s=np.ascontiguousarray(self.op_time_s),
            memory_bytes=np.ascontiguousarray(self.memory_bytes),
            live_bytes=g.tensor_bytes if self.track_activations else np.zeros(g.n_tensors),
            copy_s=np.ascontiguousarray(self.tensor_copy_s),
            device_kind=self.cluster.device_kind,
            memory_limit_bytes=np.array([d.memory_bytes for d in self.cluster.devices]),
            is_host=self.cluster.is_host,
            segment_overhead_s=np.array([kinds[d.kind].segment_overhead_s for d in self.cluster.devices]),
            direct=links.direct,
            to_host=links.to_host,
            from_host=links.from_host,
            link_busy=links.busy,
            send_channel=send,
            receive_channel=np.where(half, send, send + n_devices).astype(np.int32),
            colocation_first=self.group_of_op,
            allowed=np.ascontiguousarray(self.allowed),
            order_source=source,
            order_target=target,
        )

    def settings(self) -> dict[str, Any]:
        """How to make this problem again, as plain data; :func:`placewright.open_placement` reads it from a file."""
        options: dict[str, Any] = {name: getattr(self, name) for name in SAVED_OPTIONS}
        options["rules"] = [asdict(rule) for rule in self.rules]
        return {**self.origin, "options": options}

    def with_options(self, **changes: Any) -> Problem:
        """Return a copy with other options, e.g. ``with_options(execution="sequential")``."""
        return replace(self, **changes)

    def for_objective(self, objective: str | None, execution: str | None) -> Problem:
        """Return this problem under another objective and execution model; ``None`` keeps or follows the other."""
        if objective is not None and objective not in OBJECTIVES:
            raise InputError(f"unknown objective '{shown(objective)}'; {suggestion(objective, OBJECTIVES)}")
        if execution is not None and execution not in EXECUTIONS:
            raise InputError(f"unknown execution model '{shown(execution)}'; {suggestion(execution, EXECUTIONS)}")
        if execution is None:
            default_latency = self.execution if self.objective == "latency" else "overlap"
            execution = "pipeline" if (objective or self.objective) == "throughput" else default_latency
        if objective is None:
            objective = "throughput" if execution == "pipeline" else "latency"
        return replace(self, objective=cast(Objective, objective), execution=execution)

    def _matching_ops(self, rule: Rule) -> BoolArray:
        try:
            hits = np.array(matching(rule.pattern, self.graph.op_names), dtype=np.bool_)
        except (re.error, RecursionError, OverflowError) as error:
            raise InputError(f"{rule}: not a regular expression: {shown(str(error))}") from error
        except InputError as error:
            raise InputError(f"{rule}: {error}") from error
        if not hits.any():
            nearest = suggestion(rule.pattern.strip("^$"), self.graph.op_names[:20_000], shown_at_most=3)
            raise InputError(f"{rule}: no operator matches; {shown(nearest, 300)}")
        return hits

    def _matching_devices(self, rule: Rule) -> BoolArray:
        hits = np.array([rule.target in (d.name, d.kind) for d in self.cluster.devices], dtype=np.bool_)
        if not hits.any():
            known = {d.name for d in self.cluster.devices} | {d.kind for d in self.cluster.devices}
            raise InputError(
                f"{rule}: no device or kind is called '{shown(rule.target)}'; {suggestion(rule.target, known)}"
            )
        return hits

    def __repr__(self) -> str:
        return f"Problem({self.graph!r}, {self.cluster!r}, {self.objective}, {self.execution})"

    def _repr_html_(self) -> str:
        from placewright.reports.notebook import problem_html

        return problem_html(self)


def once_per_problem(function: Callable[[Problem], Result]) -> Callable[[Problem], Result]:
    """Decorator: compute a figure of a problem once and keep it with the problem.

    Threads that ask at the same time may both compute it, but all are given the one that was kept.
    """
    key = f"_once_{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def remembered(problem: Problem) -> Result:
        if key not in problem.__dict__:
            problem.__dict__.setdefault(key, function(problem))
        return cast(Result, problem.__dict__[key])

    return remembered


@once_per_problem
def core_problem(problem: Problem) -> _core.Problem:
    """The problem as the compiled core sees it: views of ``problem.arrays``."""
    return _core.Problem(problem.arrays._asdict())


def build_problem(
    graph: OpGraph,
    cluster: Cluster,
    profile: Profile,
    *,
    memory_bytes: FloatArray | None = None,
    **options: Any,
) -> Problem:
    """Join a graph, a cluster and a profile. ``memory_bytes`` per op is the weights unless given.

    Copy times come from the profile's curve of the link's name where there is one, else from the link itself. Ops that
    the profile timed as one kernel must share a device; what a kind does not support cannot run there. Overheads of
    segments are the profile's where it has them.

    >>> from placewright.cluster_file import load_cluster
    >>> from placewright.graph import build_graph
    >>> from placewright.profiles import modelled_profile
    >>> graph, _ = build_graph("pair", ["a", "b"], [(0, 4.0, [1])])
    >>> times = modelled_profile(graph.op_names, ("gpu", "cpu"), np.array([[1e-3, 2e-3], [1e-3, 9e-3]]), source="me")
    >>> build_problem(graph, load_cluster("p100x2"), times).op_time_s.shape
    (2, 2)
    """
    profile.check_fits(graph)
    cluster = _with_overheads(cluster, profile)
    kinds = tuple(k.name for k in cluster.kinds)
    times = profile.times_for(graph.op_names, kinds)
    can_run = np.stack([supported_ops(graph, kind) for kind in cluster.kinds], axis=1)
    if profile.groups:
        graph = colocated(graph, profile.groups)
    copies = [profile.copies.get(link.name, link).copy_s(graph.tensor_bytes) for link in cluster.link_table().links]
    return Problem(
        graph=graph,
        cluster=cluster,
        op_time_s=np.where(can_run, times, np.inf),
        memory_bytes=graph.weight_bytes if memory_bytes is None else memory_bytes,
        tensor_copy_s=np.stack(copies, axis=1) if copies else np.zeros((graph.n_tensors, 0)),
        **options,
    )


def _with_overheads(cluster: Cluster, profile: Profile) -> Cluster:
    known = profile.segment_overhead_s
    kinds = [replace(k, segment_overhead_s=known.get(k.name, k.segment_overhead_s)) for k in cluster.kinds]
    return replace(cluster, kinds=tuple(kinds)) if known else cluster


def contiguity_edges(problem: Problem) -> tuple[IntArray, IntArray]:
    """Return the edges (source op, target op) along which contiguous stages must not run backwards.

    These are the edges between forward ops. A group with backward ops only has no place in that order; it
    follows the backward edges it touches, reversed: backward work visits the stages the other way round.
    """
    g = problem.graph
    u, v = g.edge_producer, g.consumer_op
    forward = ~g.is_backward[u] & ~g.is_backward[v]
    has_forward = np.zeros(problem.n_ops, dtype=np.bool_)
    has_forward[problem.group_of_op[~g.is_backward]] = True
    orphaned = ~has_forward[problem.group_of_op]
    reverse = g.is_backward[u] & g.is_backward[v] & (orphaned[u] | orphaned[v])
    source = np.concatenate([u[forward], v[reverse]]).astype(np.int32)
    target = np.concatenate([v[forward], u[reverse]]).astype(np.int32)
    return source, target


def _first_of_class(colocation: IntArray) -> IntArray:
    first = np.arange(len(colocation), dtype=np.int32)
    _, first_index, inverse = np.unique(colocation, return_index=True, return_inverse=True)
    members = colocation >= 0
    first[members] = first_index[inverse[members]]
    return first


def _root(parent: IntArray, v: int) -> int:
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = int(parent[v])
    return v
