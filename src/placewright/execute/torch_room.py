"""How a device's ops run within less memory than they need: weights are streamed to it, and tensors leave for a while.

Weights that are streamed pass through a window of the device's memory for each sample (torch_weights.py); tensors that
leave wait in host memory until they are read again (torch_spills.py). How much of which is chosen by the time that the
copies add, as far as the ops do not hide them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placewright.errors import InputError
from placewright.execute.torch_program import cut_into_pieces, devices_of_ops, ops_of, ordered, output_of
from placewright.execute.torch_spills import Spill, TensorLives, overlapped_time_s
from placewright.execute.torch_weights import Chunk, Span, plan_chunks, weight_spans

if TYPE_CHECKING:
    import torch

COPY_LATENCY_S, COPY_BANDWIDTH = 5e-6, 40e9  # bytes per second, of pinned memory: PCIe 5 with 16 lanes reaches more
_SHARES = (0.9, 0.7, 0.5, 0.3, 0.15)  # of what tensors take at once; less means more copies
_MANY_OPS = 4000  # from here on not all of these are tried: planning takes longer than it is worth
_WINDOWS = (2.0, 1.5, 1.0)  # times what is read at once; a larger one lets copies run further ahead


class Room(NamedTuple):
    """What a device does with its memory."""

    streamed: frozenset[str] = frozenset()  # ops; weights that they are the first to read are streamed
    window_bytes: int = 0
    tensor_bytes: float = np.inf  # what tensors may take at once
    streamed_bytes: int = 0  # per sample
    leaving_bytes: int = 0  # of tensors, per sample
    time_s: float = 0.0  # of the device's ops, one after another, with the copies beside them

    @property
    def note(self) -> str:
        """What is copied, in words.

        >>> Room(streamed_bytes=2_100_000).note
        '2 MB of weights streamed'
        """
        copied = ((self.leaving_bytes, "tensors leave"), (self.streamed_bytes, "weights streamed"))
        told = ", ".join(f"{size / 1e6:.0f} MB of {what}" for size, what in copied if size)
        return told or ("in place where possible" if np.isfinite(self.tensor_bytes) else "")


class DeviceOps(NamedTuple):
    """A program's ops on one device."""

    pieces: list[list[Any]]  # nodes as they run; a piece ends where another device waits
    weights: Mapping[str, Any]  # tensors by placeholder, of the whole program
    results: list[str]  # ops whose results the program returns
    sent: list[str]  # ops whose results other devices read

    @property
    def ops(self) -> list[Any]:
        return [node for piece in self.pieces for node in piece]

    @property
    def lives(self) -> TensorLives:
        return TensorLives(self.pieces, self.weights, self.results, self.sent)

    @property
    def weight_bytes(self) -> int:
        """What the weights that these ops read take."""
        read = {i.name for node in self.ops for i in node.all_input_nodes}
        return sum(self.weights[name].nbytes for name in read & self.weights.keys())


def ops_on(
    device: str,
    program: torch.export.ExportedProgram,
    device_of_name: Mapping[str, str],
    device_names: Sequence[str],
    weights: Mapping[str, Any],
    start_order: Mapping[str, float] | None = None,
) -> DeviceOps:
    """A device's part of a placement, as TorchRun runs it."""
    names = list(device_names)
    nodes = ordered(ops_of(program), start_order)
    device_of = devices_of_ops(nodes, device_of_name, names)
    return part_of(nodes, device_of, names.index(device), weights, output_of(program).all_input_nodes)


def part_of(
    nodes: Sequence[Any], device_of: Mapping[str, int], device: int, weights: Mapping[str, Any], results: Sequence[Any]
) -> DeviceOps:
    """The ops of a device, by its number, among a program's ``nodes`` in the order in which they run."""
    mine = [n for n in nodes if device_of[n.name] == device]
    result_names = {n.name for n in results}
    return DeviceOps(
        cut_into_pieces(mine, {n.name: i for i, n in enumerate(nodes)}, device_of, device),
        weights,
        [n.name for n in mine if n.name in result_names],
        [n.name for n in mine if any(device_of.get(u.name, device) != device for u in n.users)],
    )


def plan_room(
    part: DeviceOps, limit_bytes: float, op_time_s: Mapping[str, float] | None = None, tolerance: float = 0.0
) -> Room:
    """The quickest way that is found to run a device's ops within ``limit_bytes``.

    ``op_time_s`` says how long ops take; without it copies are counted only. Where nothing else helps, ``tolerance``
    is the share of the limit by which it may be exceeded. Raises InputError if no way is found.
    """
    ops, held = part.ops, part.weight_bytes
    lives = part.lives
    compute_s = [(op_time_s or {}).get(n.name, 0.0) for n in ops]
    if held + lives.most_bytes_apart <= limit_bytes:
        return Room(time_s=sum(compute_s))
    weights = _Weights(ops, part.weights)
    # Tensors take as much as they like, as much as is left beside all weights or beside a window, and between.
    rooms = [lives.most_bytes, limit_bytes - held]
    rooms += [limit_bytes - held + weights.streamable_bytes - share * weights.read_at_once_bytes for share in _WINDOWS]
    if len(ops) <= _MANY_OPS:
        rooms += [share * lives.most_bytes for share in _SHARES]
    found: list[Room] = []
    problem = ""
    for room in sorted({r for r in rooms if 0 < r <= lives.most_bytes}, reverse=True):
        flow = _Flow(frozenset(), 0, 0, [])
        if held + room > limit_bytes:
            streamed = weights.streamed(held + room, limit_bytes, tolerance)
            if streamed is None:
                continue
            flow = streamed
        try:
            spills: list[Spill] = lives.plan(room)
        except ValueError as error:
            problem = str(error)
            break  # with less room it is no better
        seconds = overlapped_time_s(compute_s, flow.chunks, spills, COPY_LATENCY_S, COPY_BANDWIDTH)
        leaving = sum(s.size_bytes for s in spills)
        found.append(Room(flow.readers, flow.window_bytes, room, flow.size_bytes, leaving, seconds))
    if not found:
        raise InputError(
            f"{len(ops)} operators with {held / 1e6:.1f} MB of weights and up to {lives.most_bytes / 1e6:.1f} MB of "
            f"tensors do not run within {limit_bytes / 1e6:.1f} MB"
            + (f": {problem}" if problem else ": a window for weights does not fit beside the tensors")
        )
    return min(found, key=lambda r: r.time_s)


class _Flow(NamedTuple):
    """Weights that are streamed."""

    readers: frozenset[str]
    window_bytes: int
    size_bytes: int
    chunks: list[Chunk]


class _Weights:
    """Weights of a device's ops, and which of them to stream."""

    def __init__(self, ops: Sequence[Any], weights: Mapping[str, Any]) -> None:
        self._ops = ops
        every = weight_spans(ops, weights)
        # One that is read for longer would leave no room to others.
        self._spans = [s for s in every if s.last - s.first <= len(ops) / 2]
        self._first_readers_of_others = {ops[s.first].name for s in every if s.last - s.first > len(ops) / 2}
        self.streamable_bytes = sum(s.size_bytes for s in self._spans)
        self.read_at_once_bytes = _most_at_once(self._spans, len(ops))

    def streamed(self, used_bytes: float, limit_bytes: float, tolerance: float) -> _Flow | None:
        """As many weights as must be, spread evenly over the ops, so that copies have the whole run to hide behind."""
        spans, ops = self._spans, self._ops
        most = max(self.read_at_once_bytes, 1)
        tries = [(limit_bytes, share) for share in _WINDOWS] + [(limit_bytes * (1 + tolerance), 1.0)]
        for limit, share in tries:
            window = int(most * share)
            excess = used_bytes + window - limit
            if 0 < excess <= self.streamable_bytes:
                break
        else:
            return None
        chosen, debt = set(), 0.0
        for i, span in enumerate(spans):
            debt += span.size_bytes * min(1.0, excess / self.streamable_bytes)
            if debt >= span.size_bytes / 2:
                chosen.add(i)
                debt -= span.size_bytes
        size = sum(spans[i].size_bytes for i in chosen)
        for i in sorted(range(len(spans)), key=lambda i: spans[i].size_bytes):
            if size >= excess:
                break
            size += 0 if i in chosen else spans[i].size_bytes
            chosen.add(i)
        readers = frozenset(ops[spans[i].first].name for i in chosen)
        if readers & self._first_readers_of_others:
            return None  # those would be streamed as well
        flowing = [s for s in spans if ops[s.first].name in readers]
        try:
            chunks = plan_chunks(flowing, window)
        except ValueError:
            return None
        return _Flow(readers, window, sum(s.size_bytes for s in flowing), chunks)


def _most_at_once(spans: Collection[Span], n_ops: int) -> int:
    """The most bytes of spans that are read at the same time."""
    change = np.zeros(n_ops + 1)
    for span in spans:
        change[span.first] += span.size_bytes
        change[span.last + 1] -= span.size_bytes
    return int(np.cumsum(change).max(initial=0))
